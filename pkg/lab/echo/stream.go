package echo

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/lab"
)

// StreamOptions tune a Stream; zero fields take the defaults.
type StreamOptions struct {
	Interval time.Duration // from one request to the next; default 5 ms
	Timeout  time.Duration // for one answer or one reconnection, before it counts as an error; default 5 s
	From     netip.Addr    // the client's address; default: the kernel chooses it
}

// StreamResult is what a Stream has counted. On a connection nothing disturbs, Received equals Sent and Connects is 1.
type StreamResult struct {
	Sent, Received uint64 // requests and their answers
	Connects       uint64 // connections made, the first included
	Errors         uint64 // connections that failed, and attempts to make one
	LastErr        error  // the latest of those
	// Retransmits is how many segments the client's kernel sent again: above 0 if packets were lost although every
	// request was answered. A machine short of CPU sends some again that were not lost.
	Retransmits uint64
	MaxWait     time.Duration // the longest wait for an answer
}

// Stream sends requests one after the other over one TCP connection to a server and checks the answers. If
// the connection fails it makes another at the same pace. It is safe for concurrent use.
type Stream struct {
	host *lab.Host
	dst  netip.AddrPort
	opts StreamOptions

	ctx    context.Context // ends when it is stopped
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex
	within time.Duration // opts.Timeout, or what Within has set
	conn   net.Conn      // nil between connections
	result StreamResult
}

// StartStream connects to a server of ListenTCP and begins. It fails if the first connection does.
func StartStream(h *lab.Host, dst netip.AddrPort, opts StreamOptions) (*Stream, error) {
	if opts.Interval <= 0 {
		opts.Interval = 5 * time.Millisecond
	}
	if opts.Timeout <= 0 {
		opts.Timeout = 5 * time.Second
	}
	s := &Stream{host: h, dst: dst, opts: opts, within: opts.Timeout, done: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	conn, err := s.connect()
	if err != nil {
		return nil, fmt.Errorf("start stream from %s to %s: %w", h.Name(), dst, err)
	}
	s.conn, s.result.Connects = conn, 1
	go s.run()
	if err := h.Adopt(s); err != nil {
		return nil, err
	}
	return s, nil
}

// Result returns the counts so far.
func (s *Stream) Result() StreamResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.result
	r.Retransmits += retransmits(s.conn)
	return r
}

// Within changes the timeout. It applies to the answer that the stream is waiting for, counted from now, and to all later answers.
func (s *Stream) Within(timeout time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.within = timeout
	if s.conn != nil {
		_ = s.conn.SetDeadline(time.Now().Add(timeout)) // fails only on a closed connection
	}
}

// timeout is the present one.
func (s *Stream) timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.within
}

// Stop ends the stream after the answer it waits for, and returns the final counts, also when called again.
func (s *Stream) Stop() StreamResult {
	s.cancel()
	<-s.done
	s.host.Release(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	return s.result
}

// Close is Stop without waiting for an answer under way.
func (s *Stream) Close() error {
	s.cancel()
	s.mu.Lock()
	if s.conn != nil {
		s.conn.Close() // again in drop, to no effect
	}
	s.mu.Unlock()
	s.Stop()
	return nil
}

func (s *Stream) connect() (net.Conn, error) {
	timeout := s.timeout()
	c, err := dialTCP(s.ctx, s.host, netip.AddrPortFrom(s.opts.From, 0), s.dst, timeout)
	if err != nil {
		return nil, err
	}
	if _, err := readBanner(c, time.Now().Add(timeout)); err != nil {
		c.Close()
		return nil, fmt.Errorf("read banner: %w", err)
	}
	return c, nil
}

func (s *Stream) run() {
	defer close(s.done)
	tick := time.NewTicker(s.opts.Interval)
	defer tick.Stop()
	for seq := uint64(1); ; seq++ {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		s.mu.Lock()
		conn := s.conn
		s.mu.Unlock()
		if conn == nil {
			s.reconnect()
			continue
		}
		start := time.Now()
		err := s.exchange(conn, seq)
		s.count(err, time.Since(start))
	}
}

func (s *Stream) reconnect() {
	conn, err := s.connect()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && s.ctx.Err() != nil:
		return // Stop called it off
	case err != nil:
		s.result.Errors++
		s.result.LastErr = err
		return
	}
	s.conn = conn
	s.result.Connects++
}

func (s *Stream) exchange(conn net.Conn, seq uint64) error {
	message := binary.BigEndian.AppendUint64(make([]byte, 0, 64), seq)[:64]
	s.mu.Lock()
	s.result.Sent++
	err := conn.SetDeadline(time.Now().Add(s.within)) // with the mutex held: Within changes both
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if _, err := conn.Write(message); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, message); err != nil {
		return err
	}
	if got := binary.BigEndian.Uint64(message); got != seq {
		return fmt.Errorf("answer to request %d, want %d", got, seq)
	}
	return nil
}

func (s *Stream) count(err error, waited time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.result.MaxWait = max(s.result.MaxWait, waited)
	if err == nil {
		s.result.Received++
		return
	}
	s.result.Errors++
	s.result.LastErr = err
	s.drop()
}

// drop closes the connection, if there is one, after taking its count. The caller holds s.mu.
func (s *Stream) drop() {
	if s.conn != nil {
		s.result.Retransmits += retransmits(s.conn)
		s.conn.Close()
		s.conn = nil
	}
}

// retransmits asks the kernel how often the connection sent a segment again; 0 for no connection.
func retransmits(c net.Conn) (n uint64) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return 0
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // fails only on a closed connection, which drop has read before
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = uint64(info.Total_retrans)
		}
	})
	return n
}
