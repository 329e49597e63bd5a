package hostile

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/calc"
)

// denied is a network set of shop with the addresses of c, and so many others.
func (s *scene) denied(others int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: projectcalico.org/v3\nkind: NetworkSet\nmetadata: {name: denied, namespace: shop, labels: {of: c}}\nspec:\n  nets:\n  - %s\n  - %s\n", s.c.Addr4(), s.c.Addr6())
	for i := range others {
		fmt.Fprintf(&b, "  - 100.%d.%d.%d\n", 64+i>>16, i>>8&255, i&255)
	}
	return b.String()
}

// A network set that grows past the limit of its namespace used to count as empty: what a rule denies by it passed.
func TestPoliciesOfOneTenantDenyByANetworkSetThatIsLeftOut(t *testing.T) {
	denyByALeftOutNetworkSet(t, 0)
}

// Policy that is put in force in several parts, since it has many rules, denies it all the time, too.
func TestPoliciesOfOneTenantWithManyRulesDenyByANetworkSetThatIsLeftOut(t *testing.T) {
	denyByALeftOutNetworkSet(t, 7)
}

// denyByALeftOutNetworkSet has a policy deny by a network set, before so many others with 1,000 rules each.
func denyByALeftOutNetworkSet(t *testing.T, others int) {
	s := newScene(t)
	s.Serve(s.b.Host, 80)
	s.Write("denied", s.denied(0))
	const policy = "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: %s, namespace: shop}\n" +
		"spec: {order: %d, selector: app == 'b', types: [Ingress], ingress: [%s]}\n"
	s.Write("policy-first", fmt.Sprintf(policy, "first", 1, "{action: Deny, source: {selector: of == 'c'}}"))
	for i := range others {
		var rules []string
		for k := range 1000 {
			rules = append(rules, fmt.Sprintf("{action: Allow, source: {selector: of != 'c' && no == 'n%d-%d'}}", i, k))
		}
		s.Write(fmt.Sprint("policy-other-", i), fmt.Sprintf(policy, fmt.Sprint("other-", i), 2, strings.Join(rules, ", ")))
	}
	s.Write("policy-last", fmt.Sprintf(policy, "last", 3, "{action: Allow}"))
	s.AwaitPolicies(s.b, 2+others, 0)
	s.Reach(s.a.Host, s.b.Host, 80, true)
	s.Reach(s.c.Host, s.b.Host, 80, false)

	var flows []*traffic.UDPFlow
	for _, v6 := range []bool{false, true} {
		flow, err := traffic.StartUDPFlow(s.c.Host, netip.AddrPortFrom(s.b.Addr(v6), 80), traffic.UDPFlowOptions{Interval: time.Millisecond, Grace: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		flows = append(flows, flow)
	}
	s.Write("denied", s.denied(calc.MaxNetworkSetNets))
	testutil.WaitFor(t, soon, "the network set to be left out", func() bool { return len(s.leftOut()) == 1 })
	s.Reach(s.c.Host, s.b.Host, 80, false)
	s.Write("denied", s.denied(10))
	testutil.WaitFor(t, soon, "the network set to count again", func() bool { return len(s.leftOut()) == 0 })
	s.Reach(s.a.Host, s.b.Host, 80, true)
	s.Reach(s.c.Host, s.b.Host, 80, false)
	for _, flow := range flows {
		if r := flow.Stop(); r.Sent < 100 || r.Received > 0 {
			t.Errorf("%d of %d datagrams were answered", r.Received, r.Sent)
		}
	}
}
