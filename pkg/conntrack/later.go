package conntrack

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
)

// limitFile is there while the kernel has a table of connections.
const limitFile = "/proc/sys/net/netfilter/nf_conntrack_max"

// Later is the table of a network namespace in which the kernel may not track connections, or not yet. A request would make the kernel
// load its modules for that, so Later makes none before the kernel has the table. It is for one goroutine.
type Later struct {
	there func() (bool, error)
	open  func() (*Conn, error)
	conn  *Conn // nil: the table was not there yet
}

// OpenLater returns the table of the calling process's network namespace. It opens nothing yet.
func OpenLater() *Later { return &Later{there: IsThere, open: Open} }

// IsThere reports whether the kernel has a table of connections.
func IsThere() (bool, error) {
	_, err := os.Stat(limitFile)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, failed("look for the kernel's table of", nil, err)
}

// connect returns the connection to the table; nil: the kernel has no table.
func (l *Later) connect() (*Conn, error) {
	if there, err := l.there(); !there || err != nil {
		return nil, err
	}
	if l.conn != nil {
		return l.conn, nil
	}
	c, err := l.open()
	if err != nil {
		return nil, err
	}
	l.conn = c
	return c, nil
}

// Usage is that of Conn; limit 0: the kernel has no table.
func (l *Later) Usage() (entries, limit uint32, err error) {
	c, err := l.connect()
	if c == nil {
		return 0, 0, err
	}
	return c.Usage()
}

// Dump is that of Conn. Without a table there are no entries.
func (l *Later) Dump(f Family, filter Filter, each func(Entry)) error {
	c, err := l.connect()
	if c == nil {
		return err
	}
	return c.Dump(f, filter, each)
}

// Delete is that of Conn. Without a table the entries no longer exist.
func (l *Later) Delete(entries []Entry) []error {
	c, err := l.connect()
	if c != nil {
		return c.Delete(entries)
	}
	if err == nil {
		err = ErrNoEntry
	}
	errs := make([]error, len(entries))
	for i := range errs {
		errs[i] = failed("delete", &entries[i].Original, err)
	}
	return errs
}

// DeleteAddresses is that of Conn. Without a table there are no entries.
func (l *Later) DeleteAddresses(f Family, of func(netip.Addr) bool) (deleted int, err error) {
	c, err := l.connect()
	if c == nil {
		return 0, err
	}
	return c.DeleteAddresses(f, of)
}

// Close releases the sockets.
func (l *Later) Close() error {
	if l.conn == nil {
		return nil
	}
	return l.conn.Close()
}
