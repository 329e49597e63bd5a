package bpf

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/dataplane/plans"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// refusal is a kernel that refuses one kind of write where it concerns the tenant evil.
type refusal struct {
	n    *node
	kind string
	with error // nil: nothing is refused
	hits int
}

var refusalKinds = []string{"table", "row", "class", "address", "prefix", "name"}

func (r *refusal) says(kind string, concerns bool) error {
	if r.with == nil || r.kind != kind || !concerns {
		return nil
	}
	r.hits++
	return r.with
}

// interpose puts the refusal between a node and its kernel.
func (r *refusal) interpose() {
	m := r.n.kernel.maps
	m.Addresses.IP4Host.Interpose(func(k bpfmaps.Kernel[bpf.IP4, bpf.AddrInfo]) bpfmaps.Kernel[bpf.IP4, bpf.AddrInfo] {
		return &bpfmaps.Faulty[bpf.IP4, bpf.AddrInfo]{Kernel: k, Refuse: func(key bpf.IP4, gone bool) error {
			return r.says("address", !gone && evils(netip.AddrFrom4(key.Addr)))
		}}
	})
	m.Addresses.IP4Net.Interpose(func(k bpfmaps.Kernel[bpf.Net4, bpf.AddrInfo]) bpfmaps.Kernel[bpf.Net4, bpf.AddrInfo] {
		return &bpfmaps.Faulty[bpf.Net4, bpf.AddrInfo]{Kernel: k, Refuse: func(key bpf.Net4, gone bool) error {
			return r.says("prefix", !gone && evils(netip.AddrFrom4(key.Addr)))
		}}
	})
	m.ClassSets.Interpose(func(k bpfmaps.Kernel[bpf.ClassChunk, bpf.SetBits]) bpfmaps.Kernel[bpf.ClassChunk, bpf.SetBits] {
		return &bpfmaps.Faulty[bpf.ClassChunk, bpf.SetBits]{Kernel: k, Refuse: func(key bpf.ClassChunk, gone bool) error {
			return r.says("class", !gone && r.evilClass(key.Class))
		}}
	})
	m.Names.Sets.Interpose(func(k bpfmaps.Kernel[uint32, bpf.Name]) bpfmaps.Kernel[uint32, bpf.Name] {
		return &bpfmaps.Faulty[uint32, bpf.Name]{Kernel: k, Refuse: func(uint32, bool) error { return r.says("name", true) }}
	})
	r.n.state.tables.slots = &refusingSlots{slots: r.n.state.tables.slots, r: r}
}

// evils reports whether an address is in the tenant's rules or its own.
func evils(a netip.Addr) bool {
	return netip.MustParsePrefix("172.16.0.0/12").Contains(a) || a == netip.MustParseAddr("10.0.9.1")
}

// evilTable reports whether a table is compiled from a policy of the tenant.
func (r *refusal) evilTable(id table.ID) bool {
	return slices.ContainsFunc(r.n.state.plans.Compiler.Tables(), func(t *table.Table) bool {
		return t.ID == id && slices.ContainsFunc(t.Program.IDs, func(rule model.RuleID) bool { return rule.Policy.Namespace == "evil" })
	})
}

// evilClass reports whether a class is of addresses that only the tenant's rules know.
func (r *refusal) evilClass(id uint32) bool {
	for c := range r.n.state.plans.Compiler.Classes().All() {
		if c.ID != id {
			continue
		}
		return slices.ContainsFunc(c.Sets, func(n uint32) bool {
			return slices.ContainsFunc(r.n.state.plans.Compiler.Tables(), func(t *table.Table) bool {
				nets := t.Program.NetSets[r.n.state.names.sets[n]]
				return slices.ContainsFunc(nets, func(p netip.Prefix) bool { return evils(p.Addr()) })
			})
		})
	}
	return false
}

type refusingSlots struct {
	slots
	r *refusal
}

func (s *refusingSlots) Publish(contents []bpfmaps.SlotContent) ([]uint32, error) {
	var pass []bpfmaps.SlotContent
	var at []int
	failed := &bpfmaps.Unpublished{Causes: map[int]error{}}
	for i, c := range contents {
		if err := s.r.says("table", s.r.evilTable(table.ID(c.Shape.Classifier))); err != nil {
			failed.Causes[i] = err
			continue
		}
		pass, at = append(pass, c), append(at, i)
	}
	got, err := s.slots.Publish(pass)
	slots := make([]uint32, len(contents))
	for i, slot := range got {
		slots[at[i]] = slot
	}
	if err == nil && len(failed.Causes) > 0 {
		err = failed
	}
	return slots, err
}

func (s *refusingSlots) WriteRows(slot uint32, classes []uint32, rows []bpf.CellBlock) error {
	if err := s.refuses(slot); err != nil {
		return err
	}
	return s.slots.WriteRows(slot, classes, rows)
}

func (s *refusingSlots) PatchRows(slot uint32, list []bpfmaps.Row) error {
	if err := s.refuses(slot); err != nil {
		return err
	}
	return s.slots.PatchRows(slot, list)
}

