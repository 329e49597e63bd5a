package bpf

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/further"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/shares"
)

// filledTable is a table that connections of one address nearly fill. Their marks are those of another program.
func filledTable(opener string) *shares.Fake {
	f := &shares.Fake{Limit: 1000}
	f.Open(900, netip.MustParseAddr(opener), netip.MustParseAddr("192.0.2.1"), 0xffffffff)
	return f
}

// loses reports how many of a table's connections the limiter removes if one address has opened all of them.
func (n *node) loses(opener string) int {
	f := filledTable(opener)
	limiter := Limiter(n.BPF, f, n.flowTable.routes)
	limiter.Look()
	limiter.Look()
	return 900 - len(f.Entries())
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
	table := filledTable("10.0.0.11")
	limiter := Limiter(n.BPF, table, read)
	ends := &n.flowTable.ends
	if ends.Ends() != nil {
		t.Fatal("ends are published before policy is in force")
	}
	n.mustApply(t, endpoint4("b", "cali1", "10.0.0.11", nil), listing("198.51.100.0/24"), model.InSync{})
	first := ends.Ends()
	if first == nil {
		t.Fatal("no ends are published")
	}
	n.mustApply(t)
	if ends.Ends() != first {
		t.Error("ends are published again although nothing has changed")
	}
	limiter.Look()
	limiter.Look()
	k, err := n.Counters().Read(t.Context())
	left := uint64(len(table.Entries()))
	if err != nil || left == 900 || k.FlowsRefused != 900-left {
		t.Errorf("%d are left of 900, %d counted: %v", left, k.FlowsRefused, err)
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
	if use := n.Stats(false).Maps; use[len(use)-1] != (dataplane.MapUse{Name: "nf_conntrack", Entries: left, Max: 1000}) {
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

// While an endpoint that an earlier agent has left is not known, nothing is published.
func TestEndsWaitForEndpointsOfAnEarlierAgent(t *testing.T) {
	x := &flowTable{limiter: &shares.Limiter{}}
	policy := policyOf("a", "cali1")
	policy.Addrs = ends4("10.0.0.2")
	bound := map[model.EndpointID]*endpoint{policy.ID: {policy: policy, ifindex: 7}, model.WorkloadID("", "ifindex-8"): {ifindex: 8}}
	if x.publish(bound, nil); x.ends.Ends() != nil {
		t.Error("ends are published although an endpoint is not known")
	}
	delete(bound, model.WorkloadID("", "ifindex-8"))
	x.publish(bound, nil)
	first := x.ends.Ends()
	if first == nil {
		t.Error("no ends are published")
	}
	delete(bound, policy.ID)
	bound[model.WorkloadID("", "ifindex-9")] = &endpoint{ifindex: 9}
	if x.publish(bound, nil); x.ends.Ends() != first {
		t.Error("ends are published again although an endpoint is not known")
	}
}

// A look at endpoints that have not changed publishes nothing; one that opens or closes is published.
func TestEndsFollowEndpointsThatOpen(t *testing.T) {
	x := &flowTable{limiter: &shares.Limiter{}}
	policy := policyOf("a", "cali1")
	policy.Addrs = ends4("10.0.0.2")
	ep := &endpoint{policy: policy}
	bound := map[model.EndpointID]*endpoint{policy.ID: ep}
	published := func() bool {
		before := x.ends.Ends()
		x.publish(bound, nil)
		return x.ends.Ends() != before
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
