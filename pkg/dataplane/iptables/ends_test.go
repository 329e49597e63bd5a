package iptables

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/shares"
)

// The limiter knows the endpoints as soon as policy is in force. The status has its findings, and the statistics the use of the table.
func TestTheLimiterKnowsEndpoints(t *testing.T) {
	n := newFakeNode(t)
	n.addrs = []netip.Addr{netip.MustParseAddr("192.0.2.9")}
	use := func() dataplane.MapUse { maps := n.Stats(false).Maps; return maps[len(maps)-1] }
	if use().Name == "nf_conntrack" {
		t.Error("there are numbers before the table is read")
	}
	table := &shares.Fake{Limit: 1000}
	l := n.Limiter(table)
	if n.IPTables.flows.ends.Ends() != nil {
		t.Fatal("ends are published before policy is in force")
	}
	n.mustApply(t, narrow.updates()...)
	first := n.IPTables.flows.ends.Ends()
	if first == nil {
		t.Fatal("no ends are published")
	}
	n.mustApply(t)
	if n.IPTables.flows.ends.Ends() != first {
		t.Error("ends are published again although nothing has changed")
	}
	status := n.Endpoints()[0]
	table.Open(900, status.Addrs[0], netip.MustParseAddr("192.0.2.1"), 0)
	l.Look()
	l.Look()
	if n.Endpoints()[0].Flows == "" || !strings.Contains(n.Endpoints()[0].Flows, "of its connections were removed") || n.IPTables.flows.limiter.Removed() == 0 {
		t.Errorf("status %+v, %d removed", n.Endpoints()[0], n.IPTables.flows.limiter.Removed())
	}
	left := uint64(len(table.Entries()))
	if got := use(); left == 0 || left == 900 || got != (dataplane.MapUse{Name: "nf_conntrack", Entries: left, Max: 1000}) {
		t.Errorf("use %+v, want that of %d connections", got, left)
	}
}