func (s *refusingSlots) EnlargeRows(all []uint32, rows [][]bpf.CellBlock) error {
	var pass []uint32
	var passed [][]bpf.CellBlock
	var refused error
	for i, slot := range all {
		if err := s.refuses(slot); err != nil {
			refused = err
			continue
		}
		pass, passed = append(pass, slot), append(passed, rows[i])
	}
	return errors.Join(s.slots.EnlargeRows(pass, passed), refused)
}

func (s *refusingSlots) refuses(slot uint32) error {
	for id, p := range s.r.n.state.tables.list {
		if p.slot == slot {
			if err := s.r.says("row", s.r.evilTable(id)); err != nil {
				return err
			}
		}
	}
	return nil
}

// passesTo sends the first packet of a flow to an endpoint; it does not pass if the kernel has no such endpoint.
func (n *node) passesTo(t *testing.T, id model.EndpointID, src, dst string, port uint16) bool {
	t.Helper()
	entry, ok := n.Kernel(id)
	if !ok {
		return false
	}
	entry.Ifindex = loopback
	if err := n.SetKernel(entry); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.kernel.endpoints.Remove(loopback); err != nil {
			t.Fatal(err)
		}
	}()
	program, err := n.Programs().Get(bpf.MargayProgToPod)
	if err != nil {
		t.Fatal(err)
	}
	sourcePort++
	ret, err := program.Run(&ebpf.RunOptions{Context: &skbContext{IngressIfindex: 2}, Data: testutil.FromTo(src, dst,
		testutil.TCP{SrcPort: sourcePort, DstPort: port, Flags: testutil.SYN}).Bytes()})
	if err != nil {
		t.Fatal(err)
	}
	return int32(ret) == -1
}

// besieged is a node on which writes for the tenant fail, while everybody's policies change at random.
type besieged struct {
	*node
	*refusal
	random *rand.Rand
	clock  time.Time
	stage  stage
	rules  int // of the tenant's policy; 0: it has none
}

func (b *besieged) change() []model.Update {
	roles := []string{"friend", "other", "stranger"}
	ports := []uint16{80, 443, 22}
	b.stage = stage{role: roles[b.random.IntN(3)], allow: []string{roles[b.random.IntN(3)]},
		ports: []uint16{ports[b.random.IntN(3)], ports[b.random.IntN(3)]}, more: 1}
	updates := b.stage.updates()
	if b.random.IntN(2) == 0 {
		b.rules = 1 + b.random.IntN(60)
		updates = append(updates, tenantRanges(b.rules)...)
	}
	return updates
}

// tenantRanges is tenant with single addresses and ranges in turn.
func tenantRanges(rules int) []model.Update {
	updates := tenant(rules)
	policy := updates[1].(model.PolicyUpdate).Policy
	for i := range policy.Ingress {
		if i%2 == 1 {
			a := netip.AddrFrom4([4]byte{172, 17, byte(i), 0})
			policy.Ingress[i].Source.Nets = []netip.Prefix{netip.PrefixFrom(a, 24)}
		}
	}
	return updates
}

// wantOthers checks the endpoint of others against what its policy means.
func (b *besieged) wantOthers(t *testing.T, when string) {
	t.Helper()
	for _, src := range []string{"10.0.0.1", "10.0.0.2", "172.16.0.0"} {
		for _, port := range []uint16{80, 443, 22} {
			if got, want := b.passesTo(t, tortureA, src, "10.0.0.10", port), b.stage.allows(src, port); got != want {
				t.Errorf("%s: %s to port %d of a passes: %v, want %v", when, src, port, got, want)
			}
		}
	}
}

// TestWhatFailsForOneTenantConcernsNobodyElse: whatever write fails for a tenant's policies and addresses, and with
// whatever error, all others reach the state that is desired with every Apply; the tenant's pod is closed or has a policy
// that was its own; and once writes succeed everything is as it should be.
func TestWhatFailsForOneTenantConcernsNobodyElse(t *testing.T) {
	testutil.Privileged(t)
	seeds := uint64(2)
	if testing.Short() {
		seeds = 1
	}
	for _, kind := range refusalKinds {
		for seed := range seeds {
			t.Run(fmt.Sprintf("%s, seed %d", kind, seed), func(t *testing.T) {
				besiege(t, kind, rand.New(rand.NewPCG(seed, 22)))
			})
		}
	}
}

