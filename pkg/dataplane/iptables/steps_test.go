package iptables

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/ruleset"
	"github.com/margay-project/margay/pkg/ruleset/walk"
	"github.com/margay-project/margay/pkg/selector"
)

// fakeLookup answers for the sets of a fake kernel.
type fakeLookup struct{ sets *ipsets.Fake }

func (f fakeLookup) Lookup(set string, places []walk.Place, p *walk.Packet) (walk.Entry, bool, error) {
	addr := p.Addr(places[0])
	key := ipsets.Key{Prefix: netip.PrefixFrom(addr, addr.BitLen())}
	if len(places) > 1 {
		key.Interface = p.Interface(places[1])
	}
	m, ok := f.sets.Lookup(set, key)
	return walk.Entry{Mark: m.Value, Mask: m.Mask}, ok, nil
}

// walkedFlow is one flow from a source to a destination whose packets are walked through the chains, its mark with it.
type walkedFlow struct {
	from, to string // names of endpoints
	port     uint16
	mark     uint32
	last     string // what became of the last packet, where that was wrong
}

// endpointPlace is where an endpoint of the scenes below is.
type endpointPlace struct{ iface, addr string }

var places = map[string]endpointPlace{"src": {"calisrc", "10.0.0.1"}, "far": {"eth1", "10.0.9.1"}, "a": {"calia", "10.0.0.10"}, "b": {"calib", "10.0.0.11"}}

// scene is a state of policy: the roles that may reach each endpoint on the ports, on all if there are none.
type scene struct {
	roles map[string]string // of the sources
	allow map[string][]string
	ports []uint16
	open  map[string]uint16 // endpoint -> a port that all may reach but the role in deny: most classes are allowed; 0: none
	deny  map[string]string
	net   string // policy of b has a rule about it, so that classes come and go which mean nothing to a; empty: none
	far   bool   // the source elsewhere is known to be a pod
	stage bool   // there is a staged policy, which denies everything
}

func (s scene) allows(f *walkedFlow) bool {
	list := s.allow[f.to]
	role := s.roles[f.from]
	if f.from == "far" && !s.far {
		role = ""
	}
	_, selected := s.allow[f.to] // without a policy and a profile nothing is allowed
	switch {
	case !selected || role != "" && role == s.deny[f.to]:
		return false
	case s.open[f.to] == f.port:
		return true
	}
	return slices.Contains(list, role) && (len(s.ports) == 0 || slices.Contains(s.ports, f.port))
}

// becoming is the verdict about a flow's packets while this scene becomes another one; not sure: it may be either. Labels may be seen
// before the policies that change with them, which are other objects.
func (s scene) becoming(next scene, f *walkedFlow) (allowed, sure bool) {
	early := s
	early.roles, early.far = next.roles, next.far
	allowed = s.allows(f)
	return allowed, early.allows(f) == allowed && next.allows(f) == allowed
}

func (s scene) updates() []model.Update {
	list := []model.Update{
		endpointAt("src", "calisrc", places["src"].addr, map[string]string{"role": s.roles["src"]}),
		endpointAt("a", "calia", places["a"].addr, map[string]string{"app": "a"}),
		endpointAt("b", "calib", places["b"].addr, map[string]string{"app": "b"}),
		model.EndpointUpdate{ID: model.WorkloadID("t", "far")},
	}
	if s.far {
		list[3] = endpointAt("far", "", places["far"].addr, map[string]string{"role": s.roles["far"]})
	}
	out := &model.Policy{Tier: model.TierDefault, Order: 2, Selector: selector.All(), AppliesEgress: true, Egress: []model.Rule{{Action: model.Allow}}}
	list = append(list, model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "out"}, Policy: out})
	staged := model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindStagedGlobalNetworkPolicy, Name: "staged"}}
	if s.stage {
		staged.Policy = &model.Policy{Tier: model.TierDefault, Order: 0, Selector: selector.All(), AppliesIngress: true, Staged: true}
	}
	list = append(list, staged)
	for _, to := range []string{"a", "b"} {
		key := model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: to}
		allow, selected := s.allow[to]
		if !selected {
			list = append(list, model.PolicyUpdate{Key: key})
			continue
		}
		p := &model.Policy{Tier: model.TierDefault, Order: 1, Selector: selector.Equal("app", to), AppliesIngress: true}
		p.Ingress = s.ingress(to, allow)
		list = append(list, model.PolicyUpdate{Key: key, Policy: p})
	}
	return append(list, model.InSync{})
}

