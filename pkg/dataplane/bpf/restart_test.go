package bpf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// stage is one state of a small datastore: who may reach endpoint a on which port.
type stage struct {
	role  string // of the source at 10.0.0.1
	allow []string
	ports []uint16
	more  int // further endpoints like a
}

func (s stage) updates() []model.Update {
	tcp := model.ProtoTCP
	policy := &model.Policy{Tier: model.TierDefault, Order: 1, Selector: selector.Equal("app", "a"), AppliesIngress: true}
	for i, role := range s.allow {
		rule := model.Rule{Action: model.Allow, Index: i, Protocol: &tcp, Source: model.Entity{Selector: selector.Equal("role", role)}}
		for _, p := range s.ports {
			rule.Destination.Ports = append(rule.Destination.Ports, model.PortRange{Lo: p, Hi: p})
		}
		policy.Ingress = append(policy.Ingress, rule)
	}
	list := []model.Update{
		endpoint4("a", "calia", "10.0.0.10", map[string]string{"app": "a"}),
		endpoint4("src", "", "10.0.0.1", map[string]string{"role": s.role}),
		endpoint4("other", "", "10.0.0.2", map[string]string{"role": "other"}),
		model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "p"}, Policy: policy},
	}
	for i := range s.more {
		list = append(list, endpoint4(fmt.Sprintf("a%d", i), fmt.Sprintf("cali%d", i), fmt.Sprintf("10.0.2.%d", i+1), map[string]string{"app": "a"}))
	}
	return append(list, model.InSync{})
}

// allows says what the stage means, for the packets the test sends.
func (s stage) allows(src string, port uint16) bool {
	role := map[string]string{"10.0.0.1": s.role, "10.0.0.2": "other"}[src] // nobody else has one
	for _, r := range s.allow {
		for _, p := range s.ports {
			if r == role && p == port {
				return true
			}
		}
	}
	return false
}

func openSmall(t *testing.T, dir string, entries map[string]uint32) *BPF {
	t.Helper()
	return openSmallOn(t, NewFakeHost(), dir, entries)
}

func openSmallOn(t *testing.T, host *FakeHost, dir string, entries map[string]uint32) *BPF {
	t.Helper()
	c := dataplane.Defaults()
	c.BPFFS, c.NoShortcut, c.EventRate, c.MapSizes = dir, true, 0, map[string]uint32{bpf.MargayMapIp4Host: 512,
		bpf.MargayMapIp6Host: 64, bpf.MargayMapCt4: 2048, bpf.MargayMapCt6: 2048}
	for name, n := range entries {
		c.MapSizes[name] = n
	}
	host.Ifaces = map[string]uint32{"calia": 1000, "cali0": 1001, "cali1": 1002, "cali2": 1003}
	dp, err := OpenBPF(c, host, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return dp
}

func mustClose(t *testing.T, dp *BPF) {
	t.Helper()
	if err := dp.Close(); err != nil {
		t.Fatal(err)
	}
}

// passes sends the first packet of a flow to endpoint a, through the entry the kernel has of it.
func passes(t *testing.T, dp *BPF, src string, port uint16) bool {
	t.Helper()
	entry, ok := dp.kernel.endpoints.Get(1000)
	if !ok {
		t.Fatal("endpoint a is not in the kernel")
	}
	entry.Ifindex = loopback
	if err := dp.SetKernel(entry); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := dp.kernel.endpoints.Remove(loopback); err != nil {
			t.Fatal(err)
		}
	}()
	program, err := dp.Programs().Get(bpf.MargayProgToPod)
	if err != nil {
		t.Fatal(err)
	}
	sourcePort++
	ret, err := program.Run(&ebpf.RunOptions{Context: &skbContext{IngressIfindex: 2}, Data: testutil.FromTo(src, "10.0.0.10",
		testutil.TCP{SrcPort: sourcePort, DstPort: port, Flags: testutil.SYN}).Bytes()})
	if err != nil {
		t.Fatal(err)
	}
	return int32(ret) == -1
}

var sourcePort = uint16(20000) // every packet is a flow of its own

var restartStages = []stage{
	{role: "friend", allow: []string{"friend"}, ports: []uint16{80}},
	{role: "friend", allow: []string{"friend", "other"}, ports: []uint16{80, 443}, more: 2},
	{role: "stranger", allow: []string{"friend"}, ports: []uint16{80}, more: 1},
	{role: "other", allow: []string{"other"}, ports: []uint16{443}, more: 3},
}

