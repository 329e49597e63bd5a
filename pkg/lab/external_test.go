package lab_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
)

// A cluster of any addresses: nodes, pods and the outside host have those they are told to have.
func TestAddressesOfOnesOwnChoice(t *testing.T) {
	l := newLab(t)
	a := must[*lab.Node](t)(l.AddNode("a", netip.MustParseAddr("192.168.0.1"), netip.MustParseAddr("fd00:192::1")))
	b := must[*lab.Node](t)(l.AddNode("b", netip.MustParseAddr("192.168.0.2"), netip.MustParseAddr("fd00:192::2")))
	out := must[*lab.External](t)(l.AddExternal("out"))
	pod := addPod(t, a, "pod", netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("fd00:10:1::1"))
	server := listenTCP(t, pod.Host, 80)
	everywhere := func(route func(netip.Prefix, *lab.Node) error) {
		t.Helper()
		for _, addr := range pod.Addrs() {
			if err := route(netip.PrefixFrom(addr, addr.BitLen()), a); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantOutcome(t, "without a route", b.DialTCP(server.Addr4(), never), lab.Timeout)
	everywhere(b.RouteVia)
	everywhere(out.RouteVia)
	for _, v6 := range []bool{false, true} {
		further := []netip.Addr{netip.MustParseAddr("203.0.113.5"), netip.MustParseAddr("2001:db8:1::5")}[btoi(v6)]
		if err := out.AddAddr(further); err != nil {
			t.Fatal(err)
		}
		to := netip.AddrPortFrom(pod.Addr(v6), 80)
		wantOutcome(t, "from the other node", b.DialTCPFrom(netip.AddrPortFrom(b.Addr(v6), 0), to, soon), lab.Connected)
		wantOutcome(t, "from a further address", out.DialTCPFrom(netip.AddrPortFrom(further, 4321), to, soon), lab.Connected)
		wantOutcome(t, "ping from it", out.PingFrom(further, pod.Addr(v6), soon), lab.Connected)
		must[*lab.Server](t)(out.ListenUDPAt(further, 53))
		answer := pod.ExchangeUDPFrom(netip.AddrPortFrom(pod.Addr(v6), 0), netip.AddrPortFrom(further, 53), []byte("x"), soon)
		wantOutcome(t, "datagrams to it", answer, lab.Connected)
		if err := out.RemoveAddr(further); err != nil {
			t.Fatal(err)
		}
		wantOutcome(t, "to an address taken back", pod.Ping(further, never), lab.Timeout)
	}
	everywhere(b.UnrouteVia)
	everywhere(b.UnrouteVia) // again: no error
	wantOutcome(t, "without a route again", b.DialTCP(server.Addr4(), never), lab.Timeout)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Packets of protocols without sockets go as they are and are seen where they are delivered, only there.
func TestRawPacketsGoFromHostToHost(t *testing.T) {
	n := addNode(t, newLab(t), "a")
	from, to := addPod(t, n, "from"), addPod(t, n, "to")
	for _, v6 := range []bool{false, true} {
		receiver := must[*traffic.RawReceiver](t)(traffic.ReceiveRaw(to.Host, testutil.ProtoSCTP, v6))
		other := must[*traffic.RawReceiver](t)(traffic.ReceiveRaw(n.Host, testutil.ProtoSCTP, v6))
		p := testutil.Packet{Src: from.Addr(v6), Dst: to.Addr(v6), L4: testutil.SCTP{SrcPort: 1, DstPort: 2}, Payload: []byte("token")}
		if err := traffic.SendRaw(from.Host, p.IP(), p.Dst); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), soon)
		defer cancel()
		if err := receiver.Wait(ctx, []byte("token")); err != nil {
			t.Error(err)
		}
		short, cancelShort := context.WithTimeout(context.Background(), never)
		defer cancelShort()
		if err := other.Wait(short, []byte("token")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the node that forwards it received it: %v", err)
		}
	}
}

func TestManyFramesAtOnceAllArrive(t *testing.T) {
	n := addNode(t, newLab(t), "a")
	pod := addPod(t, n, "pod")
	udp := listenUDP(t, n.Host, 53)
	sender := must[*traffic.FrameSender](t)(traffic.OpenFrameSender(pod.Host, "eth0"))
	frames := make([][]byte, 150) // several system calls, less than a queue
	for i := range frames {
		frames[i] = testutil.Packet{
			SrcMAC: pod.MAC(), DstMAC: lab.HostMAC, Src: pod.Addr4(), Dst: n.Addr4(),
			L4: testutil.UDP{SrcPort: uint16(1000 + i), DstPort: 53},
		}.Bytes()
	}
	if err := sender.Send(frames); err != nil {
		t.Fatal(err)
	}
	testutil.WaitFor(t, time.Minute, "all frames", func() bool { return udp.Received() == uint64(len(frames)) })
	if err := sender.Close(); err != nil {
		t.Error(err)
	}
	if err := sender.Send(frames); err == nil {
		t.Error("a closed sender sends")
	}
}
