package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// history is what may be in force at one time: policies as of some states, with sets as of some states.
type history struct {
	policies []*cluster
	sets     []*cluster
	known    *cluster // the world that the compiler had before the last changes; nil: it had none
}

// together is a world in which the endpoint's own addresses are members as in one state and all others as in another.
func together(e *model.EndpointPolicy, own, rest *cluster) *policytest.World {
	w := &policytest.World{Sets: map[model.SetID][]netip.Prefix{}, Own: e.Addrs}
	local, remote := &policytest.World{Sets: own.sets}, &policytest.World{Sets: rest.sets}
	for id := range own.sets {
		for _, a := range everyone {
			from := remote
			if slices.Contains(e.Addrs, a) {
				from = local
			}
			if from.Has(id, a) {
				w.Sets[id] = append(w.Sets[id], host(a))
			}
		}
	}
	return w
}

// after returns the sets of new. A set that no rule of new refers to keeps its members of old, but if the last changes remove it,
// it has its members of new.
func (h history) after(old, new *cluster) *cluster {
	both := new.clone()
	active, going := new.active(), map[model.SetID][]netip.Prefix{}
	if h.known != nil {
		going = h.known.active()
	}
	for id := range both.sets {
		_, stays := active[id]
		if _, goes := going[id]; !stays && !goes {
			both.sets[id] = old.sets[id]
		}
	}
	return both
}

// probe is a packet at an endpoint, and what it may meet while a plan is carried out.
type probe struct {
	id      model.EndpointID
	d       model.Direction
	pkt     model.Packet
	allowed []model.Verdict
	unbound bool
	final   *model.Verdict // nil: unbound
	before  model.Verdict  // in the kernel, at the start
	was     bool           // bound then
}

func policyOf(e *model.EndpointPolicy, d model.Direction) *model.DirectionPolicy {
	if d == model.Ingress {
		return e.Ingress
	}
	return e.Egress
}

func newProbe(k *kernel, h history, now *cluster, id model.EndpointID, d model.Direction, pkt model.Packet) (probe, error) {
	p := probe{id: id, d: d, pkt: pkt}
	var err error
	if p.before, p.was, err = k.judge(id, d, pkt); err != nil {
		return p, err
	}
	for _, was := range h.policies {
		e := was.endpoints[id]
		if e == nil {
			continue
		}
		for _, sets := range h.sets {
			for _, s := range []*cluster{sets, h.after(sets, now)} {
				p.allowed = append(p.allowed, together(e, was, s).Verdict(policyOf(e, d), pkt))
			}
		}
	}
	e := now.endpoints[id]
	p.unbound = !p.was || e == nil
	if e != nil {
		v := policytest.Truncated(together(e, now, now).Verdict(policyOf(e, d), pkt))
		p.final = &v
		p.allowed = append(p.allowed, v)
	}
	return p, nil
}

func (p *probe) remote() netip.Addr {
	if p.d == model.Egress {
		return p.pkt.Dst
	}
	return p.pkt.Src
}

func (p *probe) check(k *kernel) error {
	v, bound, err := k.judge(p.id, p.d, p.pkt)
	switch {
	case err != nil:
		return err
	case !bound && !p.unbound:
		return fmt.Errorf("%v %v is not bound", p.id, p.d)
	case bound && !v.Allow && k.isUnrecorded(p.remote()):
		return nil // lost for a moment
	case bound && !slices.ContainsFunc(p.allowed, func(a model.Verdict) bool { return a.Allow == v.Allow }):
		return fmt.Errorf("%v %v packet %+v: verdict %+v, may be %+v", p.id, p.d, p.pkt, v, p.allowed)
	}
	return nil
}

