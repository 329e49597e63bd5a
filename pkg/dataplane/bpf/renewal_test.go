package bpf

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/dataplane/plans"
	"github.com/margay-project/margay/pkg/model"
)

// TestNoFlowPassesByAGenerationThatIsHandedOutAgain: flows that nothing allows have every generation that is about to be handed out
// again. A flow that policy allows goes on.
func TestNoFlowPassesByAGenerationThatIsHandedOutAgain(t *testing.T) {
	testutil.Privileged(t)
	w := newTorture(t)
	program, err := w.dp.Programs().Get(bpf.MargayProgToPod)
	if err != nil {
		t.Fatal(err)
	}
	passes := func(src string, l4 testutil.Layer4) bool {
		ret, err := program.Run(&ebpf.RunOptions{Context: &skbContext{IngressIfindex: 2}, Data: testutil.FromTo(src, "10.0.0.10", l4).Bytes()})
		if err != nil {
			t.Fatal(err)
		}
		return int32(ret) == -1
	}
	segment := testutil.TCP{SrcPort: 1000, DstPort: 80, Flags: testutil.ACK}
	if !passes("10.0.0.1", testutil.TCP{SrcPort: 1000, DstPort: 80, Flags: testutil.SYN}) || !passes("10.0.0.1", segment) {
		t.Fatal("a flow that policy allows does not pass")
	}
	const flows = 60
	for i := range uint16(flows) {
		flow := bpfmaps.NewFlow(netip.AddrPortFrom(netip.MustParseAddr("10.0.0.2"), 2000+i), netip.MustParseAddrPort("10.0.0.10:80"), 17,
			bpf.CtEntry{Seen: 1, L4: 80, Ingress: uint32(i), ResponderIf: loopback})
		key := bpf.Ct4Key{A: flow.A.Addr().As4(), B: flow.B.Addr().As4(), Pa: flow.A.Port(), Pb: flow.B.Port(), Proto: flow.Proto}
		if err := w.dp.kernel.maps.Map(bpf.MargayMapCt4).Put(key, flow.Entry); err != nil {
			t.Fatal(err)
		}
	}
	for uint32(w.ingress(t)) < flows {
		w.flip(t, 0)
	}
	w.dp.kernel.gens.BeginAgainAfter(flows - 1)
	tried := 0
	for change := 1; change < 12; change++ {
		w.change(t, change)
		gen := uint32(w.ingress(t))
		if change > 1 && gen >= flows {
			break
		}
		tried++
		if passes("10.0.0.2", testutil.UDP{SrcPort: 2000 + uint16(gen), DstPort: 80}) {
			t.Errorf("a flow that no policy has allowed passes under generation %d, its stamp", gen)
		}
		if !passes("10.0.0.1", segment) {
			t.Errorf("a flow that policy allows is cut under generation %d", gen)
		}
	}
	if tried < 3 {
		t.Errorf("%d generations were in force: the test tests nothing", tried)
	}
}

// ingress is the word of the ingress policy of endpoint a.
func (w *torture) ingress(t *testing.T) uint64 {
	t.Helper()
	e, ok := w.dp.kernel.endpoints.Get(loopback)
	if !ok {
		t.Fatal("the endpoint of the loopback interface is gone")
	}
	return e.Ingress
}

// A generation that is desired and not in force is another policy's than the one that is.
func TestADesiredGenerationGetsANumberOfItsOwn(t *testing.T) {
	n := startNode(t, restartStages[0])
	ep := n.state.endpoints.roster.bound[tortureA]
	var err error
	if ep.gens[model.Ingress], err = n.kernel.gens.Next(); err != nil {
		t.Fatal(err)
	}
	n.kernel.gens.BeginAgainAfter(0)
	n.state.renewal.run(n.programs, n.state.tables.slots)
	e, ok := n.kernel.endpoints.Get(1000)
	if !ok || uint32(e.Ingress) == ep.gens[model.Ingress] || uint32(e.Egress) != ep.gens[model.Egress] || e.Id != ep.number {
		t.Errorf("in force are %d, %d of number %d (%v), desired are %v of %d; want another ingress, and the same egress and number",
			uint32(e.Ingress), uint32(e.Egress), e.Id, ok, ep.gens, ep.number)
	}
	if e.Id >= uint32(e.Ingress) || e.Id >= uint32(e.Egress) || e.Id >= ep.gens[model.Ingress] {
		t.Errorf("number %d is not before generations %d, %d and %d", e.Id, uint32(e.Ingress), uint32(e.Egress), ep.gens[model.Ingress])
	}
}

