package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

var (
	narrow = stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80}, more: 2}
	wide   = stage{role: "friend", allow: []string{"friend", "other"}, ports: []uint16{80, 443}, more: 4}
)

// A policy that changes while no address moves takes one transaction, whose packets are judged by the new policy and whose flows
// are judged again.
func TestAPolicyOfManyEndpointsChangesInOneTransaction(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	before := len(n.tables.Transactions())
	writes := n.sets.Writes
	next := narrow
	next.ports = []uint16{443}
	n.mustApply(t, next.updates()...)
	n.mustApply(t) // what is left to be cleaned up
	made := n.tables.Transactions()[before:]
	if len(made) != 1 || n.sets.Writes != writes {
		t.Fatalf("%d transactions and %d entries of sets:\n%s", len(made), n.sets.Writes-writes, strings.Join(made, "\n"))
	}
	if !strings.Contains(made[0], "--dport 443") || strings.Contains(made[0], "--dport 80 ") || !strings.Contains(made[0], ":mgyA-allow ") {
		t.Errorf("not the policy and the generation:\n%s", made[0])
	}
}

// Nothing is written for what is in force already.
func TestNothingIsWrittenTwice(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	n.mustApply(t)
	before, writes := len(n.tables.Transactions()), n.sets.Writes
	n.mustApply(t, narrow.updates()...)
	n.Resync()
	n.mustApply(t)
	if made := n.tables.Transactions()[before:]; len(made) > 0 || n.sets.Writes != writes {
		t.Errorf("%d transactions and %d entries of sets", len(made), n.sets.Writes-writes)
	}
}

var errRefused = errors.New("refused")

// disturb has the write with the number fail once, of sets and transactions counted together. It reports whether there was one.
func (n *fakeNode) disturb(number int, do func()) (failed bool) {
	count := 0
	n.sets.Refuse = func(string, ipsets.Change) error {
		if count++; count == number {
			failed = true
			return errRefused
		}
		return nil
	}
	defer func() { n.sets.Refuse = nil }()
	do()
	return failed
}

// A write that fails, whichever it is, is made up for by the next Apply.
func TestEveryWriteMayFailOnce(t *testing.T) {
	want := newFakeNode(t)
	want.mustApply(t, narrow.updates()...)
	want.mustApply(t, wide.updates()...)
	want.mustApply(t)
	for number := 1; ; number++ {
		n := newFakeNode(t)
		n.mustApply(t, narrow.updates()...)
		var err error
		if !n.disturb(number, func() { err = n.apply(wide.updates()...) }) {
			if number < 10 {
				t.Errorf("only %d writes: the test tests little", number-1)
			}
			break
		}
		if err == nil {
			t.Errorf("write %d failed, and Apply says nothing", number)
		}
		n.state.refusals.Retry.Room()
		for range 3 {
			if err = n.apply(); err == nil {
				break
			}
		}
		if err != nil {
			t.Errorf("write %d: %v", number, err)
		}
		if got := normal(n.contents(t)); got != normal(want.contents(t)) {
			t.Fatalf("after write %d has failed:\n%s\nwant:\n%s", number, got, normal(want.contents(t)))
		}
	}
}

// normal leaves out generations, which count how often flows were judged again, and seals.
func normal(text string) string {
	text = regexp.MustCompile(`(mgy[AB])`).ReplaceAllString(text, "mgy")
	text = regexp.MustCompile(`--(set-xmark|mark) 0x[0-9a-f]+/0xbfff0000`).ReplaceAllString(text, "GENERATION")
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return strings.Contains(line, "-seal ") })
	slices.Sort(lines) // they were sorted by what has been replaced
	return strings.Join(lines, "\n")
}

// A transaction that fails, whichever it is, is repeated by the next Apply.
func TestEveryTransactionMayFailOnce(t *testing.T) {
	for number := range 12 {
		n := newFakeNode(t)
		fails := make([]error, number, number+1)
		n.tables.Fail(append(fails, errRefused)...)
		var err error
		for _, s := range []stage{narrow, wide, narrow} {
			err = errors.Join(err, n.apply(s.updates()...))
		}
		for range 3 {
			if again := n.apply(); again == nil {
				break
			}
		}
		if err == nil && number == 0 {
			t.Error("the first transaction failed, and Apply says nothing")
		}
		want := newFakeNode(t)
		for _, s := range []stage{narrow, wide, narrow} {
			want.mustApply(t, s.updates()...)
		}
		want.mustApply(t)
		if got := counts(n); got != counts(want) {
			t.Errorf("after transaction %d has failed there are %s, want %s", number+1, got, counts(want))
		}
		if inForce, there := n.worlds(t); len(inForce) != 1 || !slices.Equal(inForce, there) {
			t.Errorf("after transaction %d has failed %v is in force, and there is %v", number+1, inForce, there)
		}
	}
}