func (p *probe) checkFinal(k *kernel, plan Plan) error {
	v, bound, err := k.judge(p.id, p.d, p.pkt)
	if err != nil {
		return err
	}
	if bound != (p.final != nil) {
		return fmt.Errorf("%v is bound: %v", p.id, bound)
	}
	if !bound {
		return nil
	}
	if d := cmp.Diff(*p.final, known(v, *p.final)); d != "" {
		return fmt.Errorf("%v %v packet %+v: wrong verdict in the end (-want +got):\n%s", p.id, p.d, p.pkt, d)
	}
	other := func(b Binding) bool { return b.Endpoint.ID == p.id }
	at := EndpointDirection{p.id, p.d}
	if p.was && p.before.Allow && !v.Allow && !slices.ContainsFunc(plan.Bind, other) && !slices.Contains(plan.Rejudge, at) {
		return fmt.Errorf("%v packet %+v was allowed and is denied, but its flows are not judged again", at, p.pkt)
	}
	return nil
}

// known is the verdict with the rules of want in the places of those of which a restarted compiler knows but the text: a
// table that it made again while nobody wanted its policy has those.
func known(v, want model.Verdict) model.Verdict {
	ids := func(have, want []model.RuleID) {
		for i := range min(len(have), len(want)) {
			if have[i].Point == 0 && have[i].Tier == NameText(want[i].String()) {
				have[i] = want[i]
			}
		}
	}
	by := []model.RuleID{v.By}
	ids(by, []model.RuleID{want.By})
	ids(v.Passed, want.Passed)
	ids(v.Logged, want.Logged)
	v.By = by[0]
	return v
}

func drawProbes(t *rapid.T, k *kernel, h history, now *cluster) (all []probe) {
	ids := map[model.EndpointID]*model.EndpointPolicy{}
	for _, c := range append(slices.Clone(h.policies), now) {
		maps.Copy(ids, c.endpoints)
	}
	for _, id := range slices.SortedFunc(maps.Keys(ids), model.EndpointID.Compare) {
		for d := range model.Egress + 1 {
			for range 3 {
				pkt, ok := packetAt(t, ids[id], d)
				if !ok {
					continue
				}
				p, err := newProbe(k, h, now, id, d, pkt)
				if err != nil {
					t.Fatalf("before the first write: %v", err)
				}
				all = append(all, p)
			}
		}
	}
	return all
}

// packetAt draws a packet between an endpoint and someone else.
func packetAt(t *rapid.T, e *model.EndpointPolicy, d model.Direction) (model.Packet, bool) {
	if len(e.Addrs) == 0 {
		return model.Packet{}, false
	}
	own := rapid.SampledFrom(e.Addrs).Draw(t, "own")
	others := slices.DeleteFunc(slices.Clone(everyone), func(a netip.Addr) bool {
		return a.Is4() != own.Is4() || slices.Contains(e.Addrs, a)
	})
	pkt := policytest.DrawPacket(t, &policytest.World{Own: []netip.Addr{policytest.Own4, policytest.Own6}}, d)
	remote := rapid.SampledFrom(others).Draw(t, "other")
	pkt.ICMPType, pkt.ICMPCode = 0, 0
	pkt.Src, pkt.Dst = remote, own
	if d == model.Egress {
		pkt.Src, pkt.Dst = own, remote
	}
	return pkt, true
}

// run carries out a plan write by write, all of it or up to a crash, and checks every step.
// all has what was bound and judged again since the probes were made.
func run(t *rapid.T, k *kernel, plan, all Plan, probes []probe, crash bool) (done bool) {
	writes := k.writes(plan)
	stop := len(writes)
	if crash {
		stop = rapid.IntRange(0, len(writes)).Draw(t, "crash")
	}
	for i, w := range writes[:stop] {
		w.do()
		for j := range probes {
			if err := probes[j].check(k); err != nil {
				t.Fatalf("after write %d (%s): %v\nall: %v", i, w.what, err, texts(writes))
			}
		}
	}
	if stop < len(writes) {
		return false
	}
	if k.more(plan) {
		return true
	}
	for j := range probes {
		if err := probes[j].checkFinal(k, all); err != nil {
			t.Fatalf("%v\nall: %v", err, texts(writes))
		}
	}
	if err := k.garbage(); err != nil {
		t.Fatalf("DBG %v %v\nall: %v", k.unrecorded, err, texts(writes))
	}
	return true
}

func texts(writes []write) (out string) {
	for i, w := range writes {
		out += fmt.Sprintf("\n%3d %s", i, w.what)
	}
	return out
}

