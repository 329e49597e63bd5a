package iptables

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/dataplane"
)

// nearlyFullTable is a kernel's table in which one address has opened nearly all connections.
type nearlyFullTable struct {
	opener  netip.Addr
	deleted int
}

func (*nearlyFullTable) Usage() (entries, limit uint32, err error) { return 900, 1000, nil }

func (f *nearlyFullTable) Dump(_ conntrack.Family, _ conntrack.Filter, each func(conntrack.Entry)) error {
	outside := netip.MustParseAddr("192.0.2.1")
	for i := range uint16(900 - f.deleted) {
		each(conntrack.Entry{Original: conntrack.Tuple{Src: f.opener, Dst: outside, Protocol: unix.IPPROTO_TCP, SrcPort: i},
			Reply: conntrack.Tuple{Src: outside, Dst: f.opener, Protocol: unix.IPPROTO_TCP, DstPort: i}})
	}
	return nil
}

func (f *nearlyFullTable) Delete(list []conntrack.Entry) []error {
	f.deleted += len(list)
	return make([]error, len(list))
}

// The limiter knows the endpoints as soon as policy is in force. The status has its findings, and the statistics the use of the table.
func TestTheLimiterKnowsEndpoints(t *testing.T) {
	n := newFakeNode(t)
	n.addrs = []netip.Addr{netip.MustParseAddr("192.0.2.9")}
	use := func() dataplane.MapUse { maps := n.Stats(false).Maps; return maps[len(maps)-1] }
	if use().Name == "nf_conntrack" {
		t.Error("there are numbers before the table is read")
	}
	table := &nearlyFullTable{}
	l := n.Limiter(table)
	if n.IPTables.flows.ends.published.Load() != nil {
		t.Fatal("ends are published before policy is in force")
	}
	n.mustApply(t, narrow.updates()...)
	first := n.IPTables.flows.ends.published.Load()
	if first == nil {
		t.Fatal("no ends are published")
	}
	n.mustApply(t)
	if n.IPTables.flows.ends.published.Load() != first {
		t.Error("ends are published again although nothing has changed")
	}
	status := n.Endpoints()[0]
	table.opener = status.Addrs[0]
	l.Look()
	l.Look()
	if n.Endpoints()[0].Flows == "" || !strings.Contains(n.Endpoints()[0].Flows, "of its connections were removed") || n.IPTables.flows.limiter.Removed() == 0 {
		t.Errorf("status %+v, %d removed", n.Endpoints()[0], n.IPTables.flows.limiter.Removed())
	}
	if got := use(); got != (dataplane.MapUse{Name: "nf_conntrack", Entries: 900, Max: 1000}) {
		t.Errorf("use %+v", got)
	}
}
