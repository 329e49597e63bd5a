package iptables

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/lab"
)

// Policy, labels and pods change as fast as they are applied, with traffic: no connection is misjudged, no datagram of a flow that is
// allowed is lost, and a connection that policy comes to deny is cut. MARGAY_E2E_CHANGES is how often.
func TestChangesUnderTraffic(t *testing.T) {
	changes := int(testutil.Number(t, "MARGAY_E2E_CHANGES", 12))
	for _, backend := range []iptables.Backend{iptables.Legacy, iptables.NFT} {
		t.Run(string(backend), func(t *testing.T) {
			n := newRealNode(t, backend)
			datagrams, err := n.server.ListenUDP(portOpen)
			if err != nil {
				t.Fatal(err)
			}
			traffic := n.startTraffic()
			n.next() // now the client is a friend of the server
			n.apply(-1)
			flow, err := lab.StartUDPFlow(n.client.Host, datagrams.Addr4(), lab.UDPFlowOptions{Interval: time.Millisecond, Grace: 20 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			begun, cut := time.Now(), 0
			var friend net.Conn
			for i := range changes {
				if n.rounds%2 == 1 && i%12 < 2 {
					if friend, err = n.client.OpenTCP(netip.AddrPortFrom(n.server.Addr4(), portFriends), 20*time.Second); err != nil {
						t.Fatal(err)
					}
				}
				n.next()
				n.apply(-1)
				if friend != nil {
					n.mustBeCut(friend)
					friend, cut = nil, cut+1
				}
			}
			took := time.Since(begun)
			n.check("in the end")
			if r := flow.Stop(); r.Lost > 0 || r.Refused > 0 || r.SendErrors > 0 {
				t.Errorf("datagrams: %+v", r)
			} else {
				t.Logf("%d datagrams, none lost", r.Sent)
			}
			t.Logf("%d changes, %v each; %d connections tried, none misjudged; %d of %d were cut", changes, took/time.Duration(changes), traffic.stop(), cut, cut)
		})
	}
}

// mustBeCut demands that a connection ends when something is sent.
func (n *realNode) mustBeCut(c net.Conn) {
	n.t.Helper()
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		n.t.Fatal(err)
	}
	_, err := c.Write([]byte("still here"))
	if err == nil {
		_, err = io.Copy(io.Discard, c) // the banner may have come before
	}
	if !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
		n.t.Errorf("a connection that policy denies now: %v", err)
	}
}
