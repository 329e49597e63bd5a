package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/lab"
)

// What a probe is, in its first byte; the number of the newcomer follows.
const (
	probeIn        byte = iota // to the newcomer, from whom its policy lets in
	probeStranger              // to the newcomer, from another
	probeOut                   // from the newcomer, to where its policy lets it
	probeForbidden             // from the newcomer, to elsewhere
)

// probes sends datagrams to newcomers and from them, at a fixed interval from a thread that comes before all others, and
// notes when the first of each kind is received, by the kernel's clock: neither a late reader nor a late answer is
// charged. Nothing else talks to the newcomers.
type probes struct {
	r         *residents
	ends      []*resident     // prober, stranger, sink, and elsewhere
	from      [2]*net.UDPConn // of prober and stranger
	at        [2]*net.UDPConn // of sink and elsewhere
	to        [2]netip.AddrPort
	realTime  bool
	interval  atomic.Int64 // from one round of probes to the next, in ns
	widest    atomic.Int64 // the longest that was
	stop      atomic.Bool
	stopped   chan struct{}
	receiving sync.WaitGroup

	mu       sync.Mutex // guards all below
	last     uint32     // number given
	active   []*newcomer
	byNumber map[uint32]*newcomer
}

// newProbes makes the pods that talk to newcomers. The caller ends it; otherwise it ends with the test.
func (r *residents) newProbes() *probes {
	r.c.t.Helper()
	p := &probes{r: r, stopped: make(chan struct{}), byNumber: map[uint32]*newcomer{}}
	ctx := r.c.t.Context()
	for _, app := range []string{"prober", "stranger", "sink", "elsewhere"} {
		s, err := r.plug(ctx, outsideSpace, app)
		r.c.must(err)
		r.c.must(r.tell(ctx, s))
		p.ends = append(p.ends, s)
	}
	var errs [4]error
	p.from[0], errs[0] = open(p.ends[0].pod.Host, 0)
	p.from[1], errs[1] = open(p.ends[1].pod.Host, 0)
	p.at[0], errs[2] = open(p.ends[2].pod.Host, probePort)
	p.at[1], errs[3] = open(p.ends[3].pod.Host, probePort)
	r.c.must(errs[:]...)
	p.to[0] = netip.AddrPortFrom(p.ends[2].pod.Addr4(), probePort)
	p.to[1] = netip.AddrPortFrom(p.ends[3].pod.Addr4(), probePort)
	p.receive(p.at[0])
	p.receive(p.at[1])
	p.interval.Store(int64(time.Millisecond))
	ready := make(chan struct{})
	go p.send(ready)
	<-ready
	r.c.t.Cleanup(p.close)
	return p
}

// end takes it all away before the test ends.
func (p *probes) end() {
	p.r.c.t.Helper()
	p.close()
	for _, s := range p.ends {
		p.r.c.must(p.r.remove(p.r.c.t.Context(), s))
	}
}

func (p *probes) close() {
	if p.stop.Swap(true) {
		return
	}
	<-p.stopped
	for _, c := range []*net.UDPConn{p.from[0], p.from[1], p.at[0], p.at[1]} {
		c.Close()
	}
	p.mu.Lock()
	for _, n := range p.byNumber {
		n.conn.Close()
	}
	p.mu.Unlock()
	p.receiving.Wait()
}

// open opens an IPv4 UDP socket in a host that is told when the kernel received each datagram.
func open(h *lab.Host, port uint16) (conn *net.UDPConn, err error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		controlErr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) })
		return errors.Join(controlErr, err)
	}}
	err = h.Do(func() error {
		c, err := config.ListenPacket(context.Background(), "udp4", fmt.Sprintf(":%d", port))
		if err == nil {
			conn = c.(*net.UDPConn)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open a UDP socket in %s: %w", h.Name(), err)
	}
	return conn, nil
}

// receive notes what comes to a socket until it is closed.
func (p *probes) receive(conn *net.UDPConn) {
	p.receiving.Go(func() {
		message, control := make([]byte, 64), make([]byte, 128)
		for {
			n, m, _, _, err := conn.ReadMsgUDPAddrPort(message, control)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil || n != 5 || message[0] > probeForbidden {
				continue
			}
			p.note(binary.BigEndian.Uint32(message[1:]), message[0], stamp(control[:m]))
		}
	})
}

// stamp is when the kernel received a datagram; now if it does not say.
func stamp(control []byte) int64 {
	messages, err := unix.ParseSocketControlMessage(control)
	if err == nil {
		for _, m := range messages {
			if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
				return int64(binary.NativeEndian.Uint64(m.Data))*1e9 + int64(binary.NativeEndian.Uint64(m.Data[8:]))
			}
		}
	}
	return time.Now().UnixNano()
}

func (p *probes) note(number uint32, kind byte, at int64) {
	p.mu.Lock()
	n := p.byNumber[number]
	p.mu.Unlock()
	if n == nil {
		return
	}
	n.passed[kind].CompareAndSwap(0, at)
	if n.passed[probeIn].Load() != 0 && n.passed[probeOut].Load() != 0 {
		n.once.Do(func() { close(n.both) })
	}
}

// send sends until it is stopped: what is allowed until it has come through, what is denied as long as the newcomer is
// watched.
func (p *probes) send(ready chan<- struct{}) {
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	defer close(p.stopped)
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	p.realTime = unix.SchedSetAttr(0, &attr, 0) == nil
	close(ready)
	var last time.Time
	for !p.stop.Load() {
		p.mu.Lock()
		now := p.active
		p.mu.Unlock()
		begun := time.Now()
		if len(now) > 0 && !last.IsZero() {
			p.widest.Store(max(p.widest.Load(), int64(begun.Sub(last))))
		}
		last = begun
		if len(now) == 0 {
			last = time.Time{}
		}
		for _, n := range now {
			at := netip.AddrPortFrom(n.pod.Addr4(), probePort)
			if n.passed[probeIn].Load() == 0 {
				p.one(n, probeIn, p.from[0], at)
			}
			if n.passed[probeOut].Load() == 0 {
				p.one(n, probeOut, n.conn, p.to[0])
			}
			p.one(n, probeStranger, p.from[1], at)
			p.one(n, probeForbidden, n.conn, p.to[1])
		}
		pause := unix.NsecToTimespec(p.interval.Load())
		_ = unix.Nanosleep(&pause, nil) // a signal cuts it short, which does no harm
	}
}

// one sends one probe. That it cannot be sent, for want of a neighbour or by policy, is the same as that it is lost.
func (p *probes) one(n *newcomer, kind byte, from *net.UDPConn, to netip.AddrPort) {
	message := [5]byte{kind}
	binary.BigEndian.PutUint32(message[1:], n.number)
	_, _ = from.WriteToUDPAddrPort(message[:], to)
}
