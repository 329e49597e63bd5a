package node

import (
	"context"

	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/config"
)

// Check looks at what each dataplane needs with c, and which one an agent with c enforces with. It alters nothing.
func Check(ctx context.Context, c config.Config) (*Report, error) {
	probe := attach.Probe(c.BPFFS)
	node := &Report{Kernel: probe.Kernel}
	for _, c := range probe.Checks {
		node.Checks = append(node.Checks, Result{Name: c.Name, Dataplane: "bpf", OK: c.OK(), Detail: c.Detail()})
	}
	ctx, cancel := context.WithTimeout(ctx, iptablesPatience)
	defer cancel()
	var h held
	parts, checks := openIPTablesParts(ctx, c.IptablesBackend, &h)
	if parts.tools != nil {
		checks = append(checks, tablesCheck(parts.tools.Readable(ctx, "raw", "mangle", "filter")))
	}
	for _, c := range checks {
		c.Dataplane = "iptables"
		node.Checks = append(node.Checks, c)
	}
	node.choose(c.Dataplane, probe.Err(), kernelLacks(probe), missing(checks))
	switch node.Dataplane {
	case "iptables":
		node.Checks = append(node.Checks, markCheck(iptablesMarks(c)))
	case "record":
	default:
		node.Checks = append(node.Checks, markCheck(bpfMarks(c)), ipvsCheck())
		if beside := besideChains(c); beside != "" {
			node.Checks = append(node.Checks, Result{Name: "chains of iptables", Detail: beside})
		}
	}
	return node, h.release()
}

// tablesCheck says whether the tables that the iptables dataplane writes into can be read, which a start needs.
func tablesCheck(err error) Result {
	check := Result{Name: "tables", OK: err == nil}
	if err != nil {
		check.Detail = oneLine(err)
	}
	return check
}

// besideChains says that the iptables dataplane has policy in force in this network namespace, where an agent with BPF and c enforces, too;
// empty: it has none, or, as without an instance, the agent removes it. A failure to look says nothing: most nodes have no iptables.
func besideChains(c config.Config) string {
	if c.Instance == "" {
		return ""
	}
	enforced, running, _ := IPTablesPolicy()
	switch {
	case !enforced:
		return ""
	case running:
		return "another agent enforces with iptables in this network namespace: packets pass only if both allow them; stop one of the two agents"
	}
	return "chains of iptables that another agent left are in force in this network namespace: packets pass only if they and the policy of an agent with BPF allow them, and " +
		"no change is followed there; remove them with margay cleanup --instance \"\""
}