// What cannot be replaced leaves everything as it is, and does not keep plans from being carried out.
func TestPlansGoOnWhileGenerationsCannotBeginAgain(t *testing.T) {
	n := startNode(t, restartStages[0])
	clock := time.Unix(0, 0)
	n.state.renewal.retry = plans.NewBackoff(func() time.Time { return clock })
	n.kernel.gens.BeginAgainAfter(1)
	wait := &failingWait{n.state.tables.slots, 0}
	n.state.tables.slots = wait
	before, _ := n.kernel.gens.Use()
	for _, port := range []uint16{443, 22, 80} {
		n.mustApply(t, stage{role: "friend", allow: []string{"friend"}, ports: []uint16{port}}.updates()...)
		if !passes(t, n.BPF, "10.0.0.1", port) {
			t.Errorf("port %d is not allowed: the change has no effect", port)
		}
	}
	if now, _ := n.kernel.gens.Use(); now <= before {
		t.Errorf("%d generations are handed out after %d: they have begun again", now, before)
	}
	if wait.in != -1 {
		t.Errorf("it was tried %d times before it was due again", -wait.in)
	}
	clock = clock.Add(time.Minute)
	n.mustApply(t)
	if n.kernel.gens.BeginAgainAfter(1000); n.kernel.gens.Exhausted() {
		t.Error("generations did not begin again when it was due")
	}
	if !passes(t, n.BPF, "10.0.0.1", 80) {
		t.Error("policy is not in force afterwards")
	}
}

// failingWait is slots where one of the next waits for packets fails.
type failingWait struct {
	slots
	in int // waits before it
}

func (f *failingWait) Quiesce() <-chan error {
	f.in--
	if f.in != -1 {
		return f.slots.Quiesce()
	}
	done := make(chan error, 1)
	done <- errors.New("no")
	return done
}

// stamped are random plans, and flows that are stamped under what each of them puts in force.
type stamped struct {
	*node
	random  *rand.Rand
	clock   time.Time
	stage   stage
	names   [3]string // of the endpoints of calia, cali0 and cali1
	addrs   [3]byte   // and the end of their addresses
	born    int
	planted map[uint16]permission
	begun   int // how often generations began again
}

// permission is what a flow was stamped for.
type permission struct {
	endpoint string // with its address
	dir      model.Direction
	allowed  uint8 // by ingress policy; all endpoints have the same
	number   uint32
}

// change makes a random change of the datastore.
func (s *stamped) change() []model.Update {
	var updates []model.Update
	i := s.random.IntN(3)
	switch s.random.IntN(5) {
	case 0: // an heir
		updates = append(updates, model.EndpointUpdate{ID: model.WorkloadID("t", s.names[i])})
		s.born++
		s.names[i] = fmt.Sprintf("e%d", s.born)
	case 1: // another address
		s.addrs[i] += 3
	case 2: // two exchange theirs
		s.addrs[i], s.addrs[(i+1)%3] = s.addrs[(i+1)%3], s.addrs[i]
	default:
		roles := []string{"friend", "other"}
		s.stage = stage{role: roles[s.random.IntN(2)], allow: []string{roles[s.random.IntN(2)]}, ports: []uint16{uint16(80 + s.random.IntN(3))}}
	}
	updates = append(updates, s.stage.updates()[1:]...)
	for i, iface := range []string{"calia", "cali0", "cali1"} {
		updates = append(updates, endpoint4(s.names[i], iface, netip.AddrFrom4([4]byte{10, 0, 4, s.addrs[i]}).String(), map[string]string{"app": "a"}))
	}
	return updates
}

// inForce are the permissions that stamps stand for now.
func (s *stamped) inForce(t *testing.T) (list []permission, ifindexes []uint32) {
	t.Helper()
	for i, iface := range []string{"calia", "cali0", "cali1"} {
		e, ok := s.kernel.endpoints.Get(s.host.Ifaces[iface])
		if !ok {
			t.Fatalf("no endpoint is on %s", iface)
		}
		for dir, word := range [2]uint64{e.Ingress, e.Egress} {
			p := permission{endpoint: fmt.Sprint(s.names[i], " ", e.Addr4), dir: model.Direction(dir)}
			_, p.number = bpfmaps.SplitPolicyWord(word)
			if p.dir == model.Ingress {
				p.allowed = s.allowed()
			}
			list, ifindexes = append(list, p), append(ifindexes, e.Ifindex)
		}
		if _, gen := bpfmaps.SplitPolicyWord(e.Ingress); e.Id == 0 || e.Id > gen || e.Id > uint32(e.Egress) {
			t.Fatalf("%s has id %d, and generations %d and %d", iface, e.Id, gen, uint32(e.Egress))
		}
	}
	return list, ifindexes
}

