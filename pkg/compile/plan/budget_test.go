package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// pod is an endpoint of a namespace whose ingress policy has so many rules, each about another CIDR list of one prefix;
// first makes them others than those of other policies.
func pod(namespace, name string, first, rules int) *model.EndpointPolicy {
	var list []model.MatchRule
	for i := range rules {
		a := netip.AddrFrom4([4]byte{172, byte(first), byte(i >> 8), byte(i)})
		list = append(list, model.MatchRule{Action: model.Allow, Source: model.Side{Nets: []netip.Prefix{host(a)}}})
	}
	e := endpointPolicy(name, policyOfRules(model.Ingress, list...), openEgress, "10.0.0.1")
	e.ID.Namespace, e.Iface = namespace, "cali"+namespace+name
	return e
}

// tenants is a compiler with a budget, and the kernel that its plans are carried out on.
type tenants struct {
	*Compiler
	t *testing.T
	k *kernel
}

func newTenants(t *testing.T, b Budget) *tenants {
	return &tenants{New(Options{Budget: b}, nil), t, newKernel()}
}

func (w *tenants) update(endpoints ...*model.EndpointPolicy) {
	w.t.Helper()
	ch := model.Changes{InSync: true, Endpoints: map[model.EndpointID]*model.EndpointPolicy{}}
	for _, e := range endpoints {
		ch.Endpoints[e.ID] = e
	}
	// A large policy comes in several plans.
	for more := true; more; ch = (model.Changes{InSync: true}) {
		plan := w.Update(ch)
		carryOut(w.k, plan)
		if err := w.k.garbage(); err != nil {
			w.t.Error(err)
		}
		more = plan.More
	}
}

// want checks how many sets an endpoint's ingress policy in the kernel has, -1: it is not bound, and what is said of it.
func (w *tenants) want(id string, sets int, failure string) {
	w.t.Helper()
	namespace, name, _ := strings.Cut(id, "/")
	ep, got := model.WorkloadID(namespace, name), -1
	if b, ok := w.k.bound[ep]; ok {
		got = len(w.k.tables[b.Ingress].Program.Sets)
	}
	if got != sets {
		w.t.Errorf("%s: %d sets, want %d", id, got, sets)
	}
	err := w.Failed()[EndpointDirection{ep, model.Ingress}]
	if failure == "" && err == nil {
		return
	}
	if !errors.Is(err, match.ErrOverLimit) || failure == "" || !strings.Contains(err.Error(), failure) {
		w.t.Errorf("%s: error %v, want one about %q", id, err, failure)
	}
}

func TestAPolicyOverItsDirectionsLimitIsRefused(t *testing.T) {
	for what, limit := range map[string]Cost{"sets of addresses": {Sets: 5}, "prefixes": {Prefixes: 5}, "entries of match tables": {Rules: 7}} {
		w := newTenants(t, Budget{Direction: limit})
		w.update(pod("evil", "m", 1, 6), pod("shop", "a", 2, 5))
		w.want("evil/m", -1, what)
		w.want("shop/a", 5, "")
		w.update(pod("evil", "m", 1, 3))
		w.want("evil/m", 3, "")
		w.update(pod("evil", "m", 1, 9))
		w.want("evil/m", 3, what)
	}
}

func TestANamespaceOverItsLimitConcernsNoOther(t *testing.T) {
	w := newTenants(t, Budget{Namespace: Cost{Sets: 10}})
	w.update(pod("evil", "m", 1, 6), pod("evil", "n", 2, 6), pod("shop", "a", 3, 9))
	w.want("evil/m", 6, "")
	w.want("evil/n", -1, "namespace evil's pods on this node: over the limit: 12 sets of addresses, limit 10")
	w.want("shop/a", 9, "")
	// One that came first does not lose its place to one that was refused, whatever their names.
	w.update(pod("evil", "m", 4, 5), pod("evil", "a", 5, 6))
	w.want("evil/m", 5, "")
	w.want("evil/a", -1, "limit 10")
	w.update(pod("evil", "m", 4, 2), pod("shop", "a", 3, 10))
	w.want("evil/m", 2, "")
	w.want("evil/a", 6, "")
	w.want("evil/n", -1, "limit 10")
	w.want("shop/a", 10, "")
	// What is freed is given to those that wait.
	ch := model.Changes{InSync: true, Endpoints: map[model.EndpointID]*model.EndpointPolicy{model.WorkloadID("evil", "a"): nil}}
	carryOut(w.k, w.Update(ch))
	w.want("evil/n", 6, "")
}

