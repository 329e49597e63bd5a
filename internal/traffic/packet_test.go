package traffic_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/labtest"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
)

func openCapture(t *testing.T, h *lab.Host, iface string) *traffic.Capture {
	t.Helper()
	return labtest.Must[*traffic.Capture](t)(traffic.OpenCapture(h, iface))
}

func sendIP(t *testing.T, p *lab.Pod, packets ...[]byte) {
	t.Helper()
	if err := traffic.SendIP(p, packets...); err != nil {
		t.Fatal(err)
	}
}

func wantFrame(t *testing.T, c *traffic.Capture, what string, match func([]byte) bool) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), labtest.Soon)
	defer cancel()
	frame, err := c.Wait(ctx, match)
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	return frame
}

// isTCP accepts TCP frames without extension headers by destination port and flags.
func isTCP(port uint16, flags byte) func([]byte) bool {
	return func(f []byte) bool {
		at := 14 + 20
		if len(f) > 14 && f[14]>>4 == 6 {
			at = 14 + 40
		}
		return len(f) >= at+20 && binary.BigEndian.Uint16(f[at+2:]) == port && f[at+13] == flags
	}
}

// The kernel at the other end is the judge of the packets testutil builds: it checks lengths and checksums.
func TestRawPacketsAreTakenForReal(t *testing.T) {
	n := labtest.Node(t, labtest.New(t), "a")
	from, to := labtest.Pod(t, n, "from"), labtest.Pod(t, n, "to")
	labtest.ListenTCP(t, to.Host, 80)
	udp := labtest.ListenUDP(t, to.Host, 53)
	answers := openCapture(t, from.Host, "eth0")
	want := uint64(0)
	datagrams := func(what string, packets ...[]byte) {
		t.Helper()
		want++
		sendIP(t, from, packets...)
		testutil.WaitFor(t, labtest.Soon, what, func() bool { return udp.Received() == want })
	}
	for _, v6 := range []bool{false, true} {
		p := testutil.Packet{Src: from.Addr(v6), Dst: to.Addr(v6)}
		p.L4 = testutil.TCP{SrcPort: 1234, DstPort: 80, Seq: 7, Flags: testutil.SYN}
		sendIP(t, from, p.IP())
		wantFrame(t, answers, "answer to a SYN", isTCP(1234, testutil.SYN|testutil.ACK))

		p.L4, p.Payload = testutil.UDP{SrcPort: 1, DstPort: 53}, bytes.Repeat([]byte("odd"), 333)
		datagrams("a datagram", p.IP())
		p.ID = 77
		var fragments [][]byte
		for _, frame := range p.Fragments(400) {
			fragments = append([][]byte{frame[14:]}, fragments...) // last first
		}
		datagrams("a datagram in fragments", fragments...)
		if v6 {
			p.Extensions = []testutil.Extension{{Header: 0, Body: []byte{1, 4}}, {Header: 60, Body: []byte{1, 4}}}
		} else {
			p.Options = []byte{1, 1, 1} // no-operation
		}
		datagrams("a datagram behind options", p.IP())

		p = testutil.Packet{Src: from.Addr(v6), Dst: to.Addr(v6), Payload: []byte("ping")}
		request, reply := byte(8), byte(0)
		at := 14 + 20
		if v6 {
			request, reply, at = 128, 129, 14+40
		}
		p.L4 = testutil.ICMP{Type: request, ID: 99, Seq: 1}
		sendIP(t, from, p.IP())
		wantFrame(t, answers, "echo reply", func(f []byte) bool {
			return len(f) > at+8 && f[at] == reply && binary.BigEndian.Uint16(f[at+4:]) == 99
		})
	}
}