// counts says how much there is of what numbers may differ of.
func counts(n *fakeNode) string {
	stats := n.Stats(false)
	return fmt.Sprintf("%d enforced, %d tables, %d classes, %d chains", stats.Enforced, stats.Tables, stats.Classes, n.state.world.of("mangle", 4).Len())
}

// An agent that is killed between any two writes leaves one world in force, and its successor another one, and nothing else.
func TestASuccessorTakesOverFromAnyPoint(t *testing.T) {
	for number := 1; number < 40; number++ {
		n := newFakeNode(t)
		n.mustApply(t, narrow.updates()...)
		n.open(t)
		killed := func() (killed bool) {
			defer func() { killed = recover() != nil }()
			n.disturbWithPanic(number, func() { _ = n.apply(wide.updates()...) })
			return false
		}()
		if inForce, _ := n.worlds(t); len(inForce) != 1 {
			t.Fatalf("killed at write %d: %v is in force", number, inForce)
		}
		n.sets.Refuse = nil
		n.open(t)
		n.mustApply(t, wide.updates()...)
		n.mustApply(t)
		inForce, there := n.worlds(t)
		if len(inForce) != 1 || !slices.Equal(inForce, there) {
			t.Fatalf("after a kill at write %d, %v is in force, and there is %v", number, inForce, there)
		}
		if !killed {
			if number < 10 {
				t.Errorf("only %d writes: the test tests little", number-1)
			}
			return
		}
	}
}

func (n *fakeNode) disturbWithPanic(number int, do func()) {
	count := 0
	n.sets.Refuse = func(string, ipsets.Change) error {
		if count++; count == number {
			panic("killed")
		}
		return nil
	}
	do()
}

// A successor judges live flows again: its generation is another one.
func TestASuccessorHasAnotherGeneration(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	first := n.state.static.generation.number
	n.open(t)
	n.mustApply(t, narrow.updates()...)
	if second := n.state.static.generation.number; second == first || n.state.static.foreign {
		t.Errorf("generation %d after %d, other agents' marks: %v", second, first, n.state.static.foreign)
	}
}

// Marks of connections that no generation of this node has made are taken off before they can stand for a verdict.
func TestMarksOfOthersAreTakenOff(t *testing.T) {
	n := newFakeNode(t)
	n.flows.marks = []uint32{0x00020000, 0xbfff00ff, 7}
	n.mustApply(t, narrow.updates()...)
	if want := []uint32{0, 0xff, 7}; !slices.Equal(n.flows.marks, want) {
		t.Errorf("marks %#x, want %#x", n.flows.marks, want)
	}
}

// What others change is found, reported as repaired, and repaired.
func TestChangesByOthersAreRepaired(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	want := n.contents(t)
	for what, change := range map[string]func() error{
		"flush": func() error { return n.tables.Load(iptables.V4, "*mangle\n-F FORWARD\nCOMMIT\n") },
		"rule": func() error {
			return n.tables.Load(iptables.V4, "*mangle\n-I mgyA-deny -j ACCEPT\nCOMMIT\n")
		},
		"entry": func() error {
			spec := n.state.sets.of[4].own.Spec()
			_, err := n.sets.Write(spec, []ipsets.Change{{Entry: ipsets.Entry{Key: keys(n.state.endpoints.bound[model.WorkloadID("t", "a")].policy)[0]}, Remove: true}})
			return err
		},
	} {
		before := n.Stats(false).Repairs
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if n.contents(t) == want {
			t.Fatalf("%s: nothing was changed: the test tests nothing", what)
		}
		for range setsEvery {
			if _, err := n.Sweep(); err != nil {
				t.Error(err)
			}
		}
		if !n.resync {
			t.Errorf("%s: not seen by the look at tables and sets", what)
		}
		n.Resync()
		n.mustApply(t)
		if normal(n.contents(t)) != normal(want) || n.Stats(false).Repairs == before {
			t.Errorf("%s: not repaired, or not counted", what)
		}
	}
}

