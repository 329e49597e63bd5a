package iptables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/oracle"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
	"github.com/margay-project/margay/pkg/model"
)

// Source ports of attempts that policy denies, and of no others: pods of a lab choose theirs from 10000 on.
const firstDenied, lastDenied = 1024, 9999

// probe demands that the peer of each tenant connects, or does not, as policy has it, and that its open connection goes on or is cut.
func (n *tenants) probe() {
	n.t.Helper()
	whole := oracle.New(n.objects())
	for _, x := range n.list {
		if whole.Flow(x.packet(false)).Allow() != x.allowed || whole.Flow(x.packet(true)).Allow() != x.allowed {
			n.t.Fatalf("the verdict of tenant %d depends on others: %+v", x.i, x.policy)
		}
	}
	var group sync.WaitGroup
	for _, x := range n.list {
		v6 := (n.flushes+x.i)%2 == 1
		group.Go(func() {
			if x.allowed {
				n.mustOpen(x, v6)
			} else {
				n.mustNotOpen(x, v6)
			}
		})
	}
	group.Wait()
	// A packet that is under way would be judged by the next policy.
	if err := n.list[0].passBehind(); err != nil {
		n.t.Error(err)
	}
	for _, x := range n.list {
		x.witness.CatchUp()
		if came := x.intruders.Load(); came > 0 {
			n.t.Fatalf("tenant %d, flush %d: %d packets that policy denies have come, by %+v", x.i, n.flushes, came, x.policy)
		}
	}
}

// mustOpen demands that a new connection of the peer opens, and that the one that is open goes on.
func (n *tenants) mustOpen(x *tenant, v6 bool) {
	dst := netip.AddrPortFrom(x.pod.Addr(v6), portProbed)
	n.opened.Add(1)
	if x.live == nil {
		c, err := traffic.OpenTCP(x.peer.Host, dst, patience)
		if err == nil {
			x.live, err = c, expect(c, "", x.probed.Name()+"\n")
		}
		if err != nil {
			n.t.Errorf("tenant %d, flush %d: a connection to %v that policy allows, by %+v: %v", x.i, n.flushes, dst, x.policy, err)
		}
		return
	}
	if a := echo.DialTCP(x.peer.Host, dst, patience); a.Outcome != echo.Connected {
		n.t.Errorf("tenant %d, flush %d: a connection to %v that policy allows, by %+v: %v", x.i, n.flushes, dst, x.policy, a.Err)
	}
	n.continued.Add(1)
	if err := expect(x.live, "still here", "still here"); err != nil {
		n.t.Errorf("tenant %d, flush %d: an open connection that policy allows, by %+v: %v", x.i, n.flushes, x.policy, err)
	}
}

// expect sends something on a connection and demands an answer.
func expect(c net.Conn, send, answer string) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(c, send); err != nil {
		return err
	}
	got := make([]byte, len(answer))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != answer {
		return fmt.Errorf("answer %q, want %q: %w", got[:n], answer, err)
	}
	return nil
}

// mustNotOpen demands that the peer's open connection is cut, and begins a new one. Its SYN has left then, and may not come to the pod: see
// intruders.
func (n *tenants) mustNotOpen(x *tenant, v6 bool) {
	if x.live != nil {
		n.mustBeCut(x.live)
		n.cut.Add(1)
		x.live = nil
	}
	if x.denied++; x.denied > lastDenied {
		x.denied = firstDenied
	}
	n.refused.Add(1)
	src, dst := netip.AddrPortFrom(x.peer.Addr(v6), x.denied), netip.AddrPortFrom(x.pod.Addr(v6), portProbed)
	if state, err := beginTCP(x.peer.Host, src, dst); err != nil || state != unix.BPF_TCP_SYN_SENT {
		n.t.Errorf("tenant %d, flush %d: a connection to %v that policy denies, by %+v: state %d, %v", x.i, n.flushes, dst, x.policy, state, err)
	}
}

// beginTCP has the kernel send a SYN. It returns the state of the connection thereafter, and gives it up.
func beginTCP(h *lab.Host, src, dst netip.AddrPort) (state uint8, err error) {
	family := unix.AF_INET
	address := func(a netip.AddrPort) unix.Sockaddr {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	if src.Addr().Is6() {
		family = unix.AF_INET6
		address = func(a netip.AddrPort) unix.Sockaddr {
			return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
		}
	}
	err = h.Do(func() error {
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("make a socket: %w", err)
		}
		defer unix.Close(fd)
		if err := unix.Bind(fd, address(src)); err != nil {
			return fmt.Errorf("bind to %v: %w", src, err)
		}
		if err := unix.Connect(fd, address(dst)); !errors.Is(err, unix.EINPROGRESS) {
			return fmt.Errorf("connect: %w, want %w", err, unix.EINPROGRESS)
		}
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			state = info.State
		}
		return err
	})
	return state, err
}

// watch counts the SYNs that come from source ports of attempts that policy denies. Only attempts to portProbed have such ports.
func (x *tenant) watch(frame []byte, _ bool) {
	const ethernet, syn, ack = 14, 0x02, 0x10
	if len(frame) < ethernet+20 {
		return
	}
	ip := frame[ethernet:]
	header, protocol := int(ip[0]&15)*4, ip[9]
	if ip[0]>>4 == 6 {
		header, protocol = 40, ip[6]
	}
	if protocol != model.ProtoTCP || len(ip) < header+20 {
		return
	}
	tcp := ip[header:]
	src, dst := binary.BigEndian.Uint16(tcp), binary.BigEndian.Uint16(tcp[2:])
	if dst == portProbed && src >= firstDenied && src <= lastDenied && tcp[13]&(syn|ack) == syn {
		x.intruders.Add(1)
	}
}

// passBehind sends a datagram from each CPU and waits for its answer. The kernel processes the packets that one CPU has sent to pods of
// its node in their order, so all earlier packets have come by then, or never will.
func (x *tenant) passBehind() error {
	return testutil.OnEachCPU(func() error {
		if a := echo.ExchangeUDP(x.peer.Host, netip.AddrPortFrom(x.pod.Addr4(), portOpen), []byte("behind"), patience); a.Outcome != echo.Connected {
			return fmt.Errorf("send a datagram: %w", a.Err)
		}
		return nil
	})
}