// TestKilledBetweenAnyTwoSteps stops an agent after every step of carrying out a change and starts the next one on what
// it left: what the old and the new policy agree on holds all the time, and the new agent ends where it should.
func TestKilledBetweenAnyTwoSteps(t *testing.T) {
	testutil.Privileged(t)
	for i, from := range restartStages {
		to := restartStages[(i+1)%len(restartStages)]
		t.Run(fmt.Sprintf("stage %d to the next", i), func(t *testing.T) {
			for steps := range len(order) + 1 {
				killAfter(t, from, to, steps)
			}
		})
	}
}

func killAfter(t *testing.T, from, to stage, steps int) {
	dir := testutil.BPFFS(t)
	first := openSmall(t, dir, nil)
	graph := calc.New("n")
	graph.Apply(from.updates())
	if err := first.Apply(context.Background(), graph.Flush()); err != nil {
		t.Fatal(err)
	}
	graph.Apply(to.updates())
	first.state.plans.Plan, first.state.plans.Step = first.state.plans.Compiler.Update(graph.Flush()), 0
	for _, s := range order[:steps] {
		if err := s.do(first.state); err != nil {
			t.Fatalf("%s: %v", s.what, err)
		}
	}
	agreed(t, first, from, to, steps)
	mustClose(t, first)

	second := openSmall(t, dir, nil)
	agreed(t, second, from, to, steps)
	graph = calc.New("n")
	graph.Apply(to.updates())
	if err := second.Apply(context.Background(), graph.Flush()); err != nil {
		t.Fatal(err)
	}
	for _, src := range []string{"10.0.0.1", "10.0.0.2", "10.9.9.9"} {
		for _, port := range []uint16{80, 443, 22} {
			if got, want := passes(t, second, src, port), to.allows(src, port); got != want {
				t.Errorf("killed after %d steps, restarted and applied: %s to port %d passes: %v, want %v", steps, src, port, got, want)
			}
		}
	}
	if n := len(second.Endpoints()); n != 1+to.more {
		t.Errorf("killed after %d steps: %d endpoints after the restart, want %d", steps, n, 1+to.more)
	}
	mustClose(t, second)
}

// agreed checks what both stages say alike. In between, a new rule may meet an old membership, so where they differ
// nothing is said.
func agreed(t *testing.T, dp *BPF, from, to stage, steps int) {
	t.Helper()
	mixed := stage{role: to.role, allow: from.allow, ports: from.ports}
	mixed2 := stage{role: from.role, allow: to.allow, ports: to.ports}
	for _, src := range []string{"10.0.0.1", "10.0.0.2", "10.9.9.9"} {
		for _, port := range []uint16{80, 443, 22} {
			want := from.allows(src, port)
			if want != to.allows(src, port) || want != mixed.allows(src, port) || want != mixed2.allows(src, port) {
				continue
			}
			if got := passes(t, dp, src, port); got != want {
				t.Errorf("after %d steps: %s to port %d passes: %v, want %v", steps, src, port, got, want)
			}
		}
	}
}

// TestFullMapKeepsWhatIsEnforced is D-14: a write fails, what was enforced stays, the error names the map, and once
// there is room the next Apply gets to where it should be.
func TestFullMapKeepsWhatIsEnforced(t *testing.T) {
	testutil.Privileged(t)
	dp := openSmall(t, testutil.BPFFS(t), map[string]uint32{bpf.MargayMapIp4Host: 8})
	defer mustClose(t, dp)
	graph := calc.New("n")
	graph.Apply(restartStages[0].updates())
	if err := dp.Apply(context.Background(), graph.Flush()); err != nil {
		t.Fatal(err)
	}
	crowd := func(n int) (list []model.Update) {
		for i := range 30 {
			u := endpoint4(fmt.Sprintf("crowd%d", i), "", netip.AddrFrom4([4]byte{10, 0, 3, byte(i)}).String(), map[string]string{"role": "friend"})
			if i >= n {
				u.Endpoint = nil
			}
			list = append(list, u)
		}
		return list
	}
	graph.Apply(crowd(30))
	err := dp.Apply(context.Background(), graph.Flush())
	if !errors.Is(err, unix.E2BIG) || !strings.Contains(err.Error(), bpf.MargayMapIp4Host) {
		t.Fatalf("full map: error %v, want E2BIG that names the map", err)
	}
	if !passes(t, dp, "10.0.0.1", 80) || passes(t, dp, "10.0.0.2", 80) {
		t.Error("what was enforced before the failure is not enforced any more")
	}
	other := restartStages[0]
	other.ports = []uint16{443}
	graph.Apply(other.updates())
	if err := dp.Apply(context.Background(), graph.Flush()); !errors.Is(err, unix.E2BIG) || errors.Is(err, dataplane.ErrStuck) {
		t.Fatalf("error %v, want that the map is full and nothing waits", err)
	}
	if passes(t, dp, "10.0.0.1", 80) || !passes(t, dp, "10.0.0.1", 443) {
		t.Error("a policy that needs no room is not enforced")
	}
	graph.Apply(restartStages[0].updates())
	graph.Apply(crowd(2))
	if err := dp.Apply(context.Background(), graph.Flush()); err != nil {
		t.Fatalf("there is room again: %v", err)
	}
	for src, want := range map[string]bool{"10.0.0.1": true, "10.0.3.1": true, "10.0.3.2": false, "10.0.0.2": false} {
		if got := passes(t, dp, src, 80); got != want {
			t.Errorf("there is room again: %s passes: %v, want %v", src, got, want)
		}
	}
}

