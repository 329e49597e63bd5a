// Package traffic is what tests and benchmarks send between the hosts of a lab, and how they watch it: raw packets, pings, floods, SCTP,
// connections of their own, captures, and what runs for a while and counts. All of it closes with its host.
package traffic

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// sockaddr is an address for the raw calls.
func sockaddr(a netip.Addr) unix.Sockaddr {
	if a.Is6() {
		return &unix.SockaddrInet6{Addr: a.As16()}
	}
	return &unix.SockaddrInet4{Addr: a.As4()}
}
