package bpf

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

// timings notes what an dataplane.Observer is told.
type timings struct{ compiled, published int }

func (o *timings) Compiled(time.Duration)  { o.compiled++ }
func (o *timings) Published(time.Duration) { o.published++ }

func TestStatsCountEndpointsByWhetherTheyAreEnforced(t *testing.T) {
	n := startNode(t, restartStages[1]) // a, a0, a1
	counts := func() [3]int { s := n.Stats(false); return [3]int{s.Enforced, s.Waiting, s.Failed} }
	if got := counts(); got != [3]int{3, 0, 0} {
		t.Errorf("all enforced: %v", got)
	}
	n.host.Fail[1001] = errors.New("no")
	n.Resync()
	if n.apply() == nil {
		t.Fatal("attached although it failed")
	}
	if got := counts(); got != [3]int{2, 0, 1} {
		t.Errorf("one cannot be attached: %v", got)
	}
	clear(n.host.Fail)
	delete(n.host.Ifaces, "cali1")
	n.mustApply(t)
	if got := counts(); got != [3]int{2, 1, 0} {
		t.Errorf("one has no interface: %v", got)
	}
}

func TestStatsOfWhatIsInTheKernel(t *testing.T) {
	n := startNode(t, restartStages[1])
	s := n.Stats(true)
	if diff := cmp.Diff(map[uint32]model.EndpointID{1000: model.WorkloadID("t", "a"), 1001: model.WorkloadID("t", "a0"),
		1002: model.WorkloadID("t", "a1")}, s.Interfaces); diff != "" {
		t.Error(diff)
	}
	// Two roles; two rules; one table per direction.
	if s.Sets != 2 || s.Rules < 2 || s.Tables != 2 || s.LiveBytes == 0 || s.Classes < 3 || s.Unwritten != 0 || s.Repairs != 0 {
		t.Errorf("%+v", s)
	}
	use := map[string]dataplane.MapUse{}
	for _, m := range s.Maps {
		use[m.Name] = m
	}
	hosts, err := n.kernel.maps.Addresses.IP4Host.Load()
	if err != nil {
		t.Fatal(err)
	}
	if got := use[bpf.MargayMapIp4Host]; got.Entries != uint64(len(hosts)) || got.Entries < 5 || got.Max != 512 {
		t.Errorf("%+v, %d addresses in the kernel", got, len(hosts))
	}
	if got := use[bpf.MargayMapEndpoints]; got.Entries != 3 || got.Max != 69632 {
		t.Errorf("%+v", got)
	}
	if got := use[bpf.MargayMapSlots]; got.Entries != 2 || got.Max != 4096 {
		t.Errorf("%+v", got)
	}
	if n.Stats(false).Interfaces != nil {
		t.Error("interfaces that nobody asked for")
	}
}

