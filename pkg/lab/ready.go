package lab

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
)

// The kernel finishes two things later and elsewhere, and drops packets until it has: it turns a new carrier into a
// working queue, and joins an IPv6 address's solicited-node group, without which neighbours cannot find it for a second.
const readyLimit = 30 * time.Second

// ready waits until an interface that is up, as its peer is, can send and is found under its addresses.
func (l *links) ready(iface string, addrs ...netip.Addr) error {
	over := time.NewTimer(readyLimit)
	defer over.Stop()
	again := time.NewTicker(200 * time.Microsecond)
	defer again.Stop()
	for {
		missing, err := l.unready(iface, addrs)
		if err != nil || missing == "" {
			return err
		}
		select {
		case <-again.C:
		case <-over.C:
			return fmt.Errorf("interface %s of %s is not ready after %v: %s", iface, l.host, readyLimit, missing)
		}
	}
}

// unready describes what the links still lack; empty: nothing.
func (l *links) unready(iface string, addrs []netip.Addr) (string, error) {
	link, err := l.handle.LinkByName(iface)
	if err != nil {
		return "", fmt.Errorf("find interface %s of %s: %w", iface, l.host, err)
	}
	if state := link.Attrs().OperState; state != netlink.OperUp {
		return "it is " + state.String(), nil
	}
	var groups []byte
	err = l.space.Do(func() (err error) {
		groups, err = os.ReadFile("/proc/thread-self/net/igmp6")
		return err
	})
	if err != nil {
		return "", fmt.Errorf("list multicast groups of %s: %w", l.host, err)
	}
	joined := map[string]bool{}
	for _, line := range strings.Split(string(groups), "\n") {
		if f := strings.Fields(line); len(f) > 2 && f[1] == iface {
			joined[f[2]] = true
		}
	}
	for _, a := range addrs {
		if a.Is6() && !joined[solicitedNode(a)] {
			return "it has not joined the solicited-node group of " + a.String(), nil
		}
	}
	return "", nil
}

// solicitedNode is the group ff02::1:ffxx:xxxx of an address, in hexadecimal digits.
func solicitedNode(a netip.Addr) string {
	b := a.As16()
	return "ff0200000000000000000001ff" + hex.EncodeToString(b[13:])
}
