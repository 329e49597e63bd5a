package bpf

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
)

// allowAll plays somebody who alters a published policy.
func allowAll(t *testing.T, n *node, slot uint32) {
	t.Helper()
	var id ebpf.MapID
	if err := n.kernel.maps.Map(bpf.MargayMapOutcomes).Lookup(&slot, &id); err != nil {
		t.Fatal(err)
	}
	outcomes, err := ebpf.NewMapFromID(id)
	if err != nil {
		t.Fatal(err)
	}
	defer outcomes.Close()
	for i := range outcomes.MaxEntries() {
		if err := outcomes.Put(i, bpf.Outcome{Action: bpf.RuleAllow}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAPolicyOfAnEarlierAgentThatIsAlteredIsRepaired: this agent never published it, and finds the change all the same.
func TestAPolicyOfAnEarlierAgentThatIsAlteredIsRepaired(t *testing.T) {
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	first := openNode(t, dir, nil)
	first.mustApply(t, restartStages[0].updates()...)
	mustClose(t, first.BPF)
	n := openNode(t, dir, nil)
	defer mustClose(t, n.BPF)
	n.mustApply(t, restartStages[0].updates()...)
	before, _ := n.Kernel(tortureA)
	slot, _ := bpfmaps.SplitPolicyWord(before.Ingress)
	allowAll(t, n, slot)
	if !passes(t, n.BPF, "10.0.0.2", 80) {
		t.Fatal("the damage has no effect: the test tests nothing")
	}
	n.Resync()
	n.mustApply(t)
	if passes(t, n.BPF, "10.0.0.2", 80) || !passes(t, n.BPF, "10.0.0.1", 80) {
		t.Error("the policy is not repaired")
	}
	if after, _ := n.Kernel(tortureA); uint32(after.Ingress) == uint32(before.Ingress) {
		t.Error("flows that were judged meanwhile are not judged again")
	}
}

// TestManyPublishedPoliciesAreComparedInParts: changes come in between. Each policy that was altered is repaired, in whatever part it is.
func TestManyPublishedPoliciesAreComparedInParts(t *testing.T) {
	testutil.Privileged(t)
	n := openNode(t, testutil.BPFFS(t), nil)
	defer mustClose(t, n.BPF)
	n.mustApply(t, restartStages[0].updates()...)
	n.mustApply(t, crowd(3, false)...)
	n.state.tables.atOnce = 1 // one slot
	slots := n.state.tables.slots.Live()
	if len(slots) < 3 {
		t.Fatalf("slots %v are in use: the test tests nothing", slots)
	}
	for _, slot := range slots {
		allowAll(t, n, slot)
	}
	n.Resync()
	n.mustApply(t)
	if got := n.Stats(false).Repairs; got != 1 || !n.Unfinished() {
		t.Errorf("%d repairs, want one, and more is to follow: %t", got, n.Unfinished())
	}
	stage := restartStages[0]
	stage.ports = []uint16{443}
	n.mustApply(t, stage.updates()...)
	if !n.Unfinished() || passes(t, n.BPF, "10.0.0.1", 80) || !passes(t, n.BPF, "10.0.0.1", 443) {
		t.Error("a change waits until all policies are compared")
	}
	for parts := 2; n.Unfinished(); parts++ {
		if parts > len(slots) {
			t.Fatal("the comparison does not end")
		}
		n.mustApply(t)
	}
	for _, slot := range n.state.tables.slots.Live() {
		if altered, _, err := n.state.tables.slots.Altered(n.kernel.maps, []uint32{slot}, 1); len(altered) > 0 || err != nil {
			t.Errorf("slot %d is altered (%v)", slot, err)
		}
	}
}

// TestLargeMapsAreComparedInParts: changes come in between. What was altered is repaired, in whatever map it is.
func TestLargeMapsAreComparedInParts(t *testing.T) {
	testutil.Privileged(t)
	n := openNode(t, testutil.BPFFS(t), nil)
	defer mustClose(t, n.BPF)
	n.mustApply(t, append(restartStages[0].updates(), crowd(3, false)...)...)
	n.state.comparison.atOnce = 1 // one map
	maps := n.kernel.maps
	hosts, classes, names := maps.Addresses.IP4Host.Len(), maps.ClassSets.Len(), maps.Names.Endpoints.Len()
	if hosts == 0 || classes == 0 || names == 0 {
		t.Fatalf("%d addresses, %d classes, %d names: the test tests nothing", hosts, classes, names)
	}
	for _, name := range []string{bpf.MargayMapIp4Host, bpf.MargayMapClassSets, bpf.MargayMapEndpointNames} {
		removeAll(t, maps.Map(name))
	}
	if passes(t, n.BPF, "10.0.0.1", 80) {
		t.Fatal("the damage has no effect: the test tests nothing")
	}
	n.Resync()
	n.mustApply(t)
	if got := n.Stats(false).Repairs; got != uint64(hosts) || !n.Unfinished() {
		t.Errorf("%d repairs, want those of %d addresses, and more is to follow: %t", got, hosts, n.Unfinished())
	}
	stage := restartStages[0]
	stage.ports = []uint16{443}
	n.mustApply(t, stage.updates()...)
	if !n.Unfinished() || passes(t, n.BPF, "10.0.0.1", 80) || !passes(t, n.BPF, "10.0.0.1", 443) {
		t.Error("a change waits until all maps are compared")
	}
	for parts := 0; n.Unfinished(); parts++ {
		if parts > 20 {
			t.Fatal("the comparison does not end")
		}
		n.mustApply(t)
	}
	if got, want := n.Stats(false).Repairs, uint64(hosts+classes+names); got != want {
		t.Errorf("%d repairs, want %d", got, want)
	}
	for _, table := range append(verdictTables(maps), n.state.names.compared()...) {
		if repairs, err := table.Resync(); repairs > 0 || err != nil {
			t.Errorf("%s: %d entries are not repaired (%v)", table.Name(), repairs, err)
		}
	}
}

// TestALargeMapIsComparedByManyApplies: an Apply reads a part of it, and one that reads the last part has the number of entries right, though
// others were written in between.
func TestALargeMapIsComparedByManyApplies(t *testing.T) {
	testutil.Privileged(t)
	n := openNode(t, testutil.BPFFS(t), map[string]uint32{"ip4_host": 1 << 15})
	defer mustClose(t, n.BPF)
	n.mustApply(t, restartStages[0].updates()...)
	hosts := n.kernel.maps.Addresses.IP4Host
	for i := range uint16(5 * partAtOnce / 2) {
		addr := netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)})
		hosts.Set(bpfmaps.IP4(addr), bpf.AddrInfo{Class: 1})
	}
	if err := hosts.Sync(); err != nil {
		t.Fatal(err)
	}
	c := comparison{atOnce: partAtOnce}
	c.begin([]mapTable{repairing[bpf.IP4, bpf.AddrInfo]{hosts}}, nil)
	applies := 0
	for ; c.unfinished() && applies < 10; applies++ {
		for _, table := range c.nextTables() {
			repairs, done, err := c.read(table)
			if repairs > 0 || err != nil {
				t.Fatalf("%d repairs (%v)", repairs, err)
			}
			if !done {
				c.putBack(table)
			}
		}
		hosts.Delete(bpfmaps.IP4(netip.AddrFrom4([4]byte{10, 9, 0, byte(applies)})))
		hosts.Set(bpfmaps.IP4(netip.AddrFrom4([4]byte{10, 8, 0, byte(applies)})), bpf.AddrInfo{Class: 1})
		if err := hosts.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if applies < 3 || applies > 4 {
		t.Errorf("%d entries were compared by %d Applies", hosts.Len(), applies)
	}
}

// removeAll plays somebody who removes the entries of a map.
func removeAll(t *testing.T, m *ebpf.Map) {
	t.Helper()
	key := make([]byte, m.KeySize())
	for err := m.NextKey(nil, &key); !errors.Is(err, ebpf.ErrKeyNotExist); err = m.NextKey(nil, &key) {
		if err := errors.Join(err, m.Delete(key)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTablesOfManyEntriesAreComparedAlone: an Apply compares as many entries as it may, in tables that are whole. A resync that begins
// meanwhile has all of them compared again, and does not put off those that are left.
func TestTablesOfManyEntriesAreComparedAlone(t *testing.T) {
	a, b, c, d := &countedTable{name: "a", entries: 5}, &countedTable{name: "b", entries: 5}, &countedTable{name: "c", entries: 100}, &countedTable{name: "d"}
	left := comparison{atOnce: 10}
	left.begin([]mapTable{a, b, c, d}, nil)
	for i, step := range []struct {
		next   string
		begins bool // after that
	}{{"ab", false}, {"c", true}, {"dab", true}, {"c", false}, {"ab", false}, {"", false}} {
		if got := tableNames(left.nextTables()); got != step.next {
			t.Errorf("step %d: %q, want %q", i, got, step.next)
		}
		if step.begins {
			left.begin([]mapTable{a, b, c}, nil)
		}
		if last := i >= 4; left.unfinished() == last {
			t.Errorf("step %d: unfinished: %t", i, !last)
		}
	}
}

type countedTable struct {
	mapTable
	name    string
	entries int
}

func (c *countedTable) Len() int { return c.entries }

func tableNames(list []mapTable) (names string) {
	for _, t := range list {
		names += t.(*countedTable).name
	}
	return names
}

// TestChangesDoNotPutTheComparisonOff: one Apply with changes does, and not two in a row.
func TestChangesDoNotPutTheComparisonOff(t *testing.T) {
	c := comparison{slots: []uint32{1}}
	for i, step := range []struct{ changed, due bool }{{false, true}, {true, false}, {false, true}, {true, false}, {true, true}, {true, false}, {true, true}, {false, true}} {
		if got := c.due(step.changed); got != step.due {
			t.Errorf("step %d: %t", i, got)
		}
	}
	if c.slots = nil; c.due(false) {
		t.Error("nothing is left to compare")
	}
}

// TestAResyncThatFailsComparesAllTheSame: a map that cannot be read does not keep published policies from being compared, nor the agent
// busy: each attempt compares another part.
func TestAResyncThatFailsComparesAllTheSame(t *testing.T) {
	testutil.Privileged(t)
	n := openNode(t, testutil.BPFFS(t), nil)
	defer mustClose(t, n.BPF)
	n.mustApply(t, append(restartStages[0].updates(), crowd(3, false)...)...)
	n.state.tables.atOnce = 1
	slots := n.state.tables.slots.Live()
	for _, slot := range slots {
		allowAll(t, n, slot)
	}
	failed := errors.New("cannot be read")
	n.kernel.maps.ClassSets.Interpose(func(k bpfmaps.Kernel[bpf.ClassChunk, bpf.SetBits]) bpfmaps.Kernel[bpf.ClassChunk, bpf.SetBits] {
		return unreadable[bpf.ClassChunk, bpf.SetBits]{k, failed}
	})
	n.Resync()
	for i := range slots {
		if err := n.apply(); !errors.Is(err, failed) || n.Unfinished() {
			t.Errorf("attempt %d: %v, and more is to follow at once: %t", i, err, n.Unfinished())
		}
	}
	if got := n.Stats(false).Repairs; got < uint64(len(slots)) {
		t.Errorf("%d repairs, want those of %d slots", got, len(slots))
	}
	if passes(t, n.BPF, "10.0.0.2", 80) {
		t.Error("the policy is not repaired")
	}
}

// TestAResyncThatFailsDoesNotHurryALargePolicy: what is left to compare waits for the next attempt, and the policy for its pace.
func TestAResyncThatFailsDoesNotHurryALargePolicy(t *testing.T) {
	testutil.Privileged(t)
	n := openNode(t, testutil.BPFFS(t), nil)
	defer mustClose(t, n.BPF)
	n.mustApply(t, restartStages[0].updates()...)
	n.kernel.maps.Addresses.IP4Host.Interpose(func(k bpfmaps.Kernel[bpf.IP4, bpf.AddrInfo]) bpfmaps.Kernel[bpf.IP4, bpf.AddrInfo] {
		return unreadable[bpf.IP4, bpf.AddrInfo]{k, errors.New("cannot be read")}
	})
	n.state.comparison.atOnce = 1
	n.Resync()
	if err := n.apply(); err == nil || n.Unfinished() || !n.state.comparison.unfinished() {
		t.Fatalf("%v, unfinished: %t: the test tests nothing", err, n.Unfinished())
	}
	n.state.plans.Plan.More = true
	n.state.pace.Interrupted()
	n.state.pace.Took(time.Second, 0)
	if rest := n.rest(); !n.Unfinished() || rest < time.Second {
		t.Errorf("the next part comes after %v", rest)
	}
}

// TestAPolicyThatIsRepairedAndCannotBePinnedIsInForce: and attempts to repair it do not add up in the kernel.
func TestAPolicyThatIsRepairedAndCannotBePinnedIsInForce(t *testing.T) {
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	n := openNode(t, dir, nil)
	defer mustClose(t, n.BPF)
	n.mustApply(t, restartStages[0].updates()...)
	slots := n.state.tables.slots
	for _, slot := range slots.Live() {
		allowAll(t, n, slot)
	}
	pinned := filepath.Join(n.kernel.maps.Dir(), "slot")
	blocked, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err := errors.Join(err, os.Rename(pinned, pinned+"gone"), blocked.Pin(pinned)); err != nil {
		t.Fatal(err)
	}
	n.Resync()
	if err := n.apply(); err == nil {
		t.Error("no error, though nothing can be pinned")
	}
	for range 3 {
		n.Resync()
		_ = n.apply() // as the first one
	}
	if passes(t, n.BPF, "10.0.0.2", 80) || !passes(t, n.BPF, "10.0.0.1", 80) {
		t.Error("the policy is not repaired")
	}
	if live, tables := len(slots.Live()), len(n.state.tables.list); live > 2*tables {
		t.Errorf("%d slots are in use for %d policies", live, tables)
	}
}

// unreadable is a map that cannot be read.
type unreadable[K, V comparable] struct {
	bpfmaps.Kernel[K, V]
	err error
}

func (u unreadable[K, V]) Read() bpfmaps.Reading[K, V]   { return u }
func (u unreadable[K, V]) Next(func(K, V)) (bool, error) { return true, u.err }
func (u unreadable[K, V]) Load() (map[K]V, error)        { return nil, u.err }
