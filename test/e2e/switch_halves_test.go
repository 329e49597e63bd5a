package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
)

// halfClosed is a connection of which one end has sent its last, and the other sends numbers.
type halfClosed struct {
	what     string
	from, to *net.TCPConn
	done     chan struct{}
	group    sync.WaitGroup

	mu             sync.Mutex
	sent, received uint64
	err            error
}

// halfClose has one end of a connection send its last, and the other go on.
func (s *pathScene) halfClose(p pair, from, to *net.TCPConn) *halfClosed {
	s.T.Helper()
	h := &halfClosed{what: fmt.Sprintf("%s, %v sends", p.what, from.LocalAddr()), from: from, to: to, done: make(chan struct{})}
	if err := to.CloseWrite(); err != nil {
		s.T.Fatal(err)
	}
	if _, err := from.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		s.T.Fatalf("%s: %v", h.what, err)
	}
	if err := to.SetReadDeadline(time.Time{}); err != nil {
		s.T.Fatal(err)
	}
	h.group.Go(h.send)
	h.group.Go(h.receive)
	return h
}

// note counts, and keeps the first error.
func (h *halfClosed) note(count *uint64, err error) (n uint64, goesOn bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		h.err = err
	}
	if err == nil {
		*count++
	}
	return *count, err == nil
}

func (h *halfClosed) send() {
	b := make([]byte, 8)
	for n, goesOn := uint64(0), true; goesOn; {
		select {
		case <-h.done:
			_ = h.from.CloseWrite()
			return
		case <-time.After(5 * time.Millisecond):
		}
		binary.BigEndian.PutUint64(b, n)
		_, err := h.from.Write(b)
		n, goesOn = h.note(&h.sent, err)
	}
}

func (h *halfClosed) receive() {
	b := make([]byte, 8)
	for n, goesOn := uint64(0), true; goesOn; {
		_, err := io.ReadFull(h.to, b)
		if errors.Is(err, io.EOF) {
			return
		}
		if got := binary.BigEndian.Uint64(b); err == nil && got != n {
			err = fmt.Errorf("got number %d, want %d", got, n)
		}
		n, goesOn = h.note(&h.received, err)
	}
}

func (h *halfClosed) result() (sent, received uint64, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sent, h.received, h.err
}

// moreOf waits until each of the connections has got on.
func (s *pathScene) moreOf(list []*halfClosed, when string) {
	s.T.Helper()
	testutil.WaitForMore(s.T, soon, "half-closed connections to go on "+when, 3, func() (counts []uint64) {
		for _, h := range list {
			_, received, err := h.result()
			if err != nil {
				s.T.Fatalf("%s %s: %v", h.what, when, err)
			}
			counts = append(counts, received)
		}
		return counts
	})
}

// end demands that everything that was sent has come.
func (s *pathScene) end(list []*halfClosed) {
	s.T.Helper()
	for _, h := range list {
		close(h.done)
		if err := h.to.SetReadDeadline(time.Now().Add(soon)); err != nil {
			s.T.Error(err)
		}
		h.group.Wait()
		if sent, received, err := h.result(); sent != received || err != nil {
			s.T.Errorf("%s: %d sent, %d received, %v", h.what, sent, received, err)
		}
	}
}

// TestHalfClosedConnectionsOutliveSwitches: over all paths, closed by either end, while the other one sends.
func TestHalfClosedConnectionsOutliveSwitches(t *testing.T) {
	s := newPathScene(t)
	var list []*halfClosed
	for _, p := range s.paths {
		one, other := s.open(p), s.open(p)
		list = append(list, s.halfClose(one, one.responder, one.opener), s.halfClose(other, other.opener, other.responder))
	}
	for i := range switches(t) {
		s.moreOf(list, s.switchTo(modes[i%len(modes)]))
	}
	s.end(list)
}

// TestAHalfClosedConnectionOutlivesASwitchBesideAnOldEntry: the kernel remembers a connection by a Service that has ended. A pod has
// another one with the same ends by the shortcut, of which the kernel knows nothing. The pod has sent its last there, and still receives.
func TestAHalfClosedConnectionOutlivesASwitchBesideAnOldEntry(t *testing.T) {
	s := newPathScene(t, modes[0]...)
	onePort := func() error {
		return os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("40000 40000"), 0o644)
	}
	if err := s.client.Do(onePort); err != nil {
		t.Fatal(err)
	}
	for _, p := range s.named("pod by a Service") {
		c := s.open(p)
		if err := c.opener.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := c.responder.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		if err := c.responder.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s.switchTo(modes[1])
	var list []*halfClosed
	for _, p := range s.named("pod to pod") {
		c := s.open(p)
		list = append(list, s.halfClose(c, c.responder, c.opener))
	}
	s.moreOf(list, s.switchTo(modes[2]))
	s.end(list)
}
