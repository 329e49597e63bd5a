package policytest

import (
	"net/netip"

	"github.com/margay-project/margay/pkg/compile/classes"
)

// Entries is the kernel's side of classes.Classes: what was written, and how a packet looks it up.
type Entries map[netip.Prefix]classes.AddrChange

// Write does one write of an address entry.
func (e Entries) Write(a classes.AddrChange) {
	if a.Gone {
		delete(e, a.Prefix)
		return
	}
	e[a.Prefix] = a
}

// Lookup returns the innermost entry around an address.
func (e Entries) Lookup(a netip.Addr) classes.AddrChange {
	for n := a.BitLen(); n >= 0; n-- {
		p, _ := a.Prefix(n)
		if got, ok := e[p]; ok {
			return got
		}
	}
	if a.Is4() {
		return classes.AddrChange{Class: classes.None4}
	}
	return classes.AddrChange{Class: classes.None6}
}

// Clone returns a copy.
func (e Entries) Clone() Entries {
	c := Entries{}
	for p, a := range e {
		c[p] = a
	}
	return c
}
