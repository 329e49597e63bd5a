// Command sctp takes the place of agnhost's SCTP on kernels without sockets of it: `sctp serve PORT...` answers associations, and `sctp connect
// ADDRESS:PORT TIMEOUT` makes one. Both do the handshake of RFC 9260, section 5.1, over raw sockets, and nothing else; IPv4 only. It is enough for
// tests that ask whether SCTP gets through.
package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		text := "OTHER: " + err.Error()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			text = "TIMEOUT" // as agnhost says it
		}
		fmt.Fprintln(os.Stderr, text)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 3 && args[0] == "connect" {
		to, err := netip.ParseAddrPort(args[1])
		if err != nil {
			return err
		}
		timeout, err := time.ParseDuration(args[2])
		if err != nil {
			return err
		}
		return connect(to, timeout)
	}
	if len(args) < 2 || args[0] != "serve" {
		return errors.New("usage: sctp serve PORT..., or sctp connect ADDRESS:PORT TIMEOUT")
	}
	ports := map[uint16]bool{}
	for _, text := range args[1:] {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return err
		}
		ports[uint16(port)] = true
	}
	return serve(ports)
}

// serve answers each packet that needs no memory of others: the cookie of the handshake is the peer's tag.
func serve(ports map[uint16]bool) error {
	c, err := net.ListenIP("ip4:132", nil)
	if err != nil {
		return err
	}
	defer c.Close()
	b := make([]byte, 1500)
	for {
		n, from, err := c.ReadFromIP(b)
		if err != nil {
			return err
		}
		p, ok := parse(b[:n])
		if !ok || !ports[p.to] {
			continue
		}
		if answer, ok := p.answer(); ok {
			// What cannot be sent is like what is lost.
			_, _ = c.WriteToIP(answer.bytes(), from)
		}
	}
}

// connect repeats the next packet of the handshake until it is over.
func connect(to netip.AddrPort, timeout time.Duration) error {
	c, err := net.ListenIP("ip4:132", nil)
	if err != nil {
		return err
	}
	defer c.Close()
	end := time.Now().Add(timeout)
	next := packet{from: uint16(32768 + rand.IntN(28000)), to: to.Port(), chunk: chunkInit, own: rand.Uint32()}
	tag := next.own
	b := make([]byte, 1500)
	for time.Now().Before(end) {
		if _, err := c.WriteToIP(next.bytes(), &net.IPAddr{IP: to.Addr().AsSlice()}); err != nil {
			return err
		}
		if err := c.SetReadDeadline(time.Now().Add(min(time.Until(end), 500*time.Millisecond))); err != nil {
			return err
		}
		for {
			n, _, err := c.ReadFromIP(b) // which leaves out the IP header
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return err
			}
			p, ok := parse(b[:n])
			if !ok || p.from != next.to || p.to != next.from || p.tag != tag {
				continue
			}
			if p.chunk == chunkCookieAck {
				return nil
			}
			if p.chunk == chunkInitAck {
				next = packet{from: next.from, to: next.to, tag: p.own, chunk: chunkCookieEcho, cookie: p.cookie}
				break
			}
		}
	}
	return os.ErrDeadlineExceeded
}
