package bpf

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

// places are the interfaces of the endpoints in the kernel by their own address, checked against the address table and
// what is attached.
func (n *node) places(t *testing.T) map[string]uint32 {
	t.Helper()
	at := map[string]uint32{}
	for _, e := range n.kernel.endpoints.List() {
		addr := netip.AddrFrom4(e.Addr4)
		at[addr.String()] = e.Ifindex
		if info, ok := n.kernel.maps.Addresses.IP4Host.Get(bpfmaps.IP4(addr)); !ok || info.Ifindex != e.Ifindex {
			t.Errorf("address %s says interface %d (%v), its endpoint is on %d", addr, info.Ifindex, ok, e.Ifindex)
		}
		if n.host.Attached[e.Ifindex] == "" {
			t.Errorf("endpoint %s is ready on interface %d, which has no programs", addr, e.Ifindex)
		}
	}
	there := slices.Collect(maps.Values(n.host.Ifaces))
	for ifindex := range n.host.Attached {
		if !slices.Contains(there, ifindex) {
			t.Errorf("programs on %v, the interfaces are %v", n.host.Attached, n.host.Ifaces)
		}
	}
	return at
}

func (n *node) wantPlaces(t *testing.T, what string, want map[string]uint32) {
	t.Helper()
	if diff := cmp.Diff(want, n.places(t)); diff != "" {
		t.Errorf("%s: %s", what, diff)
	}
}

func TestEndpointsFollowTheirInterfaces(t *testing.T) {
	two := stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80}, more: 1}
	n := startNode(t, two)
	n.wantPlaces(t, "at first", map[string]uint32{"10.0.0.10": 1000, "10.0.2.1": 1001})

	n.host.Ifaces = map[string]uint32{"calia": 2000, "cali0": 1001}
	n.mustApply(t)
	n.wantPlaces(t, "another number", map[string]uint32{"10.0.0.10": 2000, "10.0.2.1": 1001})

	n.host.Ifaces = map[string]uint32{"calia": 1001, "cali0": 2000}
	n.mustApply(t)
	n.wantPlaces(t, "renamed crosswise", map[string]uint32{"10.0.0.10": 1001, "10.0.2.1": 2000})

	n.mustApply(t, endpoint4("a", "cali0", "10.0.0.10", map[string]string{"app": "a"}),
		endpoint4("a0", "calia", "10.0.2.1", map[string]string{"app": "a"}))
	n.wantPlaces(t, "objects exchanged", map[string]uint32{"10.0.0.10": 2000, "10.0.2.1": 1001})

	n.host.Ifaces = map[string]uint32{"cali0": 2000}
	n.mustApply(t)
	n.wantPlaces(t, "gone", map[string]uint32{"10.0.0.10": 2000})

	n.host.Ifaces = map[string]uint32{"cali0": 2000, "calia": 2001}
	n.host.Fail[2001] = attach.ErrGone
	n.mustApply(t)
	n.wantPlaces(t, "gone before it could be attached", map[string]uint32{"10.0.0.10": 2000})
	delete(n.host.Fail, 2001)
	n.mustApply(t)
	n.wantPlaces(t, "there again", map[string]uint32{"10.0.0.10": 2000, "10.0.2.1": 2001})

	// Another pod with the same address and interface, at once.
	n.mustApply(t, model.EndpointUpdate{ID: tortureA}, endpoint4("heir", "cali0", "10.0.0.10", map[string]string{"app": "b"}))
	n.wantPlaces(t, "an heir", map[string]uint32{"10.0.0.10": 2000, "10.0.2.1": 2001})
}

func TestAnInterfaceThatChangedItsNumberWhileNobodyWatched(t *testing.T) {
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	first := openNode(t, dir, nil)
	first.mustApply(t, restartStages[1].updates()...)
	mustClose(t, first.BPF)
	second := openNode(t, dir, nil)
	mustClose(t, second.BPF)
	second = openNodeOn(t, dir, map[string]uint32{"calia": 3000, "cali1": 1002})
	defer mustClose(t, second.BPF)
	second.mustApply(t, restartStages[1].updates()...)
	second.wantPlaces(t, "after the restart", map[string]uint32{"10.0.0.10": 3000, "10.0.2.2": 1002})
}

func openNodeOn(t *testing.T, dir string, ifaces map[string]uint32) *node {
	t.Helper()
	n := openNode(t, dir, nil)
	mustClose(t, n.BPF)
	host := NewFakeHost()
	host.Ifaces = ifaces
	dp, err := OpenBPF(n.config, host, n.kernel.log)
	if err != nil {
		t.Fatal(err)
	}
	n.BPF, n.host = dp, host
	return n
}

