package iptables

import (
	"context"
	"fmt"
)

// unseen records which kinds of writes were made since the last wait, so that packets may still be judged by the former state. A
// packet is judged by the chains that were there when it came. It looks up the slot of an endpoint, then the class of the other
// end; each lookup finds the entry that is in the set at that moment.
type unseen struct {
	waiting func(context.Context) error // returns when all packets that are being judged have left
	awaited bool                        // a transaction returns only when no packet is left in the former chains

	chains  bool // transactions: a packet in former chains has no rule for slots and classes that are new
	bound   bool // slots of open endpoints: a packet that has found the former slot has no rule for classes that are new
	classes bool // classes of addresses: a packet that has found the former class may be in chains without a rule for it
}

// committed notes a transaction.
func (u *unseen) committed() { u.chains = u.chains || !u.awaited }

// noteBound notes that slots of open endpoints were written, if so.
func (u *unseen) noteBound(written bool) { u.bound = u.bound || written }

// noteClasses notes that classes of addresses were written, if so.
func (u *unseen) noteClasses(written bool) { u.classes = u.classes || written }

// forget notes that no packet can find a former state.
func (u *unseen) forget() { u.chains, u.bound, u.classes = false, false, false }

// Conditions for a wait, by the kinds of writes that would make it necessary.
func (u unseen) ofChains() bool     { return u.chains }
func (u unseen) ofLookups() bool    { return u.chains || u.bound }
func (u unseen) ofEverything() bool { return u.chains || u.bound || u.classes }
func (unseen) always() bool         { return true }

// wait waits if of demands it, and returns when no packet is judged by a former state.
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