// allowed has a bit for each source and port that ingress policy allows.
func (s *stamped) allowed() (bits uint8) {
	for i := range 6 {
		if s.stage.allows([]string{"10.0.0.1", "10.0.0.2"}[i%2], uint16(80+i/2)) {
			bits |= 1 << i
		}
	}
	return bits
}

// plant stamps flows with what is in force.
func (s *stamped) plant(t *testing.T) {
	t.Helper()
	list, ifindexes := s.inForce(t)
	for i, p := range list {
		entry := bpf.CtEntry{Seen: 1, L4: 80, Ingress: p.number, ResponderIf: ifindexes[i]}
		if p.dir == model.Egress {
			entry.Egress, entry.OpenerIf, entry.Ingress, entry.ResponderIf = p.number, ifindexes[i], 0, 0
		}
		port := uint16(len(s.planted))
		s.planted[port] = p
		if err := s.kernel.maps.Map(bpf.MargayMapCt4).Put(bpf.Ct4Key{Pa: port, Proto: 6}, entry); err != nil {
			t.Fatal(err)
		}
	}
}

// check fails if a flow has a stamp in force of what it was not stamped for. A policy that allows more keeps its number.
func (s *stamped) check(t *testing.T, when string) {
	t.Helper()
	list, _ := s.inForce(t)
	now := map[uint32]permission{}
	for _, p := range list {
		if other, twice := now[p.number]; twice {
			t.Fatalf("%s: generation %d is of %+v and of %+v", when, p.number, other, p)
		}
		now[p.number] = p
	}
	for flow, err := range s.kernel.maps.Flows.All() {
		if err != nil {
			t.Fatal(err)
		}
		stamp := flow.Entry.Ingress | flow.Entry.Egress
		was := s.planted[flow.A.Port()]
		is, current := now[stamp]
		if current && (is.endpoint != was.endpoint || is.dir != was.dir || was.allowed&^is.allowed != 0) {
			t.Fatalf("%s: flow %d was stamped for %+v and counts as allowed by %+v", when, flow.A.Port(), was, is)
		}
	}
}

// TestNoStampIsEverThatOfAnotherPolicy: whatever plans bind, readdress and judge again, wherever agents end while generations begin
// again, a stamp that is in force was put there by that direction of that endpoint under that policy.
func TestNoStampIsEverThatOfAnotherPolicy(t *testing.T) {
	testutil.Privileged(t)
	begun := 0
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed+1), func(t *testing.T) {
			dir := testutil.BPFFS(t)
			s := &stamped{random: rand.New(rand.NewPCG(seed+1, 27)), clock: time.Unix(0, 0), stage: restartStages[0], names: [3]string{"x", "y", "z"},
				addrs: [3]byte{1, 2, 3}, planted: map[uint16]permission{}}
			s.restart(t, dir)
			for round := range 50 {
				wait := &failingWait{s.state.tables.slots, s.random.IntN(8)}
				s.state.tables.slots = wait
				used, _ := s.kernel.gens.Use()
				s.clock = s.clock.Add(time.Minute)
				s.mustApply(t, s.change()...)
				s.state.tables.slots = wait.slots
				if now, _ := s.kernel.gens.Use(); now < used {
					s.begun++
				}
				s.check(t, fmt.Sprint("round ", round))
				s.plant(t)
				if s.random.IntN(8) == 0 {
					mustClose(t, s.BPF)
					s.restart(t, dir)
					s.check(t, fmt.Sprintf("round %d, after a restart", round))
				}
			}
			mustClose(t, s.BPF)
			begun += s.begun
		})
	}
	if begun < 6 {
		t.Errorf("generations began again %d times: the test tests nothing", begun)
	}
}

// restart opens the dataplane as a new agent does, and enforces what is desired.
func (s *stamped) restart(t *testing.T, dir string) {
	t.Helper()
	s.node = openNode(t, dir, nil)
	s.kernel.gens.BeginAgainAfter(30)
	s.state.renewal.retry = plans.NewBackoff(func() time.Time { return s.clock })
	s.mustApply(t, append(s.change(), model.InSync{})...)
}
