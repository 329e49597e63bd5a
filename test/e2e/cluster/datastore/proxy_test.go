package datastore

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// proxy is between a source and a server: it cuts the way, or makes it long.
type proxy struct {
	to       string
	listener net.Listener

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	shut  bool
	delay time.Duration // of each direction
}

func newProxy(t testing.TB, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{to: to, listener: l, conns: map[net.Conn]struct{}{}}
	t.Cleanup(func() { l.Close(); p.cut() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

// cut ends all connections and lets none through; open lets them through again.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = true
	for c := range p.conns {
		c.Close()
	}
}

func (p *proxy) open() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut = false
}

func (p *proxy) slow(delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = delay
}

func (p *proxy) serve(a net.Conn) {
	defer a.Close()
	b, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer b.Close()
	p.mu.Lock()
	if p.shut {
		p.mu.Unlock()
		return
	}
	p.conns[a], p.conns[b] = struct{}{}, struct{}{}
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.copy(a, b) })
	both.Go(func() { p.copy(b, a) })
	both.Wait()
	p.mu.Lock()
	delete(p.conns, a)
	delete(p.conns, b)
	p.mu.Unlock()
}

// copy hands on what comes, after the delay.
func (p *proxy) copy(to, from net.Conn) {
	type piece struct {
		bytes []byte
		due   time.Time
	}
	pieces := make(chan piece, 10000)
	go func() {
		defer close(pieces)
		for {
			buffer := make([]byte, 32<<10)
			n, err := from.Read(buffer)
			p.mu.Lock()
			due := time.Now().Add(p.delay)
			p.mu.Unlock()
			if n > 0 {
				pieces <- piece{buffer[:n], due}
			}
			if err != nil {
				return
			}
		}
	}()
	for piece := range pieces {
		time.Sleep(time.Until(piece.due))
		if _, err := to.Write(piece.bytes); err != nil {
			break
		}
	}
	to.Close()
	from.Close()
	_, _ = io.Copy(io.Discard, from)
	for range pieces {
	}
}
