package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// isolated isolates the pod client in ingress.
const isolated = `{podSelector: {matchLabels: {app: client}}, policyTypes: [Ingress]}`

// isICMP accepts frames with an ICMP or ICMPv6 message of the type and code, without options before it.
func isICMP(v6 bool, kind, code byte) func([]byte) bool {
	return func(f []byte) bool {
		if v6 {
			return len(f) > 56 && f[12] == 0x86 && f[20] == testutil.ProtoICMPv6 && f[54] == kind && f[55] == code
		}
		return len(f) > 36 && f[12] == 8 && f[14] == 0x45 && f[23] == testutil.ProtoICMP && f[34] == kind && f[35] == code
	}
}

// Errors about a flow come back to a pod that nobody may send to; errors about nothing it sent do not.
func TestICMPErrorsFollowTheFlowTheyQuote(t *testing.T) {
	forModes(t, func(t *testing.T, flags ...string) {
		c := newCluster(t, oneNode, flags...)
		out := c.External("out")
		client, peer := c.Pod(c.Node(0), "client"), c.Pod(c.Node(0), "peer")
		c.Policy("client", isolated)
		c.AwaitPolicies(client, 1, 0)
		seen := c.Capture(client)
		for _, h := range []*lab.Host{out.Host, peer.Host, c.Node(0).Host} {
			for _, a := range h.Addrs() {
				if got := echo.ExchangeUDP(client.Host, netip.AddrPortFrom(a, 9), []byte("x"), soon); got.Outcome != echo.Refused {
					t.Errorf("udp to a closed port of %s %s: %v (%v), want refused", h.Name(), a, got.Outcome, got.Err)
				}
			}
		}
		// Both packets are sent before the answer to the second, so the first would be seen by then.
		for _, v6 := range []bool{false, true} {
			sendLie(t, peer, client, v6)
			short := testutil.Packet{Src: client.Addr(v6), Dst: out.Addr(v6), TTL: 1, L4: testutil.UDP{SrcPort: 5, DstPort: 6}}
			if err := traffic.SendIP(client, short.IP()); err != nil {
				t.Fatal(err)
			}
			exceeded := isICMP(false, 11, 0)
			if v6 {
				exceeded = isICMP(true, 3, 0)
			}
			wantFrame(t, seen, "time exceeded", exceeded)
			for _, f := range seen.Frames() {
				if isLie(v6)(f) {
					t.Errorf("an error about a packet that was never sent arrived: %x", f)
				}
			}
		}
		// Where everything is allowed, so is that.
		c.Remove("policy-client")
		c.AwaitPolicies(client, 0, 0)
		for _, v6 := range []bool{false, true} {
			sendLie(t, peer, client, v6)
			wantFrame(t, seen, "an error about nothing, allowed", isLie(v6))
		}
	})
}

// sendLie sends an ICMP error about a packet that its receiver never sent.
func sendLie(t *testing.T, from, to *lab.Pod, v6 bool) {
	t.Helper()
	about := testutil.Packet{Src: to.Addr(v6), Dst: from.Addr(v6), L4: testutil.UDP{SrcPort: 4444, DstPort: 4445}}
	lie := testutil.ICMP{Type: 3, Code: 1, Quote: testutil.Quoting(about)}
	if v6 {
		lie.Type, lie.Code = 1, 3
	}
	if err := traffic.SendIP(from, testutil.Packet{Src: from.Addr(v6), Dst: to.Addr(v6), L4: lie}.IP()); err != nil {
		t.Fatal(err)
	}
}

func isLie(v6 bool) func([]byte) bool {
	if v6 {
		return isICMP(true, 1, 3)
	}
	return isICMP(false, 3, 1)
}

