package echo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/lab"
)

// dialTCP connects from src, whose address and port may be zero: any.
func dialTCP(ctx context.Context, h *lab.Host, src, dst netip.AddrPort, timeout time.Duration) (c net.Conn, err error) {
	d := net.Dialer{Timeout: timeout}
	if src.Addr().IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(src)
		d.Control = reuseAddress // an earlier connection from the port may be in TIME-WAIT
	}
	err = h.Do(func() error { c, err = d.DialContext(ctx, "tcp", dst.String()); return err })
	if err != nil {
		return nil, fmt.Errorf("connect from %s: %w", h.Name(), err)
	}
	return c, nil
}

func reuseAddress(_, _ string, c syscall.RawConn) (err error) {
	failed := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) })
	return errors.Join(failed, err)
}

func dialUDP(h *lab.Host, src, dst netip.AddrPort) (c net.Conn, err error) {
	var d net.Dialer
	if src.Addr().IsValid() {
		d.LocalAddr = net.UDPAddrFromAddrPort(src)
	}
	err = h.Do(func() error { c, err = d.Dial("udp", dst.String()); return err })
	if err != nil {
		return nil, fmt.Errorf("open a UDP socket in %s: %w", h.Name(), err)
	}
	return c, nil
}

// DialTCP makes one TCP connection from the host to a server (ListenTCP), reads its banner and closes. The outcome is
// Connected only if the banner came, all within the timeout. A timeout under one second means that a lost SYN shows as
// Timeout, since the kernel has not sent it again yet.
func DialTCP(h *lab.Host, dst netip.AddrPort, timeout time.Duration) Attempt {
	return DialTCPFrom(h, netip.AddrPort{}, dst, timeout)
}

// DialTCPFrom is DialTCP from one of the host's addresses; port 0 takes a free one.
func DialTCPFrom(h *lab.Host, src, dst netip.AddrPort, timeout time.Duration) Attempt {
	start := time.Now()
	c, err := dialTCP(context.Background(), h, src, dst, timeout)
	if err != nil {
		// A reset that comes before connect has returned is still one after the handshake: one to the SYN is a refusal.
		o := OutcomeOf(err)
		return Attempt{Outcome: o, Established: o == Reset, Took: time.Since(start), Err: err}
	}
	defer c.Close()
	a := Attempt{Established: true}
	a.Server, err = readBanner(c, start.Add(timeout))
	a.Retransmits = retransmits(c)
	a.Outcome, a.Took = OutcomeOf(err), time.Since(start)
	if err != nil {
		a.Err = fmt.Errorf("read banner of %s from %s: %w", dst, h.Name(), err)
	}
	return a
}

// readBanner reads one line, byte by byte so that nothing after it is lost.
func readBanner(c net.Conn, deadline time.Time) (string, error) {
	if err := c.SetReadDeadline(deadline); err != nil {
		return "", err
	}
	var line []byte
	b := make([]byte, 1)
	for len(line) < MaxBanner {
		if _, err := c.Read(b); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return "", err
		}
		if b[0] == '\n' {
			return string(line), c.SetReadDeadline(time.Time{})
		}
		line = append(line, b[0])
	}
	return "", errors.New("no line end in banner")
}

// ExchangeUDP sends one datagram from the host to a server (ListenUDP) and waits for its answer. Nothing is sent
// again: the outcome is that of the one datagram and its one answer.
func ExchangeUDP(h *lab.Host, dst netip.AddrPort, payload []byte, timeout time.Duration) Attempt {
	return ExchangeUDPFrom(h, netip.AddrPort{}, dst, payload, timeout)
}

// ExchangeUDPFrom is ExchangeUDP from one of the host's addresses; port 0 takes a free one.
func ExchangeUDPFrom(h *lab.Host, src, dst netip.AddrPort, payload []byte, timeout time.Duration) Attempt {
	start := time.Now()
	server, err := exchangeUDP(h, src, dst, payload, start.Add(timeout))
	a := Attempt{Outcome: OutcomeOf(err), Server: server, Took: time.Since(start)}
	if err != nil {
		a.Err = fmt.Errorf("exchange datagrams between %s and %s: %w", h.Name(), dst, err)
	}
	return a
}

func exchangeUDP(h *lab.Host, src, dst netip.AddrPort, payload []byte, deadline time.Time) (string, error) {
	c, err := dialUDP(h, src, dst)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := c.Write(payload); err != nil {
		return "", err
	}
	b := make([]byte, len(payload)+MaxBanner)
	n, err := c.Read(b)
	if err != nil {
		return "", err
	}
	server, echoed, ok := bytes.Cut(b[:n], []byte{'\n'})
	if !ok || !bytes.Equal(echoed, payload) {
		return "", fmt.Errorf("answer of %d bytes is not an echo", n)
	}
	return string(server), nil
}
