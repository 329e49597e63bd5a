package node

import (
	"fmt"
	"strings"
	"time"

	"github.com/margay-project/margay/pkg/agent"
	"github.com/margay-project/margay/pkg/attach"
)

// looks returns the regular checks of an agent on its node. Some nodes have many rules, and listing them holds locks that their owners
// need. ipvs returns the findings about what there is of IPVS.
func looks(ours ownMarks, ipvs func(attach.IPVS) []string) []agent.Look {
	return []agent.Look{
		{What: "IPVS", Every: 30 * time.Second, Find: func() ([]string, error) {
			found, err := attach.FindIPVS()
			return ipvs(found), err
		}},
		{What: "use of our packet mark bits", Every: 5 * time.Minute, Find: func() ([]string, error) { return markFindings(ours) }},
	}
}

// ipvsBesideIPTables returns that there is IPVS: its packets do not pass the chains in which packets are judged (D-17). An agent does
// not start beside kube-proxy's, but kube-proxy can be given this mode later.
func ipvsBesideIPTables(v attach.IPVS) []string {
	if !v.Translates() {
		return nil
	}
	return []string{"IPVS translates Service addresses here (" + v.String() + "), and its packets pass the chains in which iptables judges: " +
		"policy is not enforced for what reaches pods by a Service, and egress to Services is judged on the Service's address; run kube-proxy in another mode, " +
		"or use --dataplane bpf"}
}

// ipvsFindings returns the uses of IPVS that policy cannot follow. kube-proxy configures IPVS without them.
func ipvsFindings(v attach.IPVS) []string {
	var found []string
	if v.Services > 0 && !v.Conntrack {
		found = append(found, "IPVS translates Service addresses here ("+v.String()+") past the kernel's conntrack, so answers to pods are "+
			"judged as new connections: set net.ipv4.vs.conntrack=1, as kube-proxy does")
	}
	if v.Direct > 0 {
		found = append(found, fmt.Sprintf("IPVS forwards packets here without translating them (%d of the backends by direct routing or tunnels): egress is "+
			"judged on the Service's address, not on the backend; remove them with ipvsadm, kube-proxy uses none", v.Direct))
	}
	return found
}

// ipvsCheck is the same for margay check.
func ipvsCheck() Result {
	found, err := attach.FindIPVS()
	check := Result{Name: "Services", OK: true, Detail: "not translated by IPVS"}
	if found.Translates() {
		check.Detail = "translated by IPVS (" + found.String() + "), judged on the backend"
	}
	if problems := ipvsFindings(found); len(problems) > 0 {
		check.OK, check.Detail = false, strings.Join(problems, "; ")
	} else if err != nil {
		check.Detail = "some could not be read: " + err.Error()
	}
	return check
}
