package lab

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
)

// sockets are the open sockets of a host. They are closed with the host.
type sockets struct {
	host string

	mu   sync.Mutex
	open map[io.Closer]struct{} // nil once closed
}

func newSockets(host string) *sockets {
	return &sockets{host: host, open: map[io.Closer]struct{}{}}
}

// add makes close close c too. It closes c itself, and fails, if close has been called already.
func (s *sockets) add(c io.Closer) error {
	s.mu.Lock()
	open := s.open != nil
	if open {
		s.open[c] = struct{}{}
	}
	s.mu.Unlock()
	if !open {
		return errors.Join(fmt.Errorf("host %s is closed", s.host), c.Close())
	}
	return nil
}

// forget leaves c to its owner, who closes it.
func (s *sockets) forget(c io.Closer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
}

// close closes all open sockets; nothing can be added afterwards.
func (s *sockets) close() error {
	s.mu.Lock()
	open := s.open
	s.open = nil
	s.mu.Unlock()
	var errs []error
	for c := range open {
		if err := c.Close(); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrClosed) {
			errs = append(errs, fmt.Errorf("close a socket of %s: %w", s.host, err))
		}
	}
	return errors.Join(errs...)
}