// wantFrame demands that a frame was captured or comes soon.
func wantFrame(t *testing.T, seen *traffic.Capture, what string, match func([]byte) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	if _, err := seen.Wait(ctx, match); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// Path MTU discovery works for isolated pods: large transfers over a route with a smaller MTU get through.
func TestPathMTUIsDiscovered(t *testing.T) {
	testutil.RequireCommand(t, "ip")
	c := newCluster(t, oneNode)
	out := c.External("out")
	server, err := echo.ListenTCP(out.Host, 80)
	if err != nil {
		t.Fatal(err)
	}
	client := c.Pod(c.Node(0), "client")
	c.Policy("client", isolated)
	c.AwaitPolicies(client, 1, 0)
	seen := c.Capture(client)
	for _, v6 := range []bool{false, true} {
		family, dst, tooBig := "-4", server.Addr4(), isICMP(false, 3, 4)
		if v6 {
			family, dst, tooBig = "-6", server.Addr6(), isICMP(true, 2, 0)
		}
		if _, err := c.Node(0).Run(context.Background(), "", "ip", family, "route", "change",
			netip.PrefixFrom(dst.Addr(), dst.Addr().BitLen()).String(), "dev", "eth0", "mtu", "1300"); err != nil {
			t.Fatal(err)
		}
		if err := transfer(client.Host, dst, 256<<10); err != nil {
			t.Errorf("transfer to %s: %v", dst, err)
		}
		wantFrame(t, seen, "packet too big", tooBig)
	}
}

// transfer sends random bytes to an echo server and compares what comes back.
func transfer(from *lab.Host, dst netip.AddrPort, size int) error {
	conn, err := traffic.OpenTCP(from, dst, soon)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * soon)); err != nil {
		return err
	}
	sent := make([]byte, size)
	rand.Read(sent)
	wrote := make(chan error, 1)
	go func() {
		_, err := conn.Write(sent)
		wrote <- err
	}()
	var banner [1]byte
	for banner[0] != '\n' {
		if _, err := io.ReadFull(conn, banner[:]); err != nil {
			return err
		}
	}
	got := make([]byte, size)
	if n, err := io.ReadFull(conn, got); err != nil {
		return fmt.Errorf("after %d of %d bytes: %w", n, size, err)
	}
	if err := <-wrote; err != nil {
		return err
	}
	if !bytes.Equal(sent, got) {
		return fmt.Errorf("%d bytes came back changed", size)
	}
	return nil
}

// Large transfers between pods of one node get through, also to one whose MTU is smaller: the shortcut must not be taken
// for what the peer could not receive.
func TestTransfersBetweenPods(t *testing.T) {
	forModes(t, func(t *testing.T, flags ...string) {
		c := newCluster(t, oneNode, flags...)
		client, server := c.Pod(c.Node(0), "client"), c.Plug(c.Node(0), "server")
		if err := server.SetMTU(1300); err != nil {
			t.Fatal(err)
		}
		c.Declare(server)
		c.AwaitEndpoint(server)
		tcp, _ := c.Serve(server.Host, 80)
		for _, dst := range []netip.AddrPort{tcp.Addr4(), tcp.Addr6()} {
			if err := transfer(client.Host, dst, 1<<20); err != nil {
				t.Errorf("transfer to %s: %v", dst, err)
			}
		}
		// A datagram the peer cannot receive meets its sender with an error, by the ordinary way.
		seen := c.Capture(client)
		for _, v6 := range []bool{false, true} {
			p := testutil.Packet{
				Src: client.Addr(v6), Dst: server.Addr(v6), DontFragment: true, L4: testutil.UDP{SrcPort: 1, DstPort: 80},
				Payload: make([]byte, 1400),
			}
			if err := traffic.SendIP(client, p.IP()); err != nil {
				t.Fatal(err)
			}
			tooBig := isICMP(false, 3, 4)
			if v6 {
				tooBig = isICMP(true, 2, 0)
			}
			wantFrame(t, seen, "packet too big", tooBig)
		}
	})
}

// SCTP is told apart by port; the test kernel has no SCTP sockets, so packets it is.
func TestSCTPPorts(t *testing.T) {
	forModes(t, func(t *testing.T, flags ...string) {
		c := newCluster(t, oneNode, flags...)
		from, to := c.Pod(c.Node(0), "from"), c.Pod(c.Node(0), "to")
		c.Policy("to", `{podSelector: {matchLabels: {app: to}}, ingress: [{ports: [{port: 80, protocol: SCTP}]}]}`)
		c.AwaitPolicies(to, 1, 0)
		seen := c.Capture(to)
		for _, v6 := range []bool{false, true} {
			for _, port := range []uint16{81, 80} {
				p := testutil.Packet{Src: from.Addr(v6), Dst: to.Addr(v6), L4: testutil.SCTP{SrcPort: 1, DstPort: port}}
				if err := traffic.SendIP(from, p.IP()); err != nil {
					t.Fatal(err)
				}
			}
			at := 34
			if v6 {
				at = 54
			}
			sctp := func(port byte) func([]byte) bool {
				return func(f []byte) bool {
					return len(f) > at+3 && (f[12] == 0x86) == v6 && f[at+1] == 1 && f[at+3] == port
				}
			}
			wantFrame(t, seen, "the admitted INIT", sctp(80))
			for _, f := range seen.Frames() {
				if sctp(81)(f) {
					t.Errorf("the denied INIT arrived: %x", f)
				}
			}
		}
	})
}
