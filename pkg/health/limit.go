package health

import (
	"container/list"
	"net"
	"sync"
)

// limitedListener is a listener with a limit of open connections. A client can open any number of them and leave them idle,
// and each costs some 20 KiB. A further one closes the oldest, so that new probes are answered. Safe for concurrent use.
type limitedListener struct {
	net.Listener
	most int

	mu   sync.Mutex // guards all below
	open list.List  // of *limitedConn, oldest first
}

// limitedConn is a connection of a limitedListener.
type limitedConn struct {
	net.Conn
	listener *limitedListener
	place    *list.Element
}

// limit returns a listener that keeps at most the given number of connections of inner open.
func limit(inner net.Listener, most int) *limitedListener {
	return &limitedListener{Listener: inner, most: most}
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &limitedConn{Conn: conn, listener: l}
	if oldest := l.add(c); oldest != nil {
		oldest.Close()
	}
	return c, nil
}

// add records a connection and returns the one to close for it, or nil.
func (l *limitedListener) add(c *limitedConn) *limitedConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.place = l.open.PushBack(c)
	if l.open.Len() <= l.most {
		return nil
	}
	oldest, _ := l.open.Remove(l.open.Front()).(*limitedConn)
	return oldest
}

// Close implements net.Conn. It may be called more than once.
func (c *limitedConn) Close() error {
	c.listener.mu.Lock()
	c.listener.open.Remove(c.place) // does nothing the second time
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
