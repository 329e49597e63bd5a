// Package echo has servers in the hosts of a lab that echo what they get, and clients of them, which report how each attempt
// ends: single connections and datagrams, and a Stream. It is what margay demo and tests have in common; what tests alone
// send is in internal/traffic. Servers and streams close with their host.
package echo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/margay-project/margay/pkg/lab"
)

// MaxBanner is how many bytes the name of a server has at most, with its line end.
const MaxBanner = 256

// Server is an echo server in a host, on all its addresses of both families. Over TCP it first sends a line with its
// name and then echoes; over UDP it answers each datagram with its name, a line end and the datagram.
type Server struct {
	name string
	host *lab.Host
	port uint16

	accepted atomic.Uint64
	received atomic.Uint64

	listener net.Listener   // TCP
	packets  *net.UDPConn   // UDP
	running  sync.WaitGroup // the loop, and one per connection

	mu     sync.Mutex
	conns  map[net.Conn]struct{} // nil once closed
	closed error
}

// ListenTCP starts a TCP echo server in the host; port 0 takes a free one.
func ListenTCP(h *lab.Host, port uint16) (*Server, error) {
	// Go's listeners speak MPTCP by default; plain TCP is what pods speak.
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	s := &Server{host: h, conns: map[net.Conn]struct{}{}}
	err := h.Do(func() (err error) {
		s.listener, err = lc.Listen(context.Background(), "tcp", fmt.Sprintf(":%d", port))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen in %s: %w", h.Name(), err)
	}
	s.port = netip.MustParseAddrPort(s.listener.Addr().String()).Port()
	s.name = fmt.Sprintf("%s:%d/tcp", h.Name(), s.port)
	s.running.Add(1)
	go s.accept()
	if err := h.Adopt(s); err != nil {
		return nil, err
	}
	return s, nil
}

// ListenUDP starts a UDP echo server in the host; port 0 takes a free one. On a host with several addresses of a family it may
// answer from another than was asked: see ListenUDPAt.
func ListenUDP(h *lab.Host, port uint16) (*Server, error) {
	return ListenUDPAt(h, netip.Addr{}, port)
}

// ListenUDPAt is ListenUDP on one address of the host only.
func ListenUDPAt(h *lab.Host, a netip.Addr, port uint16) (*Server, error) {
	s := &Server{host: h, conns: map[net.Conn]struct{}{}}
	at := &net.UDPAddr{IP: a.AsSlice(), Port: int(port)}
	err := h.Do(func() (err error) { s.packets, err = net.ListenUDP("udp", at); return err })
	if err != nil {
		return nil, fmt.Errorf("listen in %s: %w", h.Name(), err)
	}
	if err := lab.MakeRoom(s.packets); err != nil {
		return nil, errors.Join(fmt.Errorf("listen in %s: %w", h.Name(), err), s.packets.Close())
	}
	s.port = netip.MustParseAddrPort(s.packets.LocalAddr().String()).Port()
	s.name = fmt.Sprintf("%s:%d/udp", h.Name(), s.port)
	s.running.Add(1)
	go s.answer()
	if err := h.Adopt(s); err != nil {
		return nil, err
	}
	return s, nil
}

// Name is what the server calls itself: host name:port/protocol.
func (s *Server) Name() string { return s.name }

// Port is the port it listens on.
func (s *Server) Port() uint16 { return s.port }

// Addr4 is where to reach it over IPv4; the zero port pair if its host has no IPv4 address.
func (s *Server) Addr4() netip.AddrPort { return s.addr(s.host.Addr4()) }

// Addr6 is the same over IPv6.
func (s *Server) Addr6() netip.AddrPort { return s.addr(s.host.Addr6()) }

func (s *Server) addr(a netip.Addr) netip.AddrPort {
	if !a.IsValid() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a, s.port)
}

// Accepted is how many TCP connections were accepted, ever: the server's side of the clients' counts.
func (s *Server) Accepted() uint64 { return s.accepted.Load() }

// Received is how many datagrams came in, ever.
func (s *Server) Received() uint64 { return s.received.Load() }

// Close closes the socket and all connections and waits until the server's goroutines are done.
func (s *Server) Close() error {
	s.host.Release(s)
	s.mu.Lock()
	conns := s.conns
	s.conns = nil
	s.mu.Unlock()
	if conns == nil {
		return s.closed
	}
	if s.listener != nil {
		s.closed = s.listener.Close()
	} else {
		s.closed = s.packets.Close()
	}
	for c := range conns {
		c.Close() // its own goroutine closes it too; which of them is first does not matter
	}
	s.running.Wait()
	return s.closed
}

func (s *Server) accept() {
	defer s.running.Done()
	for {
		c, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // of the one connection: it was reset before it was accepted
		}
		s.accepted.Add(1)
		s.mu.Lock()
		if s.conns == nil {
			s.mu.Unlock()
			c.Close()
			return
		}
		s.conns[c] = struct{}{}
		s.running.Add(1)
		s.mu.Unlock()
		go s.echo(c)
	}
}

// echo ends when either side closes.
func (s *Server) echo(c net.Conn) {
	defer s.running.Done()
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		c.Close()
	}()
	if _, err := io.WriteString(c, s.name+"\n"); err != nil {
		return
	}
	b := make([]byte, 16<<10)
	for {
		n, err := c.Read(b)
		if err != nil {
			return
		}
		if _, err := c.Write(b[:n]); err != nil {
			return
		}
	}
}

func (s *Server) answer() {
	defer s.running.Done()
	b := make([]byte, 64<<10)
	prefix := append([]byte(s.name), '\n')
	for {
		n, from, err := s.packets.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error about an earlier answer
		}
		s.received.Add(1)
		// An answer that cannot be sent is a lost one to the client, which counts it.
		_, _ = s.packets.WriteToUDPAddrPort(append(prefix[:len(prefix):len(prefix)], b[:n]...), from)
	}
}