// All pods of a namespace get another policy at once: what they had is not counted beside what they are to have.
func TestAPolicyThatReplacesAnotherNeedsNoRoomBesideIt(t *testing.T) {
	w := newTenants(t, Budget{Namespace: Cost{Sets: 10}})
	var first, second []*model.EndpointPolicy
	for i := range 4 {
		first, second = append(first, pod("shop", fmt.Sprint(i), 1, 8)), append(second, pod("shop", fmt.Sprint(i), 2, 9))
	}
	w.update(first...)
	w.update(second...)
	for i := range 4 {
		w.want(fmt.Sprintf("shop/%d", i), 9, "")
	}
}

func TestASharedPolicyIsCountedOnce(t *testing.T) {
	w := newTenants(t, Budget{Namespace: Cost{Sets: 10}})
	w.update(pod("shop", "a", 1, 8), pod("shop", "b", 1, 8), pod("evil", "m", 1, 8))
	for _, id := range []string{"shop/a", "shop/b", "evil/m"} {
		w.want(id, 8, "")
	}
}

func TestAFullNodeStillHasRoomForASmallNamespace(t *testing.T) {
	w := newTenants(t, Budget{Node: Cost{Sets: 20}, Assured: Cost{Sets: 3}})
	w.update(pod("evil1", "m", 1, 10), pod("evil2", "m", 2, 10))
	w.update(pod("evil3", "m", 3, 4), pod("shop", "a", 4, 3))
	w.want("evil3/m", -1, "all pods on this node: over the limit: 24 sets of addresses, limit 20")
	w.want("shop/a", 3, "")
}

// A policy that was refused costs no second compilation while there is no room for it.
func TestARefusedPolicyIsExpandedOnce(t *testing.T) {
	w := newTenants(t, Budget{Namespace: Cost{Sets: 10}})
	w.update(pod("evil", "m", 1, 8), pod("evil", "n", 2, 8))
	before := w.rules.Next()
	for i := range 5 {
		w.update(pod("shop", "a", 3, i))
	}
	if w.rules.Next() > before+8 {
		t.Errorf("%d rules got numbers", w.rules.Next()-before)
	}
}

// bytes carries out plans as the dataplane does, without tables that are too large.
func (w *tenants) bytes(endpoints ...*model.EndpointPolicy) {
	w.t.Helper()
	w.k.refuses = true
	ch := model.Changes{InSync: true, Endpoints: map[model.EndpointID]*model.EndpointPolicy{}}
	for _, e := range endpoints {
		ch.Endpoints[e.ID] = e
	}
	for again := true; again; ch = (model.Changes{InSync: true}) {
		plan := w.Update(ch)
		plan = w.Withhold(plan, w.TooLarge(plan))
		again = plan.FollowUp || plan.More
		carryOut(w.k, plan)
	}
}

