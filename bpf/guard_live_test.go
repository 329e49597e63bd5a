package bpf_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/labtest"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// TestGuardDropsOnlyWhatNoProgramHasSeen: packets of a workload interface without a program, unless another dataplane judges them.
func TestGuardDropsOnlyWhatNoProgramHasSeen(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	l := labtest.New(t)
	node := labtest.Node(t, l, "node")
	from, to := labtest.Pod(t, node, "from"), labtest.Pod(t, node, "to")
	outside, err := l.AddExternal("outside")
	if err != nil {
		t.Fatal(err)
	}
	server, err := echo.ListenUDP(to.Host, 53)
	if err != nil {
		t.Fatal(err)
	}
	clients := map[bool]net.Conn{}
	for v6, at := range map[bool]netip.AddrPort{false: server.Addr4(), true: server.Addr6()} {
		if clients[v6], err = traffic.OpenUDP(outside.Host, at); err != nil {
			t.Fatal(err)
		}
		defer clients[v6].Close()
	}
	for _, family := range []link.NetfilterProtocolFamily{link.NetfilterProtoIPv4, link.NetfilterProtoIPv6} {
		var attached link.Link
		if err := node.Do(func() (err error) {
			attached, err = link.AttachNetfilter(link.NetfilterOptions{Program: w.Programs[bpf.MargayProgGuard], ProtocolFamily: family,
				Hook: link.NetfilterInetPreRouting, Priority: -500})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer attached.Close()
	}
	// The node finds the receiver by neighbour discovery, which comes from there and is not seen either.
	w.publish(t, &bpf.Endpoint{Ifindex: uint32(to.IfIndex()), Flags: bpf.EPReady | bpf.EPBeside}, word(slotAllow, 1), word(slotAllow, 1))
	sender := bpf.Endpoint{Ifindex: uint32(from.IfIndex()), Addr4: from.Addr4().As4(), Addr6: from.Addr6().As16()}
	unseen := bpf.DropKey{Ifindex: sender.Ifindex, Reason: uint16(bpf.MargayDropReasonDROP_UNSEEN)}
	for _, c := range []struct {
		what    string
		flags   uint32
		program bool
		passes  bool
	}{
		{"no endpoint", 0, false, false},
		{"the number of a pod that has gone", bpf.EPReady, false, false},
		{"another dataplane judges", bpf.EPReady | bpf.EPBeside, false, true},
		{"another one has judged", bpf.EPReady | bpf.EPBesideBefore, false, false},
		{"a program has seen it", bpf.EPReady, true, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			sender.Flags = c.flags
			w.publish(t, &sender, word(slotAllow, 1), word(slotAllow, 1))
			if c.program {
				attachTo(t, node, from.IfIndex(), w.Programs[bpf.MargayProgFromPod], ebpf.AttachTCXIngress)
			}
			for _, v6 := range []bool{false, true} {
				w.forget(t)
				want := server.Received() + 1
				p := testutil.Packet{Src: from.Addr(v6), Dst: to.Addr(v6), SrcMAC: from.MAC(), DstMAC: lab.HostMAC, L4: testutil.UDP{SrcPort: 1000, DstPort: 53}}
				if err := traffic.SendFrame(from.Host, "eth0", p.Bytes()); err != nil {
					t.Fatal(err)
				}
				dropped := func() uint64 { return w.drops(t)[unseen].Packets }
				if c.passes {
					want++
				} else {
					testutil.WaitFor(t, time.Minute, "the datagram to be dropped", func() bool { return dropped() > 0 })
				}
				if _, err := clients[v6].Write([]byte("from an interface that is no workload's")); err != nil {
					t.Fatal(err)
				}
				testutil.WaitFor(t, time.Minute, "the other datagrams", func() bool { return server.Received() >= want })
				if n := server.Received(); n != want || c.passes && dropped() != 0 {
					t.Errorf("IPv6 %t: %d more than wanted arrived, %d dropped", v6, n-want, dropped())
				}
			}
		})
	}
}