func TestRepairsAreCounted(t *testing.T) {
	n := startNode(t, restartStages[0])
	if err := n.kernel.maps.Map(bpf.MargayMapIp4Host).Delete(bpf.IP4{Addr: [4]uint8{10, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	n.Resync()
	n.mustApply(t)
	if got := n.Stats(false).Repairs; got != 1 {
		t.Errorf("%d repairs, want 1", got)
	}
	n.host.Repaired = 2
	if got := n.Stats(false).Repairs; got != 3 {
		t.Errorf("%d repairs with 2 of attached programs, want 3", got)
	}
}

func TestObserversAreToldOfEachPlan(t *testing.T) {
	n := startNode(t, restartStages[0])
	var o timings
	n.Observe(&o)
	n.mustApply(t)
	if o.published != o.compiled || o.published > 1 {
		t.Errorf("%+v", o)
	}
	before := o.compiled
	n.mustApply(t, restartStages[1].updates()...)
	if o.compiled <= before || o.published != o.compiled {
		t.Errorf("%+v after a change, before it %d", o, before)
	}
}

// putDrops puts what programs have counted, on the first CPU.
func putDrops(t *testing.T, n *node, key bpf.DropKey, packets uint64) {
	t.Helper()
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	perCPU := make([]bpf.Counter, cpus)
	perCPU[0] = bpf.Counter{Packets: packets, Bytes: 100 * packets}
	if err := n.kernel.maps.Map(bpf.MargayMapDrops).Put(&key, perCPU); err != nil {
		t.Fatal(err)
	}
}

func TestCountsOfDropsNeverFall(t *testing.T) {
	n := startNode(t, restartStages[0])
	one, other := bpf.DropKey{Ifindex: 1000, Reason: 1, ToPod: 1}, bpf.DropKey{Ifindex: 1001, Reason: 1, ToPod: 1}
	putDrops(t, n, one, 50)
	c := newCounters(n.kernel.maps, time.Now)
	policy := func() uint64 {
		t.Helper()
		k, err := c.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(k.Drops) != 2*(bpf.Reasons()-1) {
			t.Errorf("%d counts", len(k.Drops))
		}
		for _, d := range k.Drops {
			if d.Reason == "policy" && d.Direction == model.Ingress {
				if d.Bytes != 100*d.Packets {
					t.Errorf("%+v", d)
				}
				return d.Packets
			}
		}
		t.Fatal("no drops by policy")
		return 0
	}
	steps := []struct {
		what string
		do   func()
		want uint64
	}{
		{"before the reader was made", func() {}, 0},
		{"more at one interface", func() { putDrops(t, n, one, 57) }, 7},
		{"another one", func() { putDrops(t, n, other, 10) }, 17},
		{"an interface goes", func() {
			if err := n.kernel.maps.Drops.Forget(1000); err != nil {
				t.Fatal(err)
			}
		}, 17},
		{"its number comes again", func() { putDrops(t, n, one, 3) }, 20},
		{"it went and came between two reads", func() { putDrops(t, n, one, 1) }, 21},
	}
	for _, step := range steps {
		step.do()
		if got := policy(); got != step.want {
			t.Errorf("%s: %d packets, want %d", step.what, got, step.want)
		}
	}
	k, err := c.Read(t.Context())
	want := []dataplane.InterfaceDrops{
		{Ifindex: 1000, Direction: model.Ingress, Packets: 1, Bytes: 100}, {Ifindex: 1001, Direction: model.Ingress, Packets: 10, Bytes: 1000},
	}
	if diff := cmp.Diff(want, k.ByInterface); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
}

// Pods come and go while no agent runs, or before it attaches programs to their interfaces: the guard drops what they send, and counts it.
func TestDropsAtInterfacesThatAreGoneAreForgotten(t *testing.T) {
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	first := openNode(t, dir, nil)
	first.mustApply(t, restartStages[0].updates()...)
	mustClose(t, first.BPF)
	n := openNode(t, dir, nil)
	defer mustClose(t, n.BPF)
	there, gone := bpf.DropKey{Ifindex: n.host.Ifaces["calia"], Reason: 1}, bpf.DropKey{Ifindex: 4711, Reason: 13}
	for _, when := range []string{"a start", "a resync"} {
		putDrops(t, n, there, 5)
		putDrops(t, n, gone, 1)
		if when == "a resync" {
			n.Resync()
		}
		n.mustApply(t, restartStages[0].updates()...)
		drops, err := n.kernel.maps.Drops.All()
		if len(drops) != 1 || drops[there].Packets != 5 || err != nil {
			t.Errorf("after %s: %v (%v), want those of the interface that is there", when, drops, err)
		}
	}
}

func TestMapsAreWalkedAgainAfterAWhile(t *testing.T) {
	n := startNode(t, restartStages[0])
	now := time.Unix(1000, 0)
	c := newCounters(n.kernel.maps, func() time.Time { return now })
	open := func() dataplane.MapUse {
		t.Helper()
		k, err := c.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range k.Maps {
			if m.Name == bpf.MargayMapCt4 {
				return m
			}
		}
		t.Fatal("map is missing")
		return dataplane.MapUse{}
	}
	before := open()
	if err := n.kernel.maps.Map(bpf.MargayMapCt4).Put(&bpf.Ct4Key{Pa: 1}, &bpf.CtEntry{}); err != nil {
		t.Fatal(err)
	}
	now = now.Add(countEvery - 1)
	if got := open(); got != before {
		t.Errorf("counted again too early: %+v", got)
	}
	now = now.Add(1)
	if got := open(); got.Entries != before.Entries+1 || got.Max != 2048 {
		t.Errorf("%+v, before it %+v", got, before)
	}
}

func TestRefusedFlowsAreAddedUp(t *testing.T) {
	n := startNode(t, restartStages[0])
	c := newCounters(n.kernel.maps, time.Now)
	for _, step := range []struct {
		number        uint32
		refused, want uint64
	}{{7, 4, 4}, {7, 6, 6}, {8, 1, 7}} {
		if err := n.kernel.maps.Map(bpf.MargayMapShares).Put(step.number, &bpf.Share{Refused: step.refused}); err != nil {
			t.Fatal(err)
		}
		if k, err := c.Read(t.Context()); err != nil || k.FlowsRefused != step.want {
			t.Errorf("%d refused, want %d (%v)", k.FlowsRefused, step.want, err)
		}
	}
}

// TestTheRoomInCommonIsCounted: no flow table is ever full. The room that endpoints have in common for open flows may be.
func TestTheRoomInCommonIsCounted(t *testing.T) {
	n := startNode(t, restartStages[0])
	c := newCounters(n.kernel.maps, time.Now)
	shares := n.kernel.maps.Map(bpf.MargayMapShares)
	for _, step := range []struct {
		open int32
		want uint64
	}{{0, 0}, {700, 700}, {-1, 0}, {1 << 20, 2048 / 8 * 3}} {
		if err := shares.Put(uint32(bpf.Shares), &bpf.Share{Open: uint32(step.open)}); err != nil {
			t.Fatal(err)
		}
		k, err := c.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(k.Maps, func(m dataplane.MapUse) bool { return m.Name == "open_flows_in_common" })
		if i < 0 || k.Maps[i].Entries != step.want || k.Maps[i].Max != 2048/8*3 {
			t.Errorf("%d open flows in common: %+v, want %d of %d", step.open, k.Maps, step.want, 2048/8*3)
		}
	}
}

func TestStatsCountAClosedEndpointAsFailed(t *testing.T) {
	n := startNode(t, restartStages[0])
	policy := torturePolicy("b", 1)
	policy.Policy.Ingress = []model.Rule{
		{Action: model.Deny, Destination: model.Entity{Nets: []netip.Prefix{netip.MustParsePrefix("10.0.5.0/24")}}},
		{Action: model.Allow, Index: 1},
	}
	b := endpoint4("b", "cali0", "10.0.0.11", map[string]string{"app": "b"})
	b.Endpoint.Addrs = append(b.Endpoint.Addrs, netip.MustParseAddr("10.0.5.1")) // judged differently: no table does that
	if err := n.apply(policy, b); err == nil {
		t.Fatal("it is not closed")
	}
	if s := n.Stats(false); s.Enforced != 1 || s.Failed != 1 || s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
}
