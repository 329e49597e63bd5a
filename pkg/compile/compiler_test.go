package compile

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/model"
)

// cluster is a desired state, as the calculation graph would hold it.
type cluster struct {
	sets      map[model.SetID][]netip.Prefix // all there are, whether a rule refers to them or not
	endpoints map[model.EndpointID]*model.EndpointPolicy
	services  []netip.Prefix
	nodes     []netip.Prefix
}

func newCluster() *cluster {
	return &cluster{sets: map[model.SetID][]netip.Prefix{}, endpoints: map[model.EndpointID]*model.EndpointPolicy{}}
}

func (c *cluster) clone() *cluster {
	return &cluster{maps.Clone(c.sets), maps.Clone(c.endpoints), slices.Clone(c.services), slices.Clone(c.nodes)}
}

// active returns the sets that rules refer to, and the reserved ones.
func (c *cluster) active() map[model.SetID][]netip.Prefix {
	in := map[model.SetID][]netip.Prefix{}
	for _, e := range c.endpoints {
		for _, p := range []*model.DirectionPolicy{e.Ingress, e.Egress} {
			eachSide(p, func(s *model.Side) {
				for _, id := range setsOf(s) {
					in[id] = c.sets[id]
				}
			})
		}
	}
	if c.services != nil {
		in[model.SetServiceAddrs] = c.services
	}
	if c.nodes != nil {
		in[model.SetNodeAddrs] = c.nodes
	}
	return in
}

func eachSide(p *model.DirectionPolicy, f func(*model.Side)) {
	each := func(policies []*model.PolicyRules) {
		for _, policy := range policies {
			for i := range policy.Rules {
				f(&policy.Rules[i].Source)
				f(&policy.Rules[i].Destination)
			}
		}
	}
	for _, tier := range p.Tiers {
		each(tier.Policies)
	}
	each(p.Profiles)
}

func setsOf(s *model.Side) []model.SetID {
	all := slices.Concat(s.In, s.NotIn)
	for _, m := range []*model.PortMatch{s.Ports, s.NotPorts} {
		if m != nil {
			for _, n := range m.Named {
				all = append(all, n.Set)
			}
		}
	}
	return all
}

// changes returns the difference from an older state; from nil: everything.
func (c *cluster) changes(old *cluster) model.Changes {
	if old == nil {
		old = newCluster()
	}
	ch := model.Changes{
		Endpoints: map[model.EndpointID]*model.EndpointPolicy{}, Sets: map[model.SetID]*model.SetChange{}, InSync: true,
	}
	for id, e := range c.endpoints {
		if old.endpoints[id] != e {
			ch.Endpoints[id] = e
		}
	}
	for id := range old.endpoints {
		if c.endpoints[id] == nil {
			ch.Endpoints[id] = nil
		}
	}
	before, now := old.active(), c.active()
	for id := range before {
		if _, ok := now[id]; !ok {
			ch.Sets[id] = nil
		}
	}
	for id, members := range now {
		was, ok := before[id]
		s := &model.SetChange{Added: without(members, was), Removed: without(was, members)}
		if !ok || len(s.Added)+len(s.Removed) > 0 {
			ch.Sets[id] = s
		}
	}
	return ch
}