// An endpoint is open last, and closed first.
func TestEndpointsAreOpenedLastAndClosedFirst(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	var order []string
	n.sets.Refuse = func(set string, c ipsets.Change) error {
		order = append(order, fmt.Sprintf("%s %v %v", set, c.Key.Interface, c.Remove))
		return nil
	}
	n.mustApply(t, model.EndpointUpdate{ID: model.WorkloadID("t", "a")}, endpointAt("b", "cali5", "10.0.3.1", map[string]string{"app": "a"}))
	if len(order) < 4 || order[0] != "mgyA4-own calia true" || order[len(order)-1] != "mgyA4-own cali5 false" {
		t.Errorf("order of writes: %q", order)
	}
	for _, e := range n.Endpoints() {
		if e.Condition != dataplane.Enforced {
			t.Errorf("%s is %s (%s)", e.ID, e.Condition, e.Reason)
		}
	}
}

// A table that another one replaces in place may be given to an endpoint by the same plan: it has chains again.
func TestATableIsReplacedAndGivenToAnotherEndpoint(t *testing.T) {
	n := newFakeNode(t)
	s := stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80}}
	n.mustApply(t, append(s.updates(), endpointAt("b", "cali0", "10.0.2.1", nil))...)
	tcp := model.ProtoTCP
	second := &model.Policy{Tier: model.TierDefault, Order: 2, Selector: selector.Equal("x", "1"), AppliesIngress: true,
		Ingress: []model.Rule{{Action: model.Allow, Protocol: &tcp, Destination: model.Entity{Ports: []model.PortRange{{Lo: 443, Hi: 443}}}}}}
	n.mustApply(t, model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "q"}, Policy: second},
		endpointAt("a", "calia", "10.0.0.10", map[string]string{"app": "a", "x": "1"}),
		endpointAt("b", "cali0", "10.0.2.1", map[string]string{"app": "a"}))
	a, b := n.state.endpoints.bound[model.WorkloadID("t", "a")], n.state.endpoints.bound[model.WorkloadID("t", "b")]
	saved := n.tables.Save(iptables.V4, "mangle")
	if strings.Count(saved, "--dport 80 ") != 2 || a.slots[model.Ingress] == b.slots[model.Ingress] {
		t.Errorf("slots %v and %v:\n%s", a.slots, b.slots, saved)
	}
}

// Agents that are killed after any transaction, one after the other, leave packets of both IP versions judged: also if packets of one
// go to the new world and those of the other do not yet.
func TestPacketsOfBothVersionsAreJudgedWheneverAgentsAreKilled(t *testing.T) {
	for first := range 9 {
		for second := range 9 {
			n := newFakeNode(t)
			n.mustApply(t, narrow.updates()...)
			for _, lives := range []int{first, second} {
				n.open(t)
				n.tables.Fail(append(make([]error, lives), errRefused)...)
				_ = n.apply(wide.updates()...)
				for _, family := range families {
					if saved := n.tables.Save(iptables.Family(family), "mangle"); !strings.Contains(saved, "-A FORWARD -j mgy") {
						t.Fatalf("killed after %d and %d transactions, packets of IPv%d are not judged:\n%s", first, second, family, saved)
					}
				}
			}
			n.open(t)
			_ = n.apply(wide.updates()...) // a failure may be left
			for range 3 {
				_ = n.apply()
			}
			n.mustApply(t)
			names, err := n.sets.Names("mgy")
			if err != nil || len(names) != 10 {
				t.Errorf("killed after %d and %d transactions: sets %v, %v", first, second, names, err)
			}
		}
	}
}

// A class that no address has any more, and then one again, is known to the chains again, although the table has had its row all the
// time.
func TestAClassComesAgain(t *testing.T) {
	n := newFakeNode(t)
	s := narrow
	n.mustApply(t, s.updates()...)
	want := normal(n.contents(t))
	for range 3 {
		n.mustApply(t, model.EndpointUpdate{ID: model.WorkloadID("t", "src")})
		n.mustApply(t)
		if n.contents(t) == want {
			t.Fatal("nothing has changed")
		}
		n.mustApply(t, s.updates()...)
		if got := normal(n.contents(t)); got != want {
			t.Fatalf("after the address has come again:\n%s\nbefore:\n%s", got, want)
		}
	}
}