// While a plan is stuck, interfaces come and go all the same.
func TestInterfacesAreFollowedWhileAPlanIsStuck(t *testing.T) {
	testutil.Privileged(t)
	n := openNode(t, testutil.BPFFS(t), map[string]uint32{"ip4_host": 5})
	defer mustClose(t, n.BPF)
	n.mustApply(t, restartStages[0].updates()...)
	var crowd []model.Update
	for i := range 9 {
		crowd = append(crowd, endpoint4(string(rune('k'+i)), "", netip.AddrFrom4([4]byte{10, 0, 3, byte(i)}).String(), map[string]string{"role": "friend"}))
	}
	if err := n.apply(crowd...); err == nil {
		t.Fatal("everything fits: the test tests nothing")
	}
	n.host.Ifaces = map[string]uint32{"calia": 2000}
	if err := n.apply(); err == nil || errors.Is(err, dataplane.ErrStuck) {
		t.Errorf("error %v, want that the map is full and that nothing waits", err)
	}
	if entry, ok := n.Kernel(tortureA); !ok || entry.Ifindex != 2000 {
		t.Errorf("endpoint a is on interface %d (%v), want 2000", entry.Ifindex, ok)
	}
	if info, _ := n.kernel.maps.Addresses.IP4Host.Get(bpfmaps.IP4(netip.MustParseAddr("10.0.0.10"))); info.Ifindex != 2000 {
		t.Errorf("its address says interface %d", info.Ifindex)
	}
}

// One table judges all addresses of an endpoint: if the policy means another thing for another address, it is closed.
func TestAnEndpointWhoseAddressesArePolicedDifferentlyIsClosedAndTold(t *testing.T) {
	n := startNode(t, restartStages[0])
	policy := torturePolicy("b", 1)
	policy.Policy.Ingress = []model.Rule{
		{Action: model.Deny, Destination: model.Entity{Nets: []netip.Prefix{netip.MustParsePrefix("10.0.5.0/24")}}},
		{Action: model.Allow, Index: 1},
	}
	b := endpoint4("b", "cali0", "10.0.0.11", map[string]string{"app": "b"})
	n.mustApply(t, policy, b)
	two := *b.Endpoint
	two.Addrs = append(two.Addrs, netip.MustParseAddr("10.0.5.1"))
	err := n.apply(model.EndpointUpdate{ID: b.ID, Endpoint: &two})
	if !errors.Is(err, plan.ErrOwnAddresses) || !strings.Contains(err.Error(), "t/b is closed") {
		t.Errorf("error %v", err)
	}
	if _, ok := n.Kernel(b.ID); ok {
		t.Error("the endpoint is not closed")
	}
	for _, s := range n.Endpoints() {
		if (s.ID == b.ID) != strings.HasPrefix(s.Reason, "closed: 10.0.0.11 and 10.0.5.1") {
			t.Errorf("%s: %q", s.ID, s.Reason)
		}
	}
	n.mustApply(t, b)
	n.wantPlaces(t, "one address again", map[string]uint32{"10.0.0.10": 1000, "10.0.0.11": 1001})
}

// What an endpoint was allowed with other addresses is judged again, also if another agent gave it those.
func TestAnEndpointThatGetsOtherAddressesHasItsFlowsJudgedAgain(t *testing.T) {
	n := startNode(t, restartStages[0])
	b := endpoint4("b", "cali0", "10.0.0.11", map[string]string{"app": "b"})
	n.mustApply(t, b)
	generations := func() [2]uint32 {
		t.Helper()
		e, ok := n.Kernel(b.ID)
		if !ok {
			t.Fatal("the endpoint is not in the kernel")
		}
		return [2]uint32{uint32(e.Ingress), uint32(e.Egress)}
	}
	before := generations()
	n.mustApply(t, b)
	if generations() != before {
		t.Error("nothing has changed, and it has another generation")
	}
	other := endpoint4("b", "cali0", "10.0.0.12", map[string]string{"app": "b"})
	n.mustApply(t, other)
	after := generations()
	if after[0] == before[0] || after[1] == before[1] {
		t.Errorf("generations %v, then %v with another address", before, after)
	}
	if err := n.Reopen(); err != nil {
		t.Fatal(err)
	}
	n.graph.Restate()
	n.mustApply(t, other)
	if generations() != after {
		t.Errorf("generations %v, then %v after a restart with the same address", after, generations())
	}
	if err := n.Reopen(); err != nil {
		t.Fatal(err)
	}
	n.graph.Restate()
	n.mustApply(t, b)
	if last := generations(); last[0] == after[0] || last[1] == after[1] {
		t.Errorf("generations %v, then %v with another address after a restart", after, last)
	}
}