// without returns the distinct elements of a that are not in b.
func without(a, b []netip.Prefix) (out []netip.Prefix) {
	for _, p := range a {
		if !slices.Contains(b, p) && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// history is what may be in force at one time: policies as of some states, with sets as of some states.
type history struct {
	policies []*cluster
	sets     []*cluster
}

// together is a world in which the endpoint's own addresses are members as in one state and all others as in another.
func together(e *model.EndpointPolicy, own, rest *cluster) *world {
	w := &world{sets: map[model.SetID][]netip.Prefix{}, own: e.Addrs}
	local, remote := &world{sets: own.sets}, &world{sets: rest.sets}
	for id := range own.sets {
		for _, a := range everyone {
			from := remote
			if slices.Contains(e.Addrs, a) {
				from = local
			}
			if from.has(id, a) {
				w.sets[id] = append(w.sets[id], host(a))
			}
		}
	}
	return w
}

// after returns the sets of new, and of old those that no rule of new refers to: they stay as they are until they go.
func after(old, new *cluster) *cluster {
	both := new.clone()
	active := new.active()
	for id := range both.sets {
		if _, ok := active[id]; !ok {
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
			for _, s := range []*cluster{sets, after(sets, now)} {
				p.allowed = append(p.allowed, together(e, was, s).verdict(policyOf(e, d), pkt))
			}
		}
	}
	e := now.endpoints[id]
	p.unbound = !p.was || e == nil
	if e != nil {
		v := truncated(together(e, now, now).verdict(policyOf(e, d), pkt))
		p.final = &v
		p.allowed = append(p.allowed, v)
	}
	return p, nil
}

func (p *probe) check(k *kernel) error {
	v, bound, err := k.judge(p.id, p.d, p.pkt)
	switch {
	case err != nil:
		return err
	case !bound && !p.unbound:
		return fmt.Errorf("%v %v is not bound", p.id, p.d)
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
	if d := cmp.Diff(*p.final, v); d != "" {
		return fmt.Errorf("%v %v packet %+v: wrong verdict in the end (-want +got):\n%s", p.id, p.d, p.pkt, d)
	}
	other := func(b Binding) bool { return b.Endpoint.ID == p.id }
	at := EndpointDirection{p.id, p.d}
	if p.was && p.before.Allow && !v.Allow && !slices.ContainsFunc(plan.Bind, other) && !slices.Contains(plan.Rejudge, at) {
		return fmt.Errorf("%v packet %+v was allowed and is denied, but its flows are not judged again", at, p.pkt)
	}
	return nil
}

var everyone = append(slices.Clone(remotes), addrs("10.0.0.1", "fd00::1", "10.0.0.11", "fd00::11", "10.0.0.12", "fd00::12")...)

// mutate changes the state at random. Policies are drawn from the pool or anew.
func (c *cluster) mutate(t *rapid.T, pool []*model.DirectionPolicy) {
	for range rapid.IntRange(1, 4).Draw(t, "mutations") {
		switch rapid.IntRange(0, 5).Draw(t, "mutation") {
		case 0, 1, 2:
			id := genSet.Draw(t, "set")
			c.sets[id] = drawMembers(t)
		case 3, 4:
			c.mutateEndpoint(t, pool)
		case 5:
			c.services, c.nodes = drawHosts(t, "services"), drawHosts(t, "nodes")
		}
	}
}

func drawMembers(t *rapid.T) []netip.Prefix {
	return drawSome(t, "members", 1, 6, rapid.Custom(func(t *rapid.T) netip.Prefix {
		if rapid.IntRange(1, 4).Draw(t, "net") == 1 {
			return rapid.SampledFrom(cidrs).Draw(t, "cidr")
		}
		return host(rapid.SampledFrom(everyone).Draw(t, "member"))
	}))
}

func drawHosts(t *rapid.T, label string) []netip.Prefix {
	return drawSome(t, label, 2, 3, rapid.Map(rapid.SampledFrom(everyone), host))
}

func (c *cluster) mutateEndpoint(t *rapid.T, pool []*model.DirectionPolicy) {
	n := rapid.IntRange(0, 2).Draw(t, "endpoint")
	id := model.EndpointID{Namespace: "ns", Name: fmt.Sprint("pod", n)}
	if c.endpoints[id] != nil && rapid.IntRange(0, 3).Draw(t, "leaves") == 0 {
		delete(c.endpoints, id)
		return
	}
	e := &model.EndpointPolicy{ID: id, Iface: fmt.Sprint("cali", n)}
	e.Addrs = addrs([][]string{{"10.0.0.1", "fd00::1"}, {"10.0.0.11", "fd00::11"}, {"10.0.0.12"}, {"fd00::12"}}[rapid.IntRange(n, n+1).Draw(t, "addrs")]...)
	of := func(d model.Direction) *model.DirectionPolicy {
		if old := c.endpoints[id]; old != nil && rapid.Bool().Draw(t, "keep") {
			return policyOf(old, d)
		}
		return rapid.SampledFrom(slices.DeleteFunc(slices.Clone(pool), func(p *model.DirectionPolicy) bool {
			return p.Direction != d
		})).Draw(t, "policy")
	}
	e.Ingress, e.Egress = of(model.Ingress), of(model.Egress)
	c.endpoints[id] = e
}

func drawPool(t *rapid.T) (pool []*model.DirectionPolicy) {
	for i := range 6 {
		p := drawPolicy(t)
		p.Direction = model.Direction(i % 2)
		pool = append(pool, p)
	}
	return pool
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
	own := rapid.SampledFrom(e.Addrs).Draw(t, "own")
	others := slices.DeleteFunc(slices.Clone(everyone), func(a netip.Addr) bool {
		return a.Is4() != own.Is4() || slices.Contains(e.Addrs, a)
	})
	pkt := drawPacket(t, &world{own: []netip.Addr{own4, own6}}, d)
	remote := rapid.SampledFrom(others).Draw(t, "other")
	pkt.ICMPType, pkt.ICMPCode = 0, 0
	pkt.Src, pkt.Dst = remote, own
	if d == model.Egress {
		pkt.Src, pkt.Dst = own, remote
	}
	return pkt, true
}

// run carries out a plan write by write, all of it or up to a crash, and checks every step.
func run(t *rapid.T, k *kernel, plan Plan, probes []probe, crash bool) (done bool) {
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
	for j := range probes {
		if err := probes[j].checkFinal(k, plan); err != nil {
			t.Fatalf("%v\nall: %v", err, texts(writes))
		}
	}
	if err := k.garbage(); err != nil {
		t.Fatalf("%v\nall: %v", err, texts(writes))
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
		got := k.addrs.lookup(a)
		var want marks
		id, own := owner[a]
		if own {
			want |= markEndpoint
		}
		if slices.Contains(now.services, host(a)) {
			want |= markService
		}
		if slices.Contains(now.nodes, host(a)) {
			want |= markNode
		}
		if got.Flags != want.flags() || got.Endpoint != id {
			t.Fatalf("entry of %v is %+v; want flags %v, endpoint %v", a, got, want.flags(), id)
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
	o := Options{Limits{Interpret: rapid.IntRange(0, 7).Draw(t, "interpret") == 0}}
	pool, k, c := drawPool(t), newKernel(), New(o, nil)
	var old *cluster // what the compiler was told last
	now := newCluster()
	for i := range 6 {
		now.sets[model.SetID(fmt.Sprint("s", i))] = nil
	}
	h := history{policies: []*cluster{now}, sets: []*cluster{now}}
	for range rapid.IntRange(2, 6).Draw(t, "rounds") {
		now = now.clone()
		now.mutate(t, pool)
		plan := c.Update(now.changes(old))
		ifaces := map[string]model.EndpointID{}
		for id, e := range now.endpoints {
			ifaces[e.Iface] = id
		}
		k.takeOver(ifaces)
		restart := restarts > 0 && rapid.IntRange(1, restarts).Draw(t, "restart") == 1
		if run(t, k, plan, drawProbes(t, k, h, now), restart) {
			checkEntries(t, k, now)
			h = history{}
		}
		old = now
		h.policies, h.sets = append(h.policies, now), append(h.sets, now)
		for _, s := range h.sets[:len(h.sets)-1] {
			h.sets = append(h.sets, after(s, now))
		}
		if restart {
			old = nil
			c = New(o, k.snapshot(rapid.Bool().Draw(t, "stand-ins")))
		}
	}
}

func endpointPolicy(name string, ingress, egress *model.DirectionPolicy, own ...string) *model.EndpointPolicy {
	return &model.EndpointPolicy{
		ID: model.EndpointID{Namespace: "ns", Name: name}, Iface: "cali" + name, Addrs: addrs(own...), Ingress: ingress, Egress: egress,
	}
}

func policyOfRules(d model.Direction, rules ...model.MatchRule) *model.DirectionPolicy {
	for i := range rules {
		rules[i].Index = i
	}
	key := model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "p"}
	return &model.DirectionPolicy{Direction: d, Tiers: []model.TierPolicy{{
		Name: "default", Default: model.Deny, Policies: []*model.PolicyRules{{Key: key, Rules: rules}},
	}}}
}

var _ = bpf.AddrHost