func besiege(t *testing.T, kind string, random *rand.Rand) {
	n := openNode(t, testutil.BPFFS(t), nil)
	defer mustClose(t, n.BPF)
	b := &besieged{node: n, refusal: &refusal{n: n, kind: kind}, random: random, clock: time.Unix(0, 0)}
	b.interpose()
	n.state.refusals.Retry = plans.NewBackoff(func() time.Time { return b.clock })
	if random.IntN(2) == 0 { // a first start with the fault there, or one that comes later
		b.graph.Apply(tenantRanges(20))
		n.mustApply(t, b.change()...)
	}
	for round := range 16 {
		b.with = []error{nil, unix.ENOMEM, unix.E2BIG, unix.ENOSPC}[random.IntN(4)]
		b.clock = b.clock.Add(time.Duration(random.IntN(2000)) * time.Millisecond)
		err := n.apply(b.change()...)
		if errors.Is(err, dataplane.ErrStuck) {
			t.Fatalf("round %d: %v", round, err)
		}
		if held := (*dataplane.HeldBack)(nil); err != nil && slices.Contains([]string{"table", "row", "name"}, kind) && !errors.As(err, &held) {
			t.Errorf("round %d: %v, which makes the agent unready", round, err)
		}
		if !n.host.Guarded {
			t.Fatalf("round %d: the node is not guarded", round)
		}
		b.wantOthers(t, fmt.Sprintf("round %d, refused with %v", round, b.with))
		for _, src := range []string{"172.31.0.1", "10.0.0.1", "192.0.2.1"} {
			if b.rules > 0 && b.passesTo(t, evil, src, "10.0.9.1", 80) {
				t.Errorf("round %d: %s, which no policy allows, passes to evil/m", round, src)
			}
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	b.recover(t)
}

// recover ends the fault and checks that everything is as it should be.
func (b *besieged) recover(t *testing.T) {
	b.with, b.rules = nil, 41
	b.graph.Apply(tenantRanges(b.rules))
	b.clock = b.clock.Add(time.Minute)
	for range 3 { // classes come before the addresses that have them
		if err := b.Apply(context.Background(), b.graph.Flush()); err == nil {
			break
		}
		b.clock = b.clock.Add(time.Minute)
	}
	if err := b.apply(); err != nil {
		t.Errorf("in the end: %v", err)
	}
	b.wantOthers(t, "in the end")
	for src, want := range map[string]bool{"172.16.0.0": true, "172.17.39.9": true, "172.17.41.9": false, "172.16.0.42": false} {
		if got := b.passesTo(t, evil, src, "10.0.9.1", 80); got != want {
			t.Errorf("in the end: %s to evil/m passes: %v, want %v", src, got, want)
		}
	}
	if b.state.names.Missing() != 0 || len(b.state.addresses.unwritten) != 0 || len(b.state.endpoints.closed) != 0 || b.state.plans.Failing {
		t.Errorf("left out in the end: %d names, %+v", b.state.names.Missing(), b.state.addresses.unwritten)
	}
	if live := len(b.state.tables.slots.Live()); live != len(b.state.tables.list) || len(b.state.tables.unused) != 0 {
		t.Errorf("%d slots are live for %d tables, %v wait to be released", live, len(b.state.tables.list), b.state.tables.unused)
	}
	if b.kind != "row" && b.hits == 0 {
		t.Errorf("no write was refused: the test tests nothing")
	}
	b.wantPlaces(t, "in the end", map[string]uint32{"10.0.0.10": 1000, "10.0.2.1": 1001, "10.0.9.1": 1003})
}

// An endpoint whose policy denies something to an address of which the kernel cannot be told is closed until it can.
func TestNoEndpointAllowsAnAddressThatItDeniesForWantOfAnEntry(t *testing.T) {
	testutil.Privileged(t)
	for _, kind := range []string{"address", "class"} {
		n := openNode(t, testutil.BPFFS(t), nil)
		n.state.config.Interpret, n.state.classes.walked = true, true // else a class is judged without its sets in the kernel
		r := &refusal{n: n, kind: kind}
		r.interpose()
		clock := time.Unix(0, 0)
		n.state.refusals.Retry = plans.NewBackoff(func() time.Time { return clock })
		strict := &model.Policy{Tier: model.TierDefault, Order: 1, Selector: selector.Equal("app", "b"), AppliesIngress: true,
			Ingress: []model.Rule{
				{Action: model.Deny, Source: model.Entity{Nets: []netip.Prefix{netip.MustParsePrefix("172.16.0.7/32")}}},
				{Action: model.Allow, Index: 1},
			}}
		id := model.WorkloadID("t", "b")
		updates := append(restartStages[0].updates(), endpoint4("b", "cali1", "10.0.0.11", map[string]string{"app": "b"}),
			model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "strict"}, Policy: strict})
		r.with = unix.ENOMEM
		if err := n.apply(updates...); !errors.Is(err, unix.ENOMEM) && !errors.Is(err, errNoClass) {
			t.Errorf("%s: error %v", kind, err)
		}
		if n.passesTo(t, id, "172.16.0.7", "10.0.0.11", 80) {
			t.Errorf("%s: what is denied passes, since it has no entry", kind)
		}
		if !n.passesTo(t, tortureA, "10.0.0.1", "10.0.0.10", 80) {
			t.Errorf("%s: another endpoint is closed, too", kind)
		}
		r.with = nil
		for range 2 {
			clock = clock.Add(time.Minute)
			_ = n.apply()
		}
		if err := n.apply(); err != nil {
			t.Errorf("%s: afterwards: %v", kind, err)
		}
		if n.passesTo(t, id, "172.16.0.7", "10.0.0.11", 80) || !n.passesTo(t, id, "172.16.0.8", "10.0.0.11", 80) {
			t.Errorf("%s: afterwards the policy of b is not enforced", kind)
		}
		mustClose(t, n.BPF)
	}
}
