package bpf_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/labtest"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
)

// TestSegmentsLargerThan64KPass: with BIG TCP switched on, the stack hands over segments whose length does not fit the IP
// header, which then says 0.
func TestSegmentsLargerThan64KPass(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	node := labtest.Node(t, labtest.New(t), "node")
	pods := []*lab.Pod{labtest.Pod(t, node, "from"), labtest.Pod(t, node, "to")}
	for _, p := range pods {
		ep := bpf.Endpoint{Ifindex: uint32(p.IfIndex()), Flags: bpf.EPReady, Addr4: p.Addr4().As4(), Addr6: p.Addr6().As16()}
		w.publish(t, &ep, word(slotAllow, 1), word(slotAllow, 1))
		attachTo(t, node, p.IfIndex(), w.Programs[bpf.MargayProgFromPod], ebpf.AttachTCXIngress)
		attachTo(t, node, p.IfIndex(), w.Programs[bpf.MargayProgToPod], ebpf.AttachTCXEgress)
		for host, dev := range map[*lab.Host]string{p.Host: "eth0", node.Host: p.Iface()} {
			if err := allowLarge(host.Netlink(), dev); err != nil {
				testutil.Missing(t, fmt.Sprintf("needs BIG TCP: %v", err))
			}
		}
	}
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v6 %v", v6), func(t *testing.T) {
			// How much the stack puts into one segment depends on how far the window has opened: not every transfer
			// gets that far.
			largest := 0
			for tries := 0; largest <= 65536; tries++ {
				if tries == 50 {
					t.Fatalf("50 transfers, and the largest segment seen had %d bytes", largest)
				}
				largest = max(largest, transfer(t, pods[0], pods[1], pods[1].Addr(v6)))
			}
			t.Logf("largest segment: %d bytes", largest)
			for k, c := range w.drops(t) {
				if bpf.DropReason(k.Reason) != bpf.MargayDropReasonDROP_SPOOFED { // link-local chatter
					t.Errorf("dropped as %s: %d packets", bpf.Label(bpf.DropReason(k.Reason)), c.Packets)
				}
			}
		})
	}
}

// allowLarge lets the stack make segments of 200 KB for the interface.
func allowLarge(h *netlink.Handle, dev string) error {
	l, err := h.LinkByName(dev)
	if err != nil {
		return err
	}
	const size = 200_000
	return errors.Join(h.LinkSetGSOMaxSize(l, size), h.LinkSetGROMaxSize(l, size),
		h.LinkSetGSOIPv4MaxSize(l, size), h.LinkSetGROIPv4MaxSize(l, size))
}

// transfer sends a megabyte over TCP and returns the length of the largest frame that the sender's interface saw.
func transfer(t *testing.T, from, to *lab.Pod, dst netip.Addr) int {
	t.Helper()
	const size = 1 << 20
	var listener net.Listener
	if err := to.Do(func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(dst, 0).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	got := make(chan int64, 1)
	go func() {
		c, err := listener.Accept()
		if err != nil {
			got <- -1
			return
		}
		defer c.Close()
		n, _ := io.Copy(io.Discard, c)
		got <- n
	}()
	seen, err := traffic.OpenCapture(from.Host, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Close()
	c, err := traffic.OpenTCP(from.Host, netip.MustParseAddrPort(listener.Addr().String()), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Write(make([]byte, size)); err != nil {
		t.Errorf("wrote %d bytes: %v", n, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	select {
	case n := <-got:
		if n != size {
			t.Errorf("%d of %d bytes arrived", n, size)
		}
	case <-time.After(time.Minute):
		t.Error("the transfer does not end")
	}
	largest := 0
	for _, frame := range seen.Frames() {
		largest = max(largest, len(frame))
	}
	return largest
}

// attachTo puts a program on a hook of an interface.
func attachTo(t *testing.T, n *lab.Node, ifindex int, program *ebpf.Program, hook ebpf.AttachType) {
	t.Helper()
	var attached link.Link
	err := n.Do(func() (err error) {
		attached, err = link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: program, Attach: hook})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := attached.Close(); err != nil {
			t.Error(err)
		}
	})
}