func checkEntries(t *rapid.T, k *kernel, now *cluster) {
	owner := map[netip.Addr]model.EndpointID{}
	for _, id := range slices.SortedFunc(maps.Keys(now.endpoints), model.EndpointID.Compare) {
		for _, a := range now.endpoints[id].Addrs {
			if _, taken := owner[a]; !taken {
				owner[a] = id
			}
		}
	}
	for _, a := range everyone {
		got := k.addrs.Lookup(a)
		var want classes.Marks
		id, own := owner[a]
		if own {
			want |= classes.MarkEndpoint
		}
		if slices.Contains(now.services, host(a)) {
			want |= classes.MarkService
		}
		if slices.Contains(now.nodes, host(a)) {
			want |= classes.MarkNode
		}
		if got.Flags != want.Flags() || got.Endpoint != id {
			t.Fatalf("entry of %v is %+v; want flags %v, endpoint %v", a, got, want.Flags(), id)
		}
	}
}

func TestEveryWriteOfAPlanLeavesEveryPacketWithAnOldOrANewVerdict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { testHistory(t, 0) })
}

func TestARestartAnywhereInAPlanGoesOnWithoutAWrongVerdict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { testHistory(t, 2) })
}

// testHistory takes a kernel through random states. One in restarts rounds is cut short, or ends, with a restart.
func testHistory(t *rapid.T, restarts int) {
	o := Options{Limits: table.Limits{
		Interpret: rapid.IntRange(0, 7).Draw(t, "interpret") == 0,
		Open:      rapid.SampledFrom([]int{0, 1, 2, 3}).Draw(t, "open"),
		Make:      rapid.SampledFrom([]int{0, 1, 100, 3000}).Draw(t, "make"),
	}}
	inside := rapid.SampledFrom([]int{mostInside, 0, 1}).Draw(t, "inside")
	atOnce := rapid.SampledFrom([]int{mostAtOnce, 0, 1}).Draw(t, "at once")
	pool, k, c := drawPool(t), newKernel(), New(o, nil)
	c.sets.inner, c.sets.atOnce = inside, atOnce
	var old *cluster // the state of the changes before
	now := newCluster()
	for i := range 6 {
		now.sets[model.SetID(fmt.Sprint("s", i))] = drawMembers(t)
	}
	h := history{policies: []*cluster{now}, sets: []*cluster{now}}
	for range rapid.IntRange(3, 12).Draw(t, "rounds") {
		now = now.clone()
		if old != nil || rapid.Bool().Draw(t, "changed meanwhile") {
			now.mutate(t, pool)
		}
		plan := c.Update(now.changes(old))
		k.takeOver(now.ifaces())
		restart := restarts > 0 && rapid.IntRange(1, restarts).Draw(t, "restart") == 1
		h.known = old
		probes := drawProbes(t, k, h, now)
		done, all := true, plan
		next := rapid.IntRange(0, 3).Draw(t, "next") == 0 // changes come before all parts are written
		for k.more(plan) && done && !(next && rapid.Bool().Draw(t, "now")) {
			crash := restart && rapid.Bool().Draw(t, "early")
			if done = run(t, k, plan, all, probes, crash); done {
				plan = c.Update(model.Changes{InSync: true})
				all.Bind, all.Rejudge = append(all.Bind, plan.Bind...), append(all.Rejudge, plan.Rejudge...)
			}
		}
		if done && run(t, k, plan, all, probes, restart) && !k.more(plan) {
			checkEntries(t, k, now)
			checkShadows(t, k, now, probes)
			h = history{known: old}
		}
		old = now
		h.policies, h.sets = append(h.policies, now), append(h.sets, now)
		for _, s := range h.sets[:len(h.sets)-1] {
			h.sets = append(h.sets, h.after(s, now))
		}
		if restart {
			old = nil
			c.Close()
			if !o.Limits.Interpret && rapid.Bool().Draw(t, "unrecorded") { // no table that is walked comes beside such classes
				k.forgetClasses(func(uint32) bool { return rapid.Bool().Draw(t, "this class") })
			}
			c = New(o, k.snapshot(rapid.Bool().Draw(t, "stand-ins")))
			c.sets.inner, c.sets.atOnce = inside, atOnce
		}
	}
}
