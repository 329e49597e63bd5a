package health

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"
)

// idle opens a connection that sends nothing.
func idle(t *testing.T, address string) net.Conn {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err == nil {
			t.Cleanup(func() { conn.Close() })
			return conn
		}
		<-tick.C
	}
	t.Fatalf("%s cannot be reached", address)
	return nil
}

// closed reports whether the server closes a connection. One that is wanted may take its time on a busy machine.
func closed(t *testing.T, conn net.Conn, want bool) bool {
	t.Helper()
	patience := time.Second
	if want {
		patience = time.Minute
	}
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	_, err := conn.Read(make([]byte, 1))
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// A client that holds as many connections as it can must not keep the kubelet's probe from its answer, nor cost memory
// without bound.
func TestClientsThatHoldConnectionsMakeRoomForOthers(t *testing.T) {
	t.Parallel()
	address := ownAddress()
	s := start(t, address, http.HandlerFunc(hello))
	first := idle(t, address)
	for range mostConnections - 1 {
		idle(t, address)
	}
	if closed(t, first, false) {
		t.Error("the first connection is closed while there is room")
	}
	last := idle(t, address)
	if !closed(t, first, true) {
		t.Error("the oldest connection is still open past the limit")
	}
	if got := get(t, "http://"+address); got != "hello" {
		t.Errorf("answer %q", got)
	}
	if closed(t, last, false) {
		t.Error("a new connection is closed before the older ones")
	}
	s.stop(t)
}

// pipes is a listener of connections in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func TestALimitedListenerKeepsTheNewestConnections(t *testing.T) {
	inner := make(pipes, 1)
	l := limit(inner, 2)
	accept := func() net.Conn {
		here, there := net.Pipe()
		t.Cleanup(func() { there.Close() })
		inner <- here
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	isOpen := func(conn net.Conn) bool { return !errors.Is(conn.SetDeadline(time.Time{}), io.ErrClosedPipe) }
	a, b := accept(), accept()
	a.Close()
	a.Close()
	c := accept()
	if !isOpen(b) || !isOpen(c) {
		t.Error("the place of a closed connection is not free")
	}
	d := accept()
	if isOpen(b) || !isOpen(c) || !isOpen(d) || l.open.Len() != 2 {
		t.Errorf("open: %v %v %v, want the two newest; %d are recorded", isOpen(b), isOpen(c), isOpen(d), l.open.Len())
	}
	inner.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener: %v", err)
	}
}