// ingress are the rules of an endpoint's policy.
func (s scene) ingress(to string, allow []string) (rules []model.Rule) {
	tcp := model.ProtoTCP
	add := func(action model.Action, from model.Entity, ports ...uint16) {
		rule := model.Rule{Action: action, Index: len(rules), Protocol: &tcp, Source: from}
		for _, port := range ports {
			rule.Destination.Ports = append(rule.Destination.Ports, model.PortRange{Lo: port, Hi: port})
		}
		rules = append(rules, rule)
	}
	if role := s.deny[to]; role != "" {
		add(model.Deny, model.Entity{Selector: selector.Equal("role", role)})
	}
	for _, role := range allow {
		add(model.Allow, model.Entity{Selector: selector.Equal("role", role)}, s.ports...)
	}
	if port := s.open[to]; port > 0 {
		add(model.Allow, model.Entity{}, port)
	}
	if s.net != "" && to == "b" {
		add(model.Allow, model.Entity{Nets: []netip.Prefix{netip.MustParsePrefix(s.net)}}, 22)
	}
	return rules
}

func drawScene(r *rand.Rand) scene {
	roles := []string{"friend", "other", "third"}
	s := scene{roles: map[string]string{"src": roles[r.IntN(3)], "far": roles[r.IntN(3)]}, allow: map[string][]string{}, far: r.IntN(4) > 0, stage: r.IntN(2) > 0}
	s.open, s.deny = map[string]uint16{}, map[string]string{}
	for _, to := range []string{"a", "b"} {
		if r.IntN(4) > 0 {
			s.allow[to] = roles[:r.IntN(4)]
		}
		s.open[to], s.deny[to] = []uint16{0, 80, 443}[r.IntN(3)], []string{"", "", roles[0], roles[2]}[r.IntN(4)]
	}
	s.net = []string{"", "10.0.0.0/30", "10.0.9.0/24", "0.0.0.0/0"}[r.IntN(4)]
	for _, p := range []uint16{80, 443} {
		if r.IntN(3) > 0 {
			s.ports = append(s.ports, p)
		}
	}
	return s
}

// walker walks packets through what a fake node has.
type walker struct {
	*fakeNode
	known  int // transactions that tables are made of
	tables []*walk.Table
}

// stages are the chains that a forwarded packet goes through.
func (w *walker) stages(t *testing.T) (list []walk.Stage) {
	if now := len(w.fakeNode.tables.Transactions()); now != w.known {
		w.known, w.tables = now, nil
		for _, name := range []string{"mangle", "filter"} {
			parsed, err := ruleset.Parse(w.fakeNode.tables.Save(iptables.V4, name))
			if err != nil {
				t.Fatal(err)
			}
			w.tables = append(w.tables, walk.NewTable(&parsed[0]))
		}
	}
	for _, table := range w.tables {
		list = append(list, walk.Stage{Table: table, Chain: "FORWARD"})
	}
	return list
}

// passes walks a packet of a flow, and notes what the flow is marked with. fresh: its first one.
func (w *walker) passes(t *testing.T, f *walkedFlow, fresh, answer bool) bool {
	t.Helper()
	return w.passesFrom(t, f, places[f.from], fresh, answer)
}

func (w *walker) passesFrom(t *testing.T, f *walkedFlow, from endpointPlace, fresh, answer bool) bool {
	t.Helper()
	to := places[f.to]
	p := walk.Packet{In: from.iface, Out: to.iface, Src: netip.MustParseAddr(from.addr), Dst: netip.MustParseAddr(to.addr), Protocol: 6,
		Ports: walk.Ports{Src: 40000, Dst: f.port}, TCP: walk.ACK, Connection: &walk.Connection{Protocol: 6, State: walk.Established, Mark: f.mark},
		Others: walk.Others{SrcType: "UNICAST", DstType: "UNICAST", LinkType: "unicast", BPF: func(string) bool { return false }}}
	if fresh {
		p.TCP, p.Connection.State, p.Connection.Mark = walk.SYN, walk.New, 0
	}
	if answer {
		p.In, p.Out, p.Src, p.Dst, p.Ports.Src, p.Ports.Dst = p.Out, p.In, p.Dst, p.Src, p.Ports.Dst, p.Ports.Src
		p.Connection.Reply = true
	}
	r, err := walk.Walk(w.stages(t), p, fakeLookup{w.sets})
	if err != nil {
		t.Fatal(err)
	}
	if !fresh {
		f.mark = r.ConnMark
	}
	f.last = fmt.Sprintf("%v by %v, mark %#x", r.Verdict, r.Path, r.ConnMark)
	return r.Verdict == walk.Accept
}

