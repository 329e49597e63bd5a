package plans

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/model"
)

// refusing is a dataplane whose kernel refuses some writes of addresses.
type refusing struct {
	*Refusals
	kernel  policytest.Entries
	members map[model.SetID]map[netip.Prefix]bool
}

var refusedPrefixes = policytest.Prefixes("10.1.0.0/16", "10.1.1.0/24", "10.1.1.1/32", "10.1.1.2/32", "10.2.0.1/32")

func newRefusing(t *rapid.T) *refusing {
	planner := NewPlanner(plan.New(plan.Options{}, nil), Steps{All: 1})
	t.Cleanup(planner.Compiler.Close)
	r := &refusing{kernel: policytest.Entries{}, members: map[model.SetID]map[netip.Prefix]bool{}}
	r.Refusals = &Refusals{Planner: planner, Unwritten: Unwritten{}, Believed: func(p netip.Prefix) (uint32, bool) {
		e, ok := r.kernel[p]
		return e.Class, ok
	}}
	web, db := model.Side{In: []model.SetID{"web"}}, model.Side{In: []model.SetID{"db"}}
	all := map[model.EndpointID]*model.EndpointPolicy{}
	for i, rules := range [][]model.MatchRule{
		{{Source: web}},
		{{Source: db, Action: model.Deny}, {Source: model.Side{Nets: policytest.Prefixes("10.0.0.0/8")}}},
		{{Source: model.Side{NotIn: []model.SetID{"web", "db"}}}},
		{{Source: model.Side{}}}, // tells no addresses apart
	} {
		id := model.WorkloadID("ns", fmt.Sprintf("pod-%d", i))
		all[id] = &model.EndpointPolicy{ID: id, Iface: fmt.Sprintf("cali%d", i), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{172, 16, 0, byte(1 + i)})},
			Ingress: policytest.OnePolicy(model.Ingress, rules...), Egress: &model.DirectionPolicy{Direction: model.Egress}}
	}
	planner.Enqueue(model.Changes{InSync: true, Endpoints: all, Sets: map[model.SetID]*model.SetChange{model.SetNodeAddrs: {}, "web": {}, "db": {}}})
	return r
}

// change draws members that join and leave the sets.
func (r *refusing) change(t *rapid.T) {
	ch := model.Changes{InSync: true, Sets: map[model.SetID]*model.SetChange{}}
	for _, id := range []model.SetID{"db", "web"} {
		if r.members[id] == nil {
			r.members[id] = map[netip.Prefix]bool{}
		}
		ch.Sets[id] = &model.SetChange{}
		for _, p := range refusedPrefixes {
			switch was, is := r.members[id][p], rapid.Bool().Draw(t, fmt.Sprint(p, " in ", id)); {
			case is && !was:
				ch.Sets[id].Added = append(ch.Sets[id].Added, p)
			case was && !is:
				ch.Sets[id].Removed = append(ch.Sets[id].Removed, p)
			}
			r.members[id][p] = slices.Contains(ch.Sets[id].Added, p) || r.members[id][p] && !slices.Contains(ch.Sets[id].Removed, p)
		}
	}
	r.Planner.Enqueue(ch)
}

// write makes a change of an entry, or refuses it: the old entry is removed then, unless that is refused, too.
func (r *refusing) write(t *rapid.T, c classes.AddrChange) {
	delete(r.Unwritten, c.Prefix)
	if rapid.IntRange(0, 2).Draw(t, "refused") > 0 {
		r.kernel.Write(c)
		return
	}
	r.Unwritten[c.Prefix] = Refused{Change: c, Cause: errors.New("no room")}
	if !c.Gone && rapid.Bool().Draw(t, "removed") {
		delete(r.kernel, c.Prefix)
	}
}

// check compares by each packet what policy says of the class that its source should have with what it says of the class that the
// kernel finds.
func (r *refusing) check(t *rapid.T) {
	c := r.Planner.Compiler
	wider := r.Wider(func(p netip.Prefix, cause error) string { return fmt.Sprint(p, ": ", cause) })
	misjudged := r.Misjudged()
	reason := map[model.EndpointID]bool{}
	for _, id := range c.Endpoints() {
		e, _ := c.Endpoint(id)
		allows := func(class uint32, from netip.Addr) bool {
			return e.Ingress.Eval(class, model.Packet{Src: from, Dst: e.Policy.Addrs[0], Protocol: model.ProtoTCP, DstPort: 80}).Action == 1
		}
		for _, p := range append(refusedPrefixes, policytest.Prefixes("10.9.0.1/32", "11.0.0.1/32")...) {
			a := p.Masked().Addr()
			is, should := allows(r.kernel.Lookup(a).Class, a), allows(c.Address(a).Entry.Class, a)
			if is && !should && wider[id] == "" {
				t.Fatalf("%v would let %v in, and stays open; unwritten: %v", id, a, r.Unwritten)
			}
			if m, known := misjudged[id]; is != should && (!known || m.TextOf([]netip.Addr{a}) == "") {
				t.Fatalf("%v misjudges %v, which is not reported; unwritten: %v", id, a, r.Unwritten)
			}
		}
		for p, refused := range r.Unwritten {
			_, stays := r.kernel[p] // then others inside it may be closed although they need not be
			taken, is := r.kernel.Lookup(p.Addr()).Class, refused.Change.Class
			reason[id] = reason[id] || stays || allows(taken, p.Addr()) && !allows(is, p.Addr())
		}
	}
	for id, text := range wider {
		if !reason[id] || text == "" {
			t.Fatalf("%v is closed without a reason (%q); unwritten: %v", id, text, r.Unwritten)
		}
	}
	if _, ok := misjudged[model.WorkloadID("ns", "pod-3")]; ok {
		t.Fatal("an endpoint that tells no addresses apart counts as misjudging some")
	}
	busy := map[uint32]bool{}
	for p := range r.Unwritten {
		if e, ok := r.kernel[p]; ok {
			busy[e.Class] = true
		}
	}
	if got := r.Busy(); !maps.Equal(got, busy) {
		t.Fatalf("classes %v are kept, want %v", got, busy)
	}
}

// Whatever the kernel refuses: an endpoint that would let something in for it is closed, no other one is, and what is judged by another
// class than it should be is reported.
func TestRefusedAddressesCloseWhatWouldBeTooWide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRefusing(t)
		for range rapid.IntRange(1, 5).Draw(t, "rounds") {
			r.change(t)
			for r.Planner.Pending() {
				r.Planner.Next(r.Busy(), 1)
				for _, c := range slices.Concat(r.Planner.Plan.Addrs, r.Planner.Plan.LateAddrs) {
					r.write(t, c)
				}
				r.Planner.Step = 1
			}
			r.check(t)
		}
	})
}