func TestICMPErrorsReachTheSocketTheyQuote(t *testing.T) {
	n := labtest.Node(t, labtest.New(t), "a")
	client, serving := labtest.Pod(t, n, "client"), labtest.Pod(t, n, "server")
	for _, v6 := range []bool{false, true} {
		packets := labtest.Must[*net.UDPConn](t)(traffic.ListenPackets(serving.Host, 53)) // takes datagrams, answers none
		sent := openCapture(t, serving.Host, "eth0")
		f := labtest.Must[*traffic.UDPFlow](t)(traffic.StartUDPFlow(client.Host, netip.AddrPortFrom(serving.Addr(v6), 53), traffic.UDPFlowOptions{Grace: 1}))
		at := 14 + 20
		if v6 {
			at = 14 + 40
		}
		frame := wantFrame(t, sent, "a datagram", func(f []byte) bool {
			return len(f) > at+8 && binary.BigEndian.Uint16(f[at+2:]) == 53
		})
		if frame == nil {
			continue
		}
		quoted := testutil.Packet{
			Src: client.Addr(v6), Dst: serving.Addr(v6),
			L4: testutil.UDP{SrcPort: binary.BigEndian.Uint16(frame[at:]), DstPort: 53}, Payload: frame[at+8:],
		}
		unreachable := testutil.ICMP{Type: 3, Code: 3, Quote: testutil.Quoting(quoted)}
		if v6 {
			unreachable.Type, unreachable.Code = 1, 4
		}
		sendIP(t, serving, testutil.Packet{Src: serving.Addr(v6), Dst: client.Addr(v6), L4: unreachable}.IP())
		testutil.WaitFor(t, labtest.Soon, "the flow to see the error", func() bool { return f.Result().Refused == 1 })
		f.Stop()
		packets.Close()
	}
}

// Nothing in the lab filters by itself: what no socket would send arrives too, and a capture can tell that nothing else does.
func TestSpoofedAndOtherProtocolsArrive(t *testing.T) {
	n := labtest.Node(t, labtest.New(t), "a")
	from, to := labtest.Pod(t, n, "from"), labtest.Pod(t, n, "to")
	seen := openCapture(t, to.Host, "eth0")
	testutil.RequireCommand(t, "iptables")
	for _, command := range []string{"iptables", "ip6tables"} { // INVALID: a wrong checksum, or no INIT at the start
		labtest.Must[string](t)(n.Run(context.Background(), "", command, "-A", "FORWARD", "-p", "sctp", "-m", "conntrack",
			"--ctstate", "INVALID", "-j", "DROP"))
	}
	for _, tc := range []struct {
		what string
		p    testutil.Packet
	}{
		{"spoofed", testutil.FromTo("203.0.113.5", to.Addr4().String(), testutil.UDP{SrcPort: 1, DstPort: 2})},
		{"sctp", testutil.Packet{Src: from.Addr4(), Dst: to.Addr4(), L4: testutil.SCTP{SrcPort: 1, DstPort: 2}}},
		{"sctp over IPv6", testutil.Packet{Src: from.Addr6(), Dst: to.Addr6(), L4: testutil.SCTP{SrcPort: 1, DstPort: 2}}},
		{"gre", testutil.Packet{Src: from.Addr4(), Dst: to.Addr4(), L4: testutil.Raw(47), Payload: []byte("gre!")}},
		{"udp-lite", testutil.Packet{Src: from.Addr4(), Dst: to.Addr4(), L4: testutil.UDP{SrcPort: 1, DstPort: 2, Lite: true}}},
	} {
		sendIP(t, from, tc.p.IP())
		tail := tc.p.IP()
		if tc.p.Src.Is6() {
			tail = tail[40:]
		} else {
			tail = tail[12:] // past TTL and checksum, which routing changes
		}
		wantFrame(t, seen, tc.what, func(f []byte) bool { return bytes.HasSuffix(f, tail) })
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if f, err := seen.Wait(ctx, isTCP(80, testutil.SYN)); err == nil {
		t.Errorf("captured a frame that was not sent: %x", f)
	}
	if int(seen.Total()) != len(seen.Frames()) || seen.Total() < 5 {
		t.Errorf("total %d, kept %d", seen.Total(), len(seen.Frames()))
	}
}
