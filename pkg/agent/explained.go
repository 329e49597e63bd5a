package agent

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/model"
)

// notEnforced says of which pods the kernel does not enforce the policy that the objects mean, and why: explain evaluates
// objects, a policy over a limit is refused, and one whose write failed is still to be written. An address whose entry the kernel has refused
// is of concern if it is one of addrs, the ends of the flows in question. Pods of other nodes have no status here.
func notEnforced(states []dataplane.EndpointStatus, pods []model.EndpointID, addrs []netip.Addr) []string {
	var texts []string
	for _, s := range states {
		if !slices.Contains(pods, s.ID) {
			continue
		}
		reason := ""
		switch s.Condition {
		case dataplane.Held, dataplane.Failed, dataplane.Pending: // of others it is no doubt about policy
			reason = s.Reason
		}
		if text := both(reason, cmp.Or(s.NotInForce, s.Misjudged.TextOf(addrs))); text != "" {
			texts = append(texts, fmt.Sprintf("%s: %s", s.ID, text))
		}
	}
	return texts
}

// notYet says which of the pods are closed until their Namespaces are known.
func notYet(awaited []calc.AwaitedPod, pods []model.EndpointID) (texts []string) {
	for _, p := range awaited {
		if slices.Contains(pods, p.ID) {
			texts = append(texts, fmt.Sprintf("%s: closed until Namespace %s is known", p.ID, p.Namespace))
		}
	}
	return texts
}

// nodeRules are what the node does to packets of its pods besides policy.
func nodeRules(node string, c config.Config) explain.NodeRules {
	return explain.NodeRules{Node: node, DropToHost: c.HostDrop, AllowEncap: c.AllowEncap, TunnelPorts: c.AllTunnelPorts()}
}

// shortfall is all that is to be said of an endpoint that is not as it should be; empty: it is.
func shortfall(s dataplane.EndpointStatus) string {
	return both(s.Reason, cmp.Or(s.NotInForce, s.Misjudged.Text()))
}

// both joins two texts, of which either may be empty.
func both(a, b string) string {
	if a != "" && b != "" {
		return a + "; " + b
	}
	return a + b
}
