// Package iptables writes chains of rules into the kernel through iptables-restore, in transactions that packets see whole or not
// at all, and finds what others have changed since.
//
//   - iptables.go: families, backends, errors; find.go: the commands of a backend, and whether they work here
//   - table.go: Table, one table of the kernel; desired.go: the chains that it is to have; difference.go: the writes of a
//     transaction; apply.go: Apply
//   - check.go, reading.go: reading back, and alterations by others; piecewise.go, opaque.go, surplus.go: beside rules that iptables
//     cannot print; faithful.go, hidden.go: rules that it prints otherwise than they are; versions.go: what transactions replace during a verification
//   - command.go, machine.go: running the commands; lock.go: the lock that all users of iptables-legacy share; sole.go: one agent for
//     each network namespace
//   - adopt.go: keeping what an earlier agent has written
//   - stamp.go, stamp_legacy.go, stamp_nft.go: whether anything has changed, without reading everything
//   - dormant.go, misplaced.go: tables of nftables that somebody has made dormant, and built-in chains that somebody has replaced
//   - grace.go: waiting until no packet is in replaced chains
//   - fake.go: a kernel for the tests of users
//
// Everything happens in the network namespace of the calling thread.
package iptables

import (
	"context"
	"fmt"
	"time"
)

// Family is the version of IP that a table is for.
type Family uint8

// The families. Each has its own commands and its own tables.
const (
	V4 Family = 4
	V6 Family = 6
)

// Families are all of them.
var Families = [...]Family{V4, V6}

// String returns "IPv4" or "IPv6".
func (f Family) String() string { return fmt.Sprintf("IPv%d", uint8(f)) }

// Backend is the part of the kernel that iptables writes to. Chains of one are invisible to the other, and packets go through
// both.
type Backend string

// The backends. Legacy replaces a whole table at each change; NFT is the table of the same name in nftables.
const (
	Legacy Backend = "legacy"
	NFT    Backend = "nft"
)

// Depth is the greatest depth of nested chains, the built-in chain not counted; 0: there is no bound.
func (b Backend) Depth() int {
	if b == NFT {
		return 15 // NFT_JUMP_STACK_SIZE of the kernel, less the built-in chain
	}
	return 0
}

// Tools are the commands of one backend. The zero value has none: Find or a Fake returns Tools.
type Tools struct {
	Backend Backend
	Version string // as the command prints it: "iptables v1.8.9 (legacy)"
	kernel  kernel
}

// Locked reports whether another process holds the lock of iptables-legacy at this moment, so that Apply would wait. It costs
// microseconds.
func (t *Tools) Locked() bool { return t.kernel.locked() }

// kernel is the part of the machine that Tools use.
type kernel interface {
	// save prints one table as iptables-save does.
	save(ctx context.Context, family Family, table string, counters bool) (string, error)
	// restore carries out one transaction. It returns how long it waited for others.
	restore(ctx context.Context, family Family, transaction string) (waited time.Duration, err error)
	// has reports whether a chain has a rule, as far as iptables finds it beside rules that it does not know.
	has(ctx context.Context, family Family, table, chain, rule string) (bool, error)
	// hidden finds the rules of agents that save prints otherwise than they are.
	hidden(family Family, table string) ([]hiddenRule, error)
	// misplaced returns a *MisplacedError if a built-in chain of nftables is not where iptables has it, and has one of the jumps; nil: any
	// chain counts.
	misplaced(family Family, table string, jumps *map[string][]string) error
	// handles returns the handles of the rules of a chain of nftables that go to chains which are ours.
	handles(family Family, table, chain string, ours func(target string) bool) ([]uint64, error)
	// discard deletes rules of nftables by their handles.
	discard(family Family, table string, handles map[string][]uint64) error
	// locked reports whether another process holds the lock now.
	locked() bool
	stamp(family Family, table string) (Stamp, error)
	// activate makes a dormant table of nftables judge packets again; of any other table it changes nothing.
	activate(family Family, table string) error
	// contents is a digest of all bytes of a legacy table but its counters; zero for nftables.
	contents(family Family, table string) ([16]byte, error)
}

// RefusedError reports that a transaction was refused; nothing of it is in force.
type RefusedError struct {
	Command string
	Line    int    // of the transaction, from 1; 0: the command names none
	Text    string // of that line; COMMIT if the kernel refused the table as a whole
	Message string // of the command
}

func (e *RefusedError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s refused the transaction: %s", e.Command, e.Message)
	}
	return fmt.Sprintf("%s refused line %d, %q: %s", e.Command, e.Line, e.Text, e.Message)
}

// LockedError reports that another process held the lock of iptables-legacy until the caller's context ended. Nothing was written.
type LockedError struct {
	Path   string
	Waited time.Duration
	Holder string // "process 123 (kube-proxy)"; empty if it is unknown
	Err    error  // of the context
}

func (e *LockedError) Error() string {
	holder := e.Holder
	if holder == "" {
		holder = "another process"
	}
	return fmt.Sprintf("%s holds the lock %s, waited %v: %v", holder, e.Path, e.Waited.Round(time.Second), e.Err) // whole seconds: each attempt says the same
}

// Unwrap returns the error of the context.
func (e *LockedError) Unwrap() error { return e.Err }
