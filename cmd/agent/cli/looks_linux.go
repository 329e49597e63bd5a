package cli

import (
	"time"

	"github.com/margay-project/margay/pkg/agent"
	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/config"
)

// looks are what an agent looks for on its node. Rules are many on some nodes, and listing them takes
// their owners' locks.
func looks(c config.Config) []agent.Look {
	seen, judge, own := c.Marks()
	return []agent.Look{
		{What: "IPVS", Every: 30 * time.Second, Find: func() ([]string, error) {
			found, err := attach.FindIPVS()
			return ipvsFindings(found), err
		}},
		{What: "use of our packet mark bits", Every: 5 * time.Minute, Find: func() ([]string, error) { return markFindings(seen | judge | own) }},
	}
}

// ipvsFindings says what IPVS does to policy.
func ipvsFindings(v attach.IPVS) []string {
	if !v.Translates() {
		return nil
	}
	return []string{"IPVS translates Service addresses here (" + v.String() + "), after egress policy has judged them: it is " +
		"not judged on the backend; set kube-proxy's mode to nftables or iptables, and remove what IPVS has left (kube-proxy --cleanup)"}
}

// ipvsCheck is the same for margay check.
func ipvsCheck() nodeCheck {
	check := nodeCheck{Name: "Services", OK: true, Detail: "not translated by IPVS"}
	found, err := attach.FindIPVS()
	for _, text := range ipvsFindings(found) {
		check.OK, check.Detail = false, text
	}
	if err != nil && check.OK {
		check.Detail = "not all could be looked at: " + err.Error()
	}
	return check
}
