package traffic

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/margay-project/margay/pkg/lab"
)

// OpenTCP connects from the host to dst within the timeout. The caller closes the connection; the lab does if it does
// not. To learn only how an attempt ends, use echo.DialTCP.
func OpenTCP(h *lab.Host, dst netip.AddrPort, timeout time.Duration) (net.Conn, error) {
	c, err := open(h, net.Dialer{Timeout: timeout}, "tcp", dst)
	if err != nil {
		return nil, err
	}
	return owned(h, c)
}

// OpenUDP connects a UDP socket of the host to dst, so that ICMP errors reach it. Ownership as with OpenTCP.
func OpenUDP(h *lab.Host, dst netip.AddrPort) (net.Conn, error) {
	c, err := open(h, net.Dialer{}, "udp", dst)
	if err != nil {
		return nil, err
	}
	return owned(h, c)
}

// open connects a socket of the host, which the caller owns.
func open(h *lab.Host, d net.Dialer, network string, dst netip.AddrPort) (c net.Conn, err error) {
	err = h.Do(func() error { c, err = d.Dial(network, dst.String()); return err })
	if err != nil {
		return nil, fmt.Errorf("connect from %s: %w", h.Name(), err)
	}
	return c, nil
}

// ListenPackets opens a UDP socket on all addresses of the host, for a server of the caller's own; port 0 takes a free
// one. The caller closes it.
func ListenPackets(h *lab.Host, port uint16) (c *net.UDPConn, err error) {
	err = h.Do(func() error { c, err = net.ListenUDP("udp", &net.UDPAddr{Port: int(port)}); return err })
	if err != nil {
		return nil, fmt.Errorf("listen in %s: %w", h.Name(), err)
	}
	return c, nil
}

// ownedConn leaves its host's books when it is closed.
type ownedConn struct {
	net.Conn
	host *lab.Host
}

func owned(h *lab.Host, c net.Conn) (net.Conn, error) {
	o := &ownedConn{c, h}
	if err := h.Adopt(o); err != nil {
		return nil, err
	}
	return o, nil
}

func (c *ownedConn) Close() error {
	c.host.Release(c)
	return c.Conn.Close()
}
