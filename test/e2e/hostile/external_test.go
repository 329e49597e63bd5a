package hostile

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

// external makes a Service of the namespace evil that claims an address as an external one, known to the agents and
// translated on both nodes as kube-proxy does it.
func (s *scene) external(name string, claimed, backend netip.Addr) {
	s.T.Helper()
	s.Write("service-"+name, fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: evil}
spec: {externalIPs: [%q], ports: [{port: 53, protocol: UDP}]}
`, name, claimed))
	s.translate(netip.AddrPortFrom(claimed, 53), "udp", netip.AddrPortFrom(backend, 53))
}

// A tenant's Service may name any address as its own. That is said, takes the address from nobody, and gets the tenant
// nothing that the sender's policy does not allow to where the packets go in the end.
func TestAnExternalAddressOfAServiceIsJudgedByItsBackend(t *testing.T) {
	s := newScene(t)
	s.Policy("a", `{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress], egress: [
  {to: [{podSelector: {matchLabels: {app: b}}}, {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: evil}}, podSelector: {matchLabels: {app: deputy}}}]}]}`)
	deputy := s.Pod(s.n1, "evil/deputy")
	s.AwaitPolicies(s.a, 0, 1)
	everywhere := func() (at []*witness) {
		for _, h := range []*lab.Host{s.b.Host, s.c.Host, s.m.Host, deputy.Host, s.ext.Host} {
			at = append(at, s.watch(h))
		}
		return at
	}()
	atB := everywhere[0]
	families(t, func(t *testing.T, v6 bool) {
		suffix := map[bool]string{false: "4", true: "6"}[v6]
		toB, toDeputy := s.from(s.a, s.b, v6, dns), s.from(s.a, deputy, v6, dns)
		s.play(t, []attack{{what: "before", from: s.a, frames: bearing(s.a, toB), want: true}}, atB)

		// Another tenant's pod is claimed: what is meant for it does not get to the claimant past policy.
		s.external("thief"+suffix, s.b.Addr(v6), s.m.Addr(v6))
		s.awaitProblem("its external address " + s.b.Addr(v6).String() + " is also the address of endpoint " + s.b.Name())
		answer, err := s.Agent(0).Ask("status")
		if err != nil || !answer.Status.Ready || answer.Status.Problems != 1 {
			t.Errorf("status: %+v (%v); want an agent that is ready, and one problem", answer.Status, err)
		}
		s.forgetFlows(0)
		stolen, posed := toB, s.from(s.m, s.c, v6, dns)
		stolen.L4 = testutil.UDP{SrcPort: 1001, DstPort: 53}
		posed.Src = s.b.Addr(v6)
		other := toB
		other.L4 = testutil.UDP{SrcPort: 1001, DstPort: 80}
		s.play(t, []attack{
			{what: "to the address that is claimed", from: s.a, frames: bearing(s.a, stolen)},
			{what: "as the pod whose address is claimed", from: s.m, frames: bearing(s.m, posed)},
			{what: "to another port of the pod", from: s.a, frames: bearing(s.a, other), want: true},
			{what: "of the pod itself", from: s.b, frames: bearing(s.b, s.from(s.b, s.c, v6, dns)), want: true},
		}, everywhere...)

		// A pod of its own that policy allows is no deputy for one that it does not.
		for i, backend := range []netip.Addr{s.c.Addr(v6), s.ext.Addr(v6), s.m.Addr(v6)} {
			s.external("deputy"+suffix, deputy.Addr(v6), backend)
			s.awaitProblem("its external address " + deputy.Addr(v6).String() + " is also the address of endpoint " + deputy.Name())
			toDeputy.L4 = testutil.UDP{SrcPort: 1010 + uint16(i), DstPort: 53}
			s.play(t, []attack{{what: "through the deputy", from: s.a, frames: bearing(s.a, toDeputy)}}, everywhere...)
		}

		for _, gone := range []struct {
			name string
			addr netip.Addr
		}{{"thief", s.b.Addr(v6)}, {"deputy", deputy.Addr(v6)}} {
			s.Remove("service-" + gone.name + suffix)
			for _, n := range []*lab.Node{s.n1, s.n2} {
				if err := n.DeleteService(netip.AddrPortFrom(gone.addr, 53), "udp"); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.awaitNoProblem()
		toB.L4, toDeputy.L4 = testutil.UDP{SrcPort: 1002, DstPort: 53}, testutil.UDP{SrcPort: 1002, DstPort: 53}
		s.play(t, []attack{
			{what: "afterwards", from: s.a, frames: bearing(s.a, toB), want: true},
			{what: "to the deputy itself", from: s.a, frames: bearing(s.a, toDeputy), want: true},
		}, everywhere...)
	})
}