// No packet is judged otherwise than by the former or the new policy, between any two writes: neither the first of a flow, nor a later
// one or an answer of a flow that both allow. Packets that meet several writes on their way are for unseen.
func TestNoPacketIsJudgedByHalfAPolicy(t *testing.T) {
	changes := testutil.Number(t, "MARGAY_E2E_CHANGES", 150)
	seed := testutil.Number(t, "MARGAY_E2E_SEED", uint64(7))
	r := rand.New(rand.NewPCG(seed, 1))
	n := newFakeNode(t)
	w := &walker{fakeNode: n}
	now := drawScene(r)
	n.mustApply(t, now.updates()...)
	var flows []*walkedFlow
	for _, from := range []string{"src", "far"} {
		for _, to := range []string{"a", "b"} {
			flows = append(flows, &walkedFlow{from: from, to: to, port: 80}, &walkedFlow{from: from, to: to, port: 443})
		}
	}
	judged := 0
	for i := range changes {
		next := drawScene(r)
		probe := func(where string) {
			for _, f := range flows {
				want, sure := now.becoming(next, f)
				fresh := *f
				if got := w.passes(t, &fresh, true, false); sure && got != want {
					t.Errorf("change %d, %s: a new flow %s -> %s:%d passes: %v, want %v: %s", i, where, f.from, f.to, f.port, got, want, fresh.last)
				}
				if judged++; !want || !sure {
					continue
				}
				for _, answer := range []bool{false, true} {
					if judged++; !w.passes(t, f, false, answer) {
						t.Errorf("change %d, %s: a live flow %s -> %s:%d (answer: %v) is dropped: %s", i, where, f.from, f.to, f.port, answer, f.last)
					}
				}
			}
		}
		for _, f := range flows {
			if f.mark = 0; now.allows(f) {
				first := *f
				w.passes(t, &first, false, false)
				f.mark = first.mark
			}
		}
		n.sets.Refuse = func(set string, c ipsets.Change) error {
			probe(fmt.Sprintf("before %v is written to %s", c, set))
			return nil
		}
		n.state.world.unseen.waiting = func(context.Context) error { probe("in a wait"); return nil }
		n.mustApply(t, next.updates()...)
		n.sets.Refuse = nil
		if t.Failed() {
			t.Fatalf("seed %d: from %+v to %+v", seed, now, next)
		}
		now = next
		probe("after it")
		n.Prepare()
	}
	t.Logf("%d changes, %d packets", changes, judged)
}

// A packet from an address that is not its pod's is dropped in PREROUTING of table raw. If somebody has deleted the jump there, its source has no slot
// in FORWARD, so it opens no flow.
func TestAForeignSourceOpensNoFlow(t *testing.T) {
	n := newFakeNode(t)
	w := &walker{fakeNode: n}
	s := scene{roles: map[string]string{"src": "friend", "far": "friend"}, allow: map[string][]string{"a": {"friend"}, "b": {"friend"}}, far: true}
	n.mustApply(t, s.updates()...)
	if f := (&walkedFlow{from: "src", to: "a", port: 80}); !w.passes(t, f, true, false) {
		t.Fatalf("the pod's own address is denied: %s", f.last)
	}
	iface := places["src"].iface
	for _, addr := range []string{places["far"].addr, places["b"].addr, "10.0.0.77"} {
		f := &walkedFlow{from: "src", to: "a", port: 80}
		if w.passesFrom(t, f, endpointPlace{iface, addr}, true, false) {
			t.Errorf("a packet from %s on %s opens a flow: %s", addr, iface, f.last)
		}
	}
}
