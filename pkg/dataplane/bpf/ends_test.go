package bpf

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/further"
	"github.com/margay-project/margay/pkg/model"
)

// filledTable is a kernel's table that connections of one address nearly fill. Their marks are those of another program.
type filledTable struct {
	opener  netip.Addr
	deleted int
}

func (*filledTable) Usage() (entries, limit uint32, err error) { return 900, 1000, nil }

func (f *filledTable) Dump(_ conntrack.Family, _ conntrack.Filter, each func(conntrack.Entry)) error {
	outside := netip.MustParseAddr("192.0.2.1")
	for i := range uint16(900 - f.deleted) {
		each(conntrack.Entry{Original: conntrack.Tuple{Src: f.opener, Dst: outside, Protocol: unix.IPPROTO_TCP, SrcPort: i},
			Reply: conntrack.Tuple{Src: outside, Dst: f.opener, Protocol: unix.IPPROTO_TCP, DstPort: i}, Mark: 0xffffffff})
	}
	return nil
}

func (f *filledTable) Delete(list []conntrack.Entry) []error {
	f.deleted += len(list)
	return make([]error, len(list))
}

// loses reports how many of a table's connections the limiter removes if one address has opened all of them.
func (n *node) loses(opener string) int {
	f := &filledTable{opener: netip.MustParseAddr(opener)}
	limiter := Limiter(n.BPF, f, n.flowTable.ends.routes)
	limiter.Look()
	limiter.Look()
	return f.deleted
}

// The limiter knows the endpoints from the first policy in force on, and follows them. Status, statistics and counters have what it does.
func TestTheLimiterKnowsEndpoints(t *testing.T) {
	testutil.Privileged(t)
	n := openNode(t, testutil.BPFFS(t), nil)
	n.host.Ifaces = map[string]uint32{"cali1": 1001, "cali2": 1003}
	n.host.Own = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
	read := func(interfaces map[string]bool) ([]further.Route, error) {
		return []further.Route{{Prefix: netip.MustParsePrefix("198.51.100.0/24"), Interface: "cali2"}}, nil
	}
	table := &filledTable{opener: netip.MustParseAddr("10.0.0.11")}
	limiter := Limiter(n.BPF, table, read)
	ends := &n.flowTable.ends
	if ends.published.Load() != nil {
		t.Fatal("ends are published before policy is in force")
	}
	n.mustApply(t, endpoint4("b", "cali1", "10.0.0.11", nil), listing("198.51.100.0/24"), model.InSync{})
	first := ends.published.Load()
	if first == nil {
		t.Fatal("no ends are published")
	}
	n.mustApply(t)
	if ends.published.Load() != first {
		t.Error("ends are published again although nothing has changed")
	}
	limiter.Look()
	limiter.Look()
	k, err := n.Counters().Read(t.Context())
	if err != nil || table.deleted == 0 || k.FlowsRefused != uint64(table.deleted) {
		t.Errorf("%d removed, %d counted: %v", table.deleted, k.FlowsRefused, err)
	}
	var flows string
	for _, s := range n.Endpoints() {
		if s.ID == model.WorkloadID("t", "b") {
			flows = s.Flows
		} else if s.Flows != "" {
			t.Errorf("%s has lost nothing: %s", s.ID, s.Flows)
		}
	}
	if !strings.Contains(flows, "of its connections were removed") {
		t.Errorf("the status of the endpoint has %q", flows)
	}
	if use := n.Stats(false).Maps; use[len(use)-1] != (dataplane.MapUse{Name: "nf_conntrack", Entries: 900, Max: 1000}) {
		t.Errorf("use %+v", use[len(use)-1])
	}
	if n.loses("198.51.100.7") == 0 || n.loses("198.51.101.7") > 0 || n.loses("10.0.0.1") > 0 || n.loses("10.0.0.12") > 0 {
		t.Error("connections of a further source are not charged, or those of the node or of others are")
	}
	if err := n.Reopen(); err != nil {
		t.Fatal(err)
	}
	if n.loses("10.0.0.11") == 0 {
		t.Error("the endpoint is not known while the dataplane is reopened")
	}
	n.mustApply(t, model.EndpointUpdate{ID: model.WorkloadID("t", "b")})
	if n.loses("10.0.0.11") == 0 {
		t.Error("connections of an endpoint that has left are not charged")
	}
}

func ends4(addrs ...string) (list []netip.Addr) {
	for _, a := range addrs {
		list = append(list, netip.MustParseAddr(a))
	}
	return list
}

// Addresses of endpoints that have left are remembered until an endpoint or the node has them, the latest ones.
func TestAddressesThatWereLeftAreRemembered(t *testing.T) {
	x, node := &ends{}, ends4("10.0.0.1")
	bound := map[model.EndpointID]*endpoint{}
	add := func(name, iface string, addrs ...string) {
		policy := policyOf(name, iface)
		policy.Addrs = ends4(addrs...)
		bound[policy.ID] = &endpoint{policy: policy, ifindex: 7}
	}
	want := func(when string, addrs ...string) {
		t.Helper()
		x.publish(bound, node)
		if !slices.Equal(x.left, ends4(addrs...)) {
			t.Errorf("%s: %v, want %v", when, x.left, addrs)
		}
	}
	add("a", "cali1", "10.0.0.2", "10.0.0.3")
	add("b", "cali2", "10.0.0.4")
	want("nothing has left")
	add("a", "cali1", "10.0.0.2")
	want("an address less", "10.0.0.3")
	delete(bound, model.WorkloadID("shop", "b"))
	want("an endpoint less", "10.0.0.3", "10.0.0.4")
	add("c", "cali3", "10.0.0.3")
	want("another endpoint has an address", "10.0.0.4")
	node = ends4("10.0.0.1", "10.0.0.4")
	want("the node has it")
	bound[model.WorkloadID("", "ifindex-8")] = &endpoint{ifindex: 8}
	delete(bound, model.WorkloadID("shop", "c"))
	want("an endpoint of an earlier agent is not known")
	delete(bound, model.WorkloadID("", "ifindex-8"))
	want("it is gone", "10.0.0.3")
	policy := policyOf("many", "cali4")
	for i := range mostLeft + 1 {
		policy.Addrs = append(policy.Addrs, netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}))
	}
	bound[policy.ID] = &endpoint{policy: policy}
	want("more than are remembered are there", "10.0.0.3")
	delete(bound, policy.ID)
	x.publish(bound, node)
	if len(x.left) != mostLeft || slices.Contains(x.left, netip.MustParseAddr("10.0.0.3")) {
		t.Errorf("%d addresses are remembered", len(x.left))
	}
}

// A look at endpoints that have not changed publishes nothing; one that opens or closes is published.
func TestEndsFollowEndpointsThatOpen(t *testing.T) {
	x := &ends{}
	policy := policyOf("a", "cali1")
	policy.Addrs = ends4("10.0.0.2")
	ep := &endpoint{policy: policy}
	bound := map[model.EndpointID]*endpoint{policy.ID: ep}
	published := func() bool {
		before := x.published.Load()
		x.publish(bound, nil)
		return x.published.Load() != before
	}
	if !published() || published() {
		t.Error("the first look is to publish, the second is not")
	}
	for _, ifindex := range []uint32{7, 0} {
		ep.ifindex = ifindex
		if !published() || published() {
			t.Errorf("interface %d: the first look is to publish, the second is not", ifindex)
		}
	}
	if allocs := testing.AllocsPerRun(10, func() { x.publish(bound, nil) }); allocs > 0 {
		t.Errorf("a look at endpoints that have not changed allocates %v times", allocs)
	}
}
