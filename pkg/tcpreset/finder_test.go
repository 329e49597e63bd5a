package tcpreset

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/conntrack"
)

type fakeTable struct {
	entries []conntrack.Entry
	dumps   int
	err     error
}

func (f *fakeTable) Dump(_ conntrack.Family, _ conntrack.Filter, each func(conntrack.Entry)) error {
	f.dumps++
	for _, e := range f.entries {
		each(e)
	}
	return f.err
}

func tuple(src, dst string) conntrack.Tuple {
	a, b := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
	return conntrack.Tuple{Src: a.Addr(), Dst: b.Addr(), SrcPort: a.Port(), DstPort: b.Port(), Protocol: unix.IPPROTO_TCP}
}

func segmentOf(src, dst string) segment {
	return segment{sequence: 7}.between(netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst))
}

// A receiver gets its reset from the end that it knows: the client from the NodePort, the pod from the node's port for the client.
func TestMasqueradedConnectionsAreResetAtTheEndsThatTheirReceiversKnow(t *testing.T) {
	const client, front, pod, node = "192.0.2.1:40000", "10.0.0.1:30080", "10.65.0.2:80", "10.0.0.1:52000"
	other := conntrack.Entry{Original: tuple(client, front), Reply: tuple("10.65.0.3:80", node)}
	udp := conntrack.Entry{Original: tuple(client, front), Reply: tuple(pod, node)}
	udp.Original.Protocol, udp.Reply.Protocol = unix.IPPROTO_UDP, unix.IPPROTO_UDP
	table := &fakeTable{entries: []conntrack.Entry{other, udp, {Original: tuple(client, front), Reply: tuple(pod, node)}}}
	var sent []segment
	f := finder{table: table, reset: func(s segment) error { sent = append(sent, s); return nil }}
	errs := f.find([]segment{segmentOf(pod, client), segmentOf(client, pod), segmentOf(client, "10.65.0.4:80")})
	want := []segment{segmentOf(front, client), segmentOf(node, pod)}
	if errs[0] != nil || errs[1] != nil || !errors.Is(errs[2], errNoConnection) || table.dumps != 1 {
		t.Errorf("%v, after %d readings", errs, table.dumps)
	}
	if len(sent) != 2 || sent[0] != want[1] || sent[1] != want[0] {
		t.Errorf("sent %v, want %v", sent, want)
	}
	table.entries, table.err = nil, unix.ENOBUFS
	if errs := f.find([]segment{segmentOf(pod, client)}); !errors.Is(errs[0], unix.ENOBUFS) {
		t.Errorf("a table that cannot be read: %v", errs)
	}
}

// What comes while the table is read, or before it is read again, waits for one further reading; more than that is refused.
func TestPacketsWaitForAReadingTogether(t *testing.T) {
	table := &fakeTable{}
	f := finder{table: table, reset: func(segment) error { return nil }, wanted: make(chan segment, mostWanted)}
	for range mostWanted {
		if !f.want(segmentOf("10.0.0.1:1", "10.0.0.2:2")) {
			t.Fatal("refused, though there is room")
		}
	}
	if f.want(segmentOf("10.0.0.1:1", "10.0.0.2:2")) {
		t.Error("a further one is not refused")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	n := 0
	f.run(ctx, func(error) {
		if n++; n == mostWanted {
			cancel()
		}
	})
	if n != mostWanted || table.dumps != 1 {
		t.Errorf("%d results of %d readings", n, table.dumps)
	}
}