// Where live flows are kept, those of an address go with the endpoint that leaves it, whether it goes or has none any more. A
// restart forgets nothing.
func TestKeptFlowsGoWithTheirEndpoint(t *testing.T) {
	n := newFakeNode(t)
	n.keep = true
	n.open(t)
	all := []string{"10.0.0.10", "10.0.2.1", "8.8.8.8", "2001:db8::7"}
	n.connect(all...)
	n.mustApply(t, narrow.updates()...)
	n.wantGone(t, "at a start", all)
	without := endpointAt("a", "calia", "10.0.0.10", map[string]string{"app": "a"})
	without.Endpoint.Addrs = nil
	n.mustApply(t, without, model.EndpointUpdate{ID: model.WorkloadID("t", "a0")})
	n.wantGone(t, "an endpoint has no address any more, another is gone", all, "10.0.0.10", "10.0.2.1")
	n.mustApply(t, endpointAt("heir", "cali5", "10.0.0.10", map[string]string{"app": "a"}))
	n.wantGone(t, "another has the address", all, "10.0.0.10")
}

// The kernel's table of connections is read once for each IP version, however many endpoints leave at once.
func TestTheTableIsReadOnceForAllThatLeave(t *testing.T) {
	n := newFakeNode(t)
	n.keep = true
	n.open(t)
	n.mustApply(t, narrow.updates()...)
	const many = 5
	var come, gone []model.Update
	for i := range many {
		name := fmt.Sprint("job", i)
		come = append(come, endpointAt(name, fmt.Sprint("cali", 4+i), fmt.Sprint("10.0.7.", 1+i), map[string]string{"app": name}))
		gone = append(gone, model.EndpointUpdate{ID: model.WorkloadID("t", name)})
	}
	n.mustApply(t, come...)
	n.connect("10.0.7.1", "10.0.7.5", "8.8.8.8")
	readings := 0
	n.flows.ending = func() error {
		if readings++; readings == 1 {
			return errors.New("no buffer")
		}
		return nil
	}
	if n.apply(gone...) == nil {
		t.Fatal("the kernel's refusal is not reported")
	}
	n.mustApply(t)
	if readings != 2 {
		t.Errorf("the table was read %d times for %d endpoints of one IP version, with one failure", readings, many)
	}
	n.wantGone(t, "all but one connection", []string{"10.0.7.1", "10.0.7.5", "8.8.8.8"}, "10.0.7.1", "10.0.7.5")
}

// A class beyond those that marks have room for costs its address, not the change of others.
func TestAClassWithoutRoomInMarksHoldsUpNothing(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	most := n.state.slots.marks.Most()
	list := []classes.Class{{ID: most - 1, Family: 4}, {ID: most, Family: 4}, {ID: most + 1, Family: 4}}
	if cramped, err := n.state.slots.learn(list); err != nil || len(cramped) > 0 {
		t.Error(cramped, err)
	}
	if refused := n.state.addresses.write([]classes.AddrChange{{Prefix: netip.MustParsePrefix("10.9.9.9/32"), Class: most + 1}}); !refused {
		t.Error("the address of a class that has no mark is not refused")
	}
}

// What the node masquerades is judged as coming from the node: by the class that its address has now.
func TestTheClassOfTheNodesAddressIsFollowed(t *testing.T) {
	n := &fakeNode{tables: iptables.NewFake(), sets: ipsets.NewFake(), flows: &fakeFlows{}, addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	n.open(t)
	class := func() string {
		mark, ok := n.sets.Lookup("mgyA4-class", ipsets.Key{Prefix: single(n.addrs[0])})
		if !ok {
			t.Fatal("the node's address has no class")
		}
		return fmt.Sprintf("-A mgyA-node -j MARK --set-xmark %#x/%#x\n", mark.Value, mark.Mask)
	}
	n.mustApply(t, narrow.updates()...)
	before := class()
	if saved := n.tables.Save(iptables.V4, "mangle"); !strings.Contains(saved, before) {
		t.Errorf("no rule %s in\n%s", before, saved)
	}
	policy := &model.Policy{Tier: model.TierDefault, Order: 2, Selector: selector.Equal("app", "a"), AppliesIngress: true,
		Ingress: []model.Rule{{Action: model.Allow, Source: model.Entity{Nets: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}}}}
	n.mustApply(t, model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "q"}, Policy: policy})
	if class() == before {
		t.Fatal("the class is the same: the test tests nothing")
	}
	if saved := n.tables.Save(iptables.V4, "mangle"); !strings.Contains(saved, class()) {
		t.Errorf("no rule %s in\n%s", class(), saved)
	}
}
