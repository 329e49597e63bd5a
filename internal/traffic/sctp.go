package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/lab"
)

// SCTP is a one-to-one SCTP socket of a host, as listener or as one end of an association. The net package knows none. It
// is not safe for concurrent use.
type SCTP struct {
	host *lab.Host
	fd   int
}

// SCTPMissing is why hosts cannot have SCTP sockets on this kernel; nil: they can.
func SCTPMissing() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err != nil {
		return fmt.Errorf("open an SCTP socket: %w", err)
	}
	return unix.Close(fd)
}

// ListenSCTP listens on an address of the host.
func ListenSCTP(h *lab.Host, at netip.AddrPort) (*SCTP, error) {
	s, err := newSCTP(h, at)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(unix.Bind(s.fd, sctpAddr(at)), unix.Listen(s.fd, 16)); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", at, err), s.Close())
	}
	return s, nil
}

// DialSCTP makes an association with dst. An error that is os.ErrDeadlineExceeded: there was no answer in time.
func DialSCTP(h *lab.Host, dst netip.AddrPort, timeout time.Duration) (*SCTP, error) {
	s, err := newSCTP(h, dst)
	if err != nil {
		return nil, err
	}
	if err := s.timeout(unix.SO_SNDTIMEO, timeout); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := unix.Connect(s.fd, sctpAddr(dst)); err != nil {
		if errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EAGAIN) {
			err = os.ErrDeadlineExceeded
		}
		return nil, errors.Join(fmt.Errorf("associate with %s from %s: %w", dst, h.Name(), err), s.Abort())
	}
	return s, nil
}

func newSCTP(h *lab.Host, a netip.AddrPort) (*SCTP, error) {
	family := unix.AF_INET
	if a.Addr().Is6() {
		family = unix.AF_INET6
	}
	s := &SCTP{host: h, fd: -1}
	err := h.Do(func() (err error) {
		s.fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open an SCTP socket in %s: %w", h.Name(), err)
	}
	return s, h.Adopt(s)
}

func sctpAddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

func (s *SCTP) timeout(option int, d time.Duration) error {
	limit := unix.NsecToTimeval(d.Nanoseconds())
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, option, &limit); err != nil {
		return fmt.Errorf("set a timeout of an SCTP socket: %w", err)
	}
	return nil
}

// Accept waits for an association. os.ErrDeadlineExceeded: none came in time.
func (s *SCTP) Accept(timeout time.Duration) (*SCTP, error) {
	if err := s.timeout(unix.SO_RCVTIMEO, timeout); err != nil {
		return nil, err
	}
	fd, _, err := unix.Accept4(s.fd, unix.SOCK_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("accept in %s: %w", s.host.Name(), late(err))
	}
	accepted := &SCTP{host: s.host, fd: fd}
	return accepted, s.host.Adopt(accepted)
}

// Send queues one message.
func (s *SCTP) Send(text string) error {
	if err := unix.Sendto(s.fd, []byte(text), unix.MSG_NOSIGNAL, nil); err != nil {
		return fmt.Errorf("send from %s: %w", s.host.Name(), err)
	}
	return nil
}

// Receive waits for one message. os.ErrDeadlineExceeded: none came in time. Empty: the association has ended in order.
func (s *SCTP) Receive(timeout time.Duration) (string, error) {
	if err := s.timeout(unix.SO_RCVTIMEO, timeout); err != nil {
		return "", err
	}
	b := make([]byte, 4096)
	n, _, err := unix.Recvfrom(s.fd, b, 0)
	if err != nil {
		return "", fmt.Errorf("receive in %s: %w", s.host.Name(), late(err))
	}
	return string(b[:n]), nil
}

func late(err error) error {
	if errors.Is(err, unix.EAGAIN) {
		return os.ErrDeadlineExceeded
	}
	return err
}

// Abort ends the association by an ABORT instead of in order.
func (s *SCTP) Abort() error {
	err := unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	return errors.Join(err, s.Close())
}

// Close ends the association in order, and does not wait for that. Further calls do nothing.
func (s *SCTP) Close() error {
	if s.fd < 0 {
		return nil
	}
	fd := s.fd
	s.fd = -1
	s.host.Release(s)
	return unix.Close(fd)
}
