package plan

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// spread is a policy of n rules, each for an address of its own and a port of its own: a table of many cells.
func spread(namespace, name string, first, n int) *model.EndpointPolicy {
	e := pod(namespace, name, first, n)
	rules := e.Ingress.Tiers[0].Policies[0].Rules
	for i := range rules {
		rules[i].Protocol, rules[i].Destination.Ports = &tcp, policytest.PortsOf(uint16(i+1), uint16(i+1))
	}
	return e
}

// A table that takes long to make takes several plans. Between them others' changes are enforced, each with the plan that
// takes it in, and classes that come then have their rows in the table.
func TestMakingATableTakesSeveralPlansAndOthersGoOn(t *testing.T) {
	w := parts(Options{Limits: table.Limits{Make: 2000}})
	other, large := pod("shop", "a", 2, 1), spread("evil", "m", 1, 300)
	other.Addrs, large.Addrs = policytest.Addrs("10.0.0.2"), policytest.Addrs("10.0.0.1")
	w.step(other)
	w.step(large)
	for w.inTheMaking() == nil {
		if p := w.step(); !p.More {
			t.Fatal("the table was made in one plan")
		}
	}
	plans := 0
	for p := w.step(); p.More && w.inTheMaking() != nil; p = w.step() {
		plans++
		// Another's policy has the address of a rule of the large one in a larger prefix: it gets another class.
		changed := pod("shop", "a", 3, 1)
		changed.Ingress = policyOfRules(model.Ingress, model.MatchRule{Action: model.Allow,
			Source: model.Side{Nets: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 1, 0, byte(2 * plans)}), 31)}}})
		changed.Addrs = other.Addrs
		if p = w.step(changed); w.k.bound[changed.ID].Endpoint != changed {
			t.Fatal("another's change waits for the table")
		}
	}
	if plans < 5 {
		t.Errorf("it was made in %d plans", plans)
	}
	for p := w.step(); p.More; p = w.step() {
	}
	made := w.k.tables[w.k.bound[large.ID].Ingress]
	for i := range 256 {
		from := netip.AddrFrom4([4]byte{172, 1, 0, byte(i)})
		pkt := model.Packet{Src: from, Dst: large.Addrs[0], Protocol: model.ProtoTCP, DstPort: uint16(i + 1)}
		class := w.k.addrs.Lookup(from).Class
		if made.Eval(class, pkt).Action != 1 {
			t.Errorf("from %s, class %d: denied", from, class)
		}
	}
	if err := w.k.garbage(); err != nil {
		t.Error(err)
	}
}

// The plan of a change opens no rest of a large policy, however small that is, and so does not begin its table.
func TestAChangeDoesNotOpenTheRestOfALargePolicy(t *testing.T) {
	w := parts(Options{Limits: table.Limits{Open: 40, Make: 2000}})
	other, large := pod("shop", "a", 2, 1), spread("evil", "m", 1, 50)
	other.Addrs, large.Addrs = policytest.Addrs("10.0.0.2"), policytest.Addrs("10.0.0.1")
	w.step(other)
	w.step(large)
	rest := func() (sets int) {
		for _, prog := range w.programs.unopened() {
			sets += len(prog.sets) - prog.open
		}
		return sets
	}
	for n := rest(); n == 0 || n*2*memberCost > 40; n = rest() {
		if p := w.step(); !p.More {
			t.Fatal("there is never a rest that one plan could open")
		}
	}
	before := rest()
	for i := range 3 {
		changed := pod("shop", "a", 3+i, 1)
		changed.Addrs = other.Addrs
		w.step(changed)
		if w.k.bound[changed.ID].Endpoint != changed || rest() != before || w.inTheMaking() != nil {
			t.Fatalf("change %d: %d sets of the large policy are left, were %d; in the making: %v", i, rest(), before, w.inTheMaking())
		}
	}
	for w.step().More {
	}
	if w.sets(large) != 50 {
		t.Errorf("%d sets in the end", w.sets(large))
	}
}

// inTheMaking is the table that is being made.
func (w *tenants) inTheMaking() *making {
	for _, prog := range w.programs.all() {
		if prog.making != nil {
			return prog.making
		}
	}
	return nil
}

// A table that nobody wants any more is not made.
func TestATableThatIsGoneBeforeItIsMadeLeavesNothing(t *testing.T) {
	w := parts(Options{Limits: table.Limits{Make: 2000}})
	small := pod("evil", "m", 1, 1)
	w.step(small)
	w.step(spread("evil", "m", 1, 300))
	for w.inTheMaking() == nil {
		w.step()
	}
	for more := w.step(small).More; more; {
		more = w.step().More
	}
	if w.inTheMaking() != nil || w.sets(small) != 1 || len(w.Waiting()) != 0 {
		t.Errorf("%d sets, in the making %v", w.sets(small), w.inTheMaking())
	}
	if err := w.k.garbage(); err != nil {
		t.Error(err)
	}
	w.step(spread("evil", "m", 1, 300))
	for w.inTheMaking() == nil {
		w.step()
	}
	w.Close()
	if w.inTheMaking() != nil {
		t.Error("it is being made although the compiler is closed")
	}
}