// TestWhichInterfacesAreReadyIsKnownBeforeTheFirstApply: those that an earlier agent has left so, and none that has come in place of one.
func TestWhichInterfacesAreReadyIsKnownBeforeTheFirstApply(t *testing.T) {
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	want := func(dp *BPF, when string, names ...string) {
		t.Helper()
		wanted := map[string]bool{}
		for _, name := range names {
			wanted[name] = true
		}
		if got := dp.Ready(); !maps.Equal(got, wanted) {
			t.Errorf("%s: ready are %v, want %v", when, got, names)
		}
	}
	first := openSmall(t, dir, nil)
	want(first, "nothing enforced")
	graph := calc.New("n")
	graph.Apply(restartStages[1].updates())
	must(t, first.Apply(t.Context(), graph.Flush()))
	want(first, "enforced", "calia", "cali0", "cali1")
	mustClose(t, first)

	second := openSmall(t, dir, nil)
	want(second, "the next agent", "calia", "cali0", "cali1")
	ifaces := second.kernel.host.(*FakeHost).Ifaces
	ifaces["calia"] = 2000
	delete(ifaces, "cali0")
	want(second, "one is another interface, one has gone", "cali1")
	mustClose(t, second)
}

// TestAfterARestartToolsSeeWhatTheEarlierAgentHasPublished: policy that does not change stays in the tables of the earlier agent.
func TestAfterARestartToolsSeeWhatTheEarlierAgentHasPublished(t *testing.T) {
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	nets := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("198.51.100.0/24")}
	ofNets := &model.Policy{Tier: model.TierDefault, Order: 2, Selector: selector.Equal("app", "a"), AppliesIngress: true,
		Ingress: []model.Rule{{Action: model.Allow, Source: model.Entity{Nets: nets}}}}
	updates := append(restartStages[0].updates(), model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "nets"}, Policy: ofNets})
	type seen struct {
		rows  []inspect.RuleRow
		rules int
		sets  map[uint32]string
	}
	see := func(n *node) seen {
		i := n.Inspector()
		counts, err := i.RuleCounts()
		if err != nil {
			t.Fatal(err)
		}
		rows, _ := i.Rules(tortureA, counts, func(model.SetID) (string, bool) { return "", false })
		s := seen{rows: rows, rules: i.Direction(tortureA, model.Ingress).Rules, sets: map[uint32]string{}}
		for num, id := range i.Sets() {
			s.sets[num], _ = i.CIDRs(id)
		}
		return s
	}
	first := openNode(t, dir, nil)
	first.mustApply(t, updates...)
	if !passes(t, first.BPF, "10.0.0.1", 80) || !passes(t, first.BPF, "192.0.2.7", 22) {
		t.Fatal("the policy is not enforced")
	}
	before := see(first)
	mustClose(t, first.BPF)
	second := openNode(t, dir, nil)
	defer mustClose(t, second.BPF)
	var names []string
	for id := range second.state.tables.list { // an endpoint whose new policy is refused keeps such a table
		for _, rule := range second.Inspector().Program(id).IDs {
			names = append(names, rule.String())
		}
	}
	for _, row := range before.rows {
		if !slices.Contains(names, row.Rule) {
			t.Errorf("before the first plan tools see the rules %q, without %s", names, row.Rule)
		}
	}
	second.mustApply(t, updates...)
	if after := see(second); before.rules < 3 || !reflect.DeepEqual(after, before) {
		t.Errorf("after the restart tools see\n%+v\nbefore it\n%+v", after, before)
	}
}
