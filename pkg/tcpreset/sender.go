package tcpreset

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Sender sends resets by raw sockets of one network namespace. Its packets pass the rules and the address translation like the
// node's own, so a reset of a translated connection arrives from the address that its receiver knows. It is safe for concurrent use.
type Sender struct{ v4, v6 int }

// Open opens the sockets in the calling thread's network namespace. It needs the capability NET_RAW.
func Open() (*Sender, error) {
	v4, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW)
	if err != nil {
		return nil, fmt.Errorf("open a raw socket of IPv4: %w", err)
	}
	v6, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW)
	if errors.Is(err, unix.EAFNOSUPPORT) { // a node without IPv6
		return &Sender{v4, -1}, nil
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a raw socket of IPv6: %w", err), unix.Close(v4))
	}
	return &Sender{v4, v6}, nil
}

// Close closes the sockets.
func (s *Sender) Close() error {
	err := unix.Close(s.v4)
	if s.v6 >= 0 {
		err = errors.Join(err, unix.Close(s.v6))
	}
	return err
}

// send ends the connection of a segment at its receiver.
func (s *Sender) send(of segment) error {
	dst := of.dst
	fd, to := s.v4, unix.Sockaddr(nil)
	if dst.Is4() {
		to = &unix.SockaddrInet4{Addr: dst.As4()}
	} else {
		fd, to = s.v6, &unix.SockaddrInet6{Addr: dst.As16()}
	}
	if fd < 0 {
		return fmt.Errorf("reset a connection at %v: the node has no IPv6", dst)
	}
	for _, r := range of.resets() {
		if err := unix.Sendto(fd, r, 0, to); err != nil {
			return fmt.Errorf("reset a connection at %v: %w", dst, err)
		}
	}
	return nil
}