func TestTablesOverANamespacesLimitAreHeldBackUntilThereIsRoom(t *testing.T) {
	measure := newTenants(t, Budget{})
	measure.bytes(pod("shop", "a", 1, 8))
	size := 0
	for _, table := range measure.Tables() {
		own, _ := bytesOf(table)
		size += own
	}
	w := newTenants(t, Budget{Namespace: Cost{Bytes: 3 * size / 2}})
	w.back.confirm = true
	w.bytes(pod("evil", "m", 1, 8))
	w.bytes(pod("evil", "n", 2, 8), pod("shop", "a", 3, 8))
	w.want("evil/m", 8, "")
	w.want("evil/n", -1, "namespace evil's pods on this node")
	w.want("shop/a", 8, "")
	// A policy that another namespace has, too, costs no more.
	w.bytes(pod("evil", "o", 3, 8))
	w.want("evil/o", 8, "")
	again, waits := w.Retry()
	if again || !waits {
		t.Errorf("to be tried again: %v, to wait: %v, while nothing has become smaller", again, waits)
	}
	w.bytes(pod("evil", "o", 3, 0), pod("evil", "m", 1, 0))
	if again, _ = w.Retry(); !again {
		t.Error("there is room, and nothing is tried again")
	}
	w.bytes()
	w.want("evil/n", 8, "")
	w.want("shop/a", 8, "")
	w.bytes(pod("evil", "n", 2, 40)) // refused: it keeps what it has
	w.want("evil/n", 8, "limit")
}

func TestTheDocumentedLimitsAreTheseLimits(t *testing.T) {
	text, err := os.ReadFile("../../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	number := func(n int) string {
		s := fmt.Sprint(n)
		for i := len(s) - 3; i > 0; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	}
	line := func(what string, of func(Cost) int) {
		var cells []string
		for _, c := range []Cost{PerDirection, PerNamespace, PerNode, Assured} {
			cells = append(cells, number(of(c)))
		}
		if want := "| " + what + " | " + strings.Join(cells, " | ") + " |\n"; !strings.Contains(string(text), want) {
			t.Errorf("docs/architecture.md has no line %q", want)
		}
	}
	line("entries of match tables", func(c Cost) int { return c.Rules })
	line("sets (selectors, CIDR lists)", func(c Cost) int { return c.Sets })
	line("prefixes in CIDR lists", func(c Cost) int { return c.Prefixes })
	line("MiB of tables in the kernel", func(c Cost) int {
		if c.Bytes == 0 {
			return table.MaxTableBytes >> 20 // of one table
		}
		return c.Bytes >> 20
	})
}

// What has not been worked out is no policy without rules: it is refused, and neither opens nor narrows anything.
func TestAPolicyThatWasRefusedBeforeIsNotCompiled(t *testing.T) {
	refused := func(name string, staged bool) *model.EndpointPolicy {
		e := pod("evil", name, 1, 0)
		p := e.Ingress.Tiers[0].Policies[0]
		p.Refused, p.Staged = "its selectors match too many addresses", staged
		return e
	}
	w := newTenants(t, Budget{})
	w.update(pod("evil", "m", 1, 6), pod("shop", "a", 2, 5), refused("n", false))
	w.want("evil/n", -1, "its selectors match too many addresses")
	w.update(refused("m", false), pod("shop", "a", 2, 4))
	w.want("evil/m", 6, "its selectors match too many addresses")
	w.want("shop/a", 4, "")
	w.update(refused("m", true)) // means nothing for verdicts
	w.want("evil/m", 0, "")
}

func TestOverlapAndCombinationsOfLists(t *testing.T) {
	for _, tc := range []struct {
		lists []string
		want  [2]int
	}{
		{nil, [2]int{}},
		{[]string{"10.0.0.0/8", "11.0.0.0/8 fd00::/8"}, [2]int{1, 2}},
		{[]string{"10.0.0.0/8", "10.0.0.0/8 11.0.0.0/8"}, [2]int{2, 2}},
		{[]string{"10.0.0.0/8", "10.1.0.0/16", "10.2.0.0/16", "10.1.2.3/32 10.2.0.0/17"}, [2]int{3, 5}},
		{[]string{"0.0.0.0/1 10.0.0.0/8", "192.0.0.0/2", "::/1", "fd00::1/128"}, [2]int{2, 5}},
		{[]string{"10.0.0.0/9", "10.0.0.0/8", "10.128.0.0/9", "10.255.255.255/32"}, [2]int{3, 4}},
	} {
		lists := map[model.SetID][]netip.Prefix{}
		for i, text := range tc.lists {
			for _, p := range strings.Fields(text) {
				lists[model.SetID(fmt.Sprint(i))] = append(lists[model.SetID(fmt.Sprint(i))], netip.MustParsePrefix(p))
			}
		}
		if most, combinations, ok := overlapOf(lists, func(int) bool { return true }); !ok || [2]int{most, combinations} != tc.want {
			t.Errorf("%q: %d lists, %d combinations, want %d", tc.lists, most, combinations, tc.want)
		}
	}
}

