package traffic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// Ping sends one ICMP or ICMPv6 echo request from the host and waits for its reply. It uses an ICMP datagram socket, whose identifier
// and checksum the kernel fills in and to which it gives only the replies that belong to it.
func Ping(h *lab.Host, dst netip.Addr, timeout time.Duration) echo.Attempt {
	return PingFrom(h, netip.Addr{}, dst, timeout)
}

// PingFrom is Ping from one of the host's addresses.
func PingFrom(h *lab.Host, src, dst netip.Addr, timeout time.Duration) echo.Attempt {
	start := time.Now()
	err := ping(h, src, dst, start.Add(timeout))
	a := echo.Attempt{Outcome: echo.OutcomeOf(err), Took: time.Since(start)}
	if err != nil {
		a.Err = fmt.Errorf("ping %s from %s: %w", dst, h.Name(), err)
	}
	return a
}

func ping(h *lab.Host, src, dst netip.Addr, deadline time.Time) error {
	c, err := echoSocket(h, src, dst)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(deadline); err != nil {
		return err
	}
	request, reply := byte(8), byte(0)
	if dst.Is6() {
		request, reply = 128, 129
	}
	message := make([]byte, 16) // type, code, checksum, identifier, sequence number, then payload
	message[0] = request
	binary.BigEndian.PutUint16(message[6:], 1)
	if _, err := c.Write(message); err != nil {
		return err
	}
	answer := make([]byte, 64)
	n, err := c.Read(answer)
	if err != nil {
		return err
	}
	if n < 8 || answer[0] != reply {
		return fmt.Errorf("answer of %d bytes is not an echo reply", n)
	}
	return nil
}

func echoSocket(h *lab.Host, src, dst netip.Addr) (net.Conn, error) {
	family, protocol := unix.AF_INET, unix.IPPROTO_ICMP
	if dst.Is6() {
		family, protocol = unix.AF_INET6, unix.IPPROTO_ICMPV6
	}
	var fd int
	err := h.Do(func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
		return os.NewSyscallError("socket", err)
	})
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "icmp")
	defer f.Close() // FileConn works on a copy
	if src.IsValid() {
		if err := unix.Bind(fd, sockaddr(src)); err != nil {
			return nil, os.NewSyscallError("bind", err)
		}
	}
	if err := unix.Connect(fd, sockaddr(dst)); err != nil {
		return nil, os.NewSyscallError("connect", err)
	}
	c, err := net.FileConn(f)
	if err != nil {
		return nil, errors.Join(errors.New("wrap ICMP socket"), err)
	}
	return c, nil
}
