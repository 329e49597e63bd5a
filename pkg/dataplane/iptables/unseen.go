package iptables

import (
	"context"
	"fmt"
)

// unseen is what was written since the last wait, by what packets may still find in its place. A packet is judged by the chains
// that were there when it came. It finds the slot of an endpoint, then the class of the other end; each lookup has the entry
// that is in the set at that moment.
type unseen struct {
	waiting func(context.Context) error // returns when all packets that are being judged have left
	awaited bool                        // transactions wait themselves until nothing is left in former chains

	chains  bool // transactions: a packet in the former chains knows no slot and no class that they have brought
	bound   bool // slots of endpoints that were open: a packet that has found the former one knows no class that comes later
	classes bool // classes of addresses: a packet that has found the former one may be judged by chains that do not know it
}

// committed notes a transaction.
func (u *unseen) committed() { u.chains = u.chains || !u.awaited }

// forget notes that no packet was there.
func (u *unseen) forget() { u.chains, u.bound, u.classes = false, false, false }

// What some writes have to wait for.
func (u unseen) ofChains() bool     { return u.chains }
func (u unseen) ofLookups() bool    { return u.chains || u.bound }
func (u unseen) ofEverything() bool { return u.chains || u.bound || u.classes }

// wait waits if something is to be waited for.
func (u *unseen) wait(of func(unseen) bool) error {
	if !of(*u) {
		return nil
	}
	if err := u.waiting(context.Background()); err != nil {
		return fmt.Errorf("wait for packets that are being judged: %w", err)
	}
	u.forget()
	return nil
}
