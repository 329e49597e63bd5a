package validate

import (
	"fmt"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/margay-project/margay/pkg/model"
)

// mostRules is how many rules a NetworkPolicy may become in one direction: one for each peer and protocol of each API rule. No kernel's table
// holds more. An API server stores 780,000 rules without a field in 1.5 MiB, and as many rules of the model take every agent of the cluster
// half a minute and 3 GB.
const mostRules = 1<<16 - 1

// sizeOf are the peers and ports of one API rule.
type sizeOf func(i int) ([]networkingv1.NetworkPolicyPeer, []networkingv1.NetworkPolicyPort)

func ingressRule(spec *networkingv1.NetworkPolicySpec) sizeOf {
	return func(i int) ([]networkingv1.NetworkPolicyPeer, []networkingv1.NetworkPolicyPort) {
		return spec.Ingress[i].From, spec.Ingress[i].Ports
	}
}

func egressRule(spec *networkingv1.NetworkPolicySpec) sizeOf {
	return func(i int) ([]networkingv1.NetworkPolicyPeer, []networkingv1.NetworkPolicyPort) {
		return spec.Egress[i].To, spec.Egress[i].Ports
	}
}

// countRules is how many rules the first n API rules of a direction become at most.
func countRules(n int, rule sizeOf) (count int) {
	for i := range n {
		peers, ports := rule(i)
		count += max(1, len(peers)) * protocolsOf(ports)
	}
	return count
}

// protocolsOf is how many groups groupPorts makes of ports that are valid.
func protocolsOf(ports []networkingv1.NetworkPolicyPort) int {
	var seen [256]bool
	count := 0
	for i := range ports {
		number := uint8(model.ProtoTCP)
		if p := ports[i].Protocol; p != nil {
			number, _ = protocolNumber(*p)
		}
		if !seen[number] {
			seen[number] = true
			count++
		}
	}
	return max(1, count)
}

// limit closes a policy that would become too many rules in a direction that it is about.
func (c *closures) limit(spec *networkingv1.NetworkPolicySpec) {
	ingress, egress := policyTypes(spec)
	for _, d := range []struct {
		name    string
		applies bool
		rules   int
	}{
		{"ingress", ingress, countRules(len(spec.Ingress), ingressRule(spec))},
		{"egress", egress, countRules(len(spec.Egress), egressRule(spec))},
	} {
		if d.applies && d.rules > mostRules && c.policy == nil {
			c.policy = &field.Error{Field: field.NewPath("spec", d.name).String(),
				Detail: fmt.Sprintf("%d rules, one for each peer and protocol; the limit is %d: divide the policy", d.rules, mostRules)}
		}
	}
}