// A dataplane may have room for few classes. One tenant's lists leave room for those of others, also if few lists make many
// combinations.
func TestOneTenantLeavesClassesToOthers(t *testing.T) {
	few := pod("evil", "n", 3, 9)
	for list := range 9 {
		side := &few.Ingress.Tiers[0].Policies[0].Rules[list].Source
		for i := range 300 {
			if i>>list&1 != 0 {
				side.Nets = append(side.Nets, host(netip.AddrFrom4([4]byte{200, 1, byte(i >> 8), byte(i)})))
			}
		}
	}
	w := newTenants(t, Budget{}.WithClasses(800))
	w.update(pod("evil", "m", 1, 199), pod("shop", "a", 2, 150))
	w.want("evil/m", 199, "")
	w.want("shop/a", 150, "")
	w.update(pod("evil", "m", 1, 201), few)
	w.want("evil/m", 199, "201 combinations of CIDR lists, limit 200")
	w.want("evil/n", -1, "299 combinations of CIDR lists, limit 200")
	w.update(pod("shop", "a", 2, 160))
	w.want("shop/a", 160, "")
}

// Lists that all hold half of the addresses, and each one more of the other half, put everybody's addresses into classes of
// thousands of sets: memory, and time for every table of others, by the product.
func TestListsThatOverlapAreBounded(t *testing.T) {
	overlapping := func(n int) *model.EndpointPolicy {
		e := pod("evil", "m", 1, n)
		for i := range n {
			side := &e.Ingress.Tiers[0].Policies[0].Rules[i].Source
			wide := [...]string{"0.0.0.0/1", "128.0.0.0/2"}[i%2]
			at := [...]byte{200, 10}[i%2]
			side.Nets = []netip.Prefix{netip.MustParsePrefix(wide), host(netip.AddrFrom4([4]byte{at, 1, byte(i >> 8), byte(i)}))}
		}
		return e
	}
	w := newTenants(t, DefaultBudget(1<<18, 1<<20))
	w.update(overlapping(200), pod("shop", "a", 2, 5000))
	w.want("evil/m", 200, "")
	w.want("shop/a", 5000, "")
	w.update(overlapping(8000))
	for w.step().More { // it is expanded in parts
	}
	w.want("evil/m", 200, "4001 CIDR lists that overlap, limit 256")
	if n := w.classes.All().Len(); n > 10_000 {
		t.Errorf("%d classes", n)
	}
}

// A tenant whose addresses are in very many combinations of sets makes all tables larger. Others have the bytes all the same that they are assured.
func TestClassesOfOneNamespaceTakeNoRoomFromTablesOfAnother(t *testing.T) {
	const many = 4000
	measure := newTenants(t, Budget{})
	measure.bytes(pod("shop", "a", 2, 8), pod("shop", "b", 3, 0))
	shop := measure.endpoints.allBytesUsed().by["shop"]
	w := newTenants(t, Budget{Assured: Cost{Bytes: shop}})
	w.back.confirm = true
	w.bytes(pod("shop", "b", 3, 0))
	w.bytes(pod("evil", "m", 1, many))
	w.want("evil/m", many, "")
	w.ledger.budget.Node.Bytes = w.endpoints.allBytesUsed().nodes[0]
	w.bytes(pod("shop", "a", 2, 8))
	w.want("shop/a", 8, "")
	w.bytes(pod("evil", "n", 4, many/2))
	w.want("evil/n", -1, "all pods on this node")
}
