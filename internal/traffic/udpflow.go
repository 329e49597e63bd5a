package traffic

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// UDPFlowOptions tune a UDPFlow; zero fields take the defaults.
type UDPFlowOptions struct {
	Interval time.Duration  // from one datagram to the next; default 2 ms
	Size     int            // bytes of a datagram, at least 8; default 64
	Grace    time.Duration  // how long Stop waits for answers that are missing; default 10 s
	From     netip.AddrPort // the client's end; default: the kernel chooses it. With port 0 it chooses the port
}

// UDPFlowResult is what a UDPFlow has counted. Sent = Received + Lost holds after Stop.
type UDPFlowResult struct {
	Sent       uint64 // datagrams sent, numbered from 0
	Received   uint64 // of those, answered at least once
	Duplicated uint64 // answers beyond the first to a number
	Lost       uint64 // not answered; while the flow runs this includes packets under way
	LongestGap uint64 // the longest run of lost numbers
	Refused    uint64 // ICMP port unreachable and the like that came back
	SendErrors uint64 // sends the kernel turned down; they are not in Sent
	Foreign    uint64 // answers that are none to this flow
}

// UDPFlow sends numbered datagrams at a fixed rate from one port to a server of the lab and accounts for every answer.
// It is safe for concurrent use.
type UDPFlow struct {
	host *lab.Host
	conn net.Conn
	opts UDPFlowOptions
	probe
	received chan struct{} // closed when the receiver has ended

	mu       sync.Mutex
	answers  []uint8 // per number: how many, up to 255
	complete chan struct{}
	result   UDPFlowResult
	final    bool
}

// StartUDPFlow begins a flow to a server of echo.ListenUDP.
func StartUDPFlow(h *lab.Host, dst netip.AddrPort, opts UDPFlowOptions) (*UDPFlow, error) {
	if opts.Interval <= 0 {
		opts.Interval = 2 * time.Millisecond
	}
	if opts.Size == 0 {
		opts.Size = 64
	}
	if opts.Size < 8 {
		return nil, fmt.Errorf("start UDP flow from %s: a datagram of %d bytes has no room for its number", h.Name(), opts.Size)
	}
	if opts.Grace <= 0 {
		opts.Grace = 10 * time.Second
	}
	var d net.Dialer
	if opts.From.Addr().IsValid() {
		d.LocalAddr = net.UDPAddrFromAddrPort(opts.From)
	}
	conn, err := open(h, d, "udp", dst)
	if err != nil {
		return nil, fmt.Errorf("start UDP flow to %s: %w", dst, err)
	}
	if err := lab.MakeRoom(conn.(*net.UDPConn)); err != nil {
		return nil, errors.Join(fmt.Errorf("start UDP flow to %s: %w", dst, err), conn.Close())
	}
	f := &UDPFlow{
		host: h, conn: conn, opts: opts, probe: newProbe(),
		received: make(chan struct{}), complete: make(chan struct{}),
	}
	go f.send()
	go f.receive()
	if err := h.Adopt(f); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *UDPFlow) send() {
	defer close(f.done)
	tick := time.NewTicker(f.opts.Interval)
	defer tick.Stop()
	message := make([]byte, f.opts.Size)
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-tick.C:
		}
		f.mu.Lock()
		binary.BigEndian.PutUint64(message, uint64(len(f.answers)))
		f.answers = append(f.answers, 0) // before the send: its answer may be faster than we are
		f.mu.Unlock()
		_, err := f.conn.Write(message)
		if isICMPError(err) {
			f.count(&f.result.Refused)
			_, err = f.conn.Write(message) // the error was about an earlier datagram, this one was not sent
		}
		if err != nil {
			f.mu.Lock()
			f.answers = f.answers[:len(f.answers)-1]
			f.result.SendErrors++
			f.mu.Unlock()
		}
	}
}

func isICMPError(err error) bool {
	return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.EHOSTUNREACH) || errors.Is(err, unix.EACCES) ||
		errors.Is(err, unix.ENETUNREACH)
}

func (f *UDPFlow) count(n *uint64) {
	f.mu.Lock()
	*n++
	f.mu.Unlock()
}

func (f *UDPFlow) receive() {
	defer close(f.received)
	b := make([]byte, echo.MaxBanner+f.opts.Size)
	for {
		n, err := f.conn.Read(b)
		switch {
		case isICMPError(err):
			f.count(&f.result.Refused)
			continue
		case err != nil:
			return
		}
		f.account(b[:n])
	}
}

func (f *UDPFlow) account(answer []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, echoed, ok := bytes.Cut(answer, []byte{'\n'})
	if !ok || len(echoed) != f.opts.Size || binary.BigEndian.Uint64(echoed) >= uint64(len(f.answers)) {
		f.result.Foreign++
		return
	}
	seq := binary.BigEndian.Uint64(echoed)
	if f.answers[seq]++; f.answers[seq] > 1 {
		f.answers[seq] = min(f.answers[seq], 254)
		f.result.Duplicated++
		return
	}
	f.result.Received++
	if f.final && f.result.Received == uint64(len(f.answers)) {
		close(f.complete)
	}
}

// Result returns the counts so far.
func (f *UDPFlow) Result() UDPFlowResult {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.result
	r.Sent = uint64(len(f.answers))
	r.Lost = r.Sent - r.Received
	gap := uint64(0)
	for _, n := range f.answers {
		gap++
		if n > 0 {
			gap = 0
		}
		r.LongestGap = max(r.LongestGap, gap)
	}
	return r
}

// Stop sends no more, waits a while for answers under way, and returns the final counts, also when called again.
func (f *UDPFlow) Stop() UDPFlowResult { return f.stop(f.opts.Grace) }

// StopCut is Stop for a flow that no answer comes to any more: it waits for half a second.
func (f *UDPFlow) StopCut() UDPFlowResult { return f.stop(min(f.opts.Grace, 500*time.Millisecond)) }

func (f *UDPFlow) stop(within time.Duration) UDPFlowResult {
	f.end()
	f.host.Release(f)
	f.mu.Lock()
	if !f.final {
		f.final = true
		if f.result.Received == uint64(len(f.answers)) {
			close(f.complete)
		}
	}
	f.mu.Unlock()
	grace := time.NewTimer(within)
	defer grace.Stop()
	select {
	case <-f.complete:
	case <-f.received:
	case <-grace.C:
	}
	f.conn.Close() // ends the receiver; closed twice when called again, to no effect
	<-f.received
	return f.Result()
}

// Close is StopCut, for the host.
func (f *UDPFlow) Close() error {
	f.StopCut()
	return nil
}
