package iptables

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Commit counts the writes of an Apply. The zero value: it has written nothing.
type Commit struct {
	Chains  int // created or given other rules
	Rules   int // in these
	Removed int // chains deleted
	Jumps   int // built-in chains whose rules to ours were replaced
	Bytes   int // of the transaction
	Entries int // of a legacy table then, which every transaction writes whole; 0 with nftables
	Waited  time.Duration
	Took    time.Duration // the wait included
}

// Overhead is how much of the time went into what the transaction left as it was, if all entries of the table take as long: the part
// that another transaction of the same size would cost again.
func (c Commit) Overhead() time.Duration {
	kept := c.Entries - c.Rules - 2*c.Chains
	if kept <= 0 {
		return 0
	}
	return time.Duration(float64(c.Took-c.Waited) * float64(kept) / float64(c.Entries))
}

func itoa(n int) string { return strconv.Itoa(n) }

// Apply writes the desired chains and jumps into the kernel, in at most one transaction: packets see all of it or nothing. Jumps that
// iptables cannot delete need two more (surplus.go), before which packets see all that is new. It waits for other writers until ctx ends.
// A table that somebody has made dormant is made active before. After an error the kernel's table is unchanged, unless the command was
// stopped in the middle: then the whole transaction may be in force. In any case the next Apply reads the table before it writes.
//
// Apply finds alterations by others since the table was last read only if they make the transaction fail; it then reads the table
// and repeats the transaction once. Check finds all of them.
func (t *Table) Apply(ctx context.Context) (Commit, error) {
	start := time.Now()
	t.desired.reseal(t.isKept)
	if err := t.desired.check(t.depth); err != nil {
		return Commit{}, fmt.Errorf("%v: %w", t, err)
	}
	for {
		fresh := !t.have.known
		if fresh {
			if _, err := t.read(ctx); err != nil {
				return Commit{}, err
			}
		}
		if t.have.dormant && len(t.desired.chains)+len(t.kept) > 0 { // others may have made a table dormant that has nothing of ours
			if err := t.watch.activate(t.kernel, t.family, t.name); err != nil {
				t.have.known = false
				return Commit{}, fmt.Errorf("%v: %w", t, err)
			}
			t.have.dormant = false
		}
		commit, err := t.write(ctx)
		commit.Took = time.Since(start)
		var refused *RefusedError
		if err == nil || fresh || !errors.As(err, &refused) {
			if err != nil {
				err = fmt.Errorf("%v: %w", t, err)
			}
			return commit, err
		}
	}
}

// write carries out all differences.
func (t *Table) write(ctx context.Context) (Commit, error) {
	d := t.difference()
	if d.none() {
		t.desired.written()
		return Commit{}, nil
	}
	surplus, err := d.surplus(t)
	if err != nil {
		t.have.known = false
		return Commit{}, err
	}
	before, stampErr := t.kernel.stamp(t.family, t.name)
	bytes, waited, err := carryOut(ctx, t, d, surplus)
	if err != nil {
		var locked *LockedError
		if !errors.As(err, &locked) {
			t.have.known = false
		}
		return Commit{Waited: waited}, err
	}
	grows := t.entries(d)
	t.former.keep(t.have, d)
	t.wrote(d)
	commit := Commit{Chains: len(d.write), Removed: len(d.remove), Jumps: len(d.jumps), Bytes: bytes, Waited: waited}
	for _, c := range d.write {
		commit.Rules += len(c.Rules)
	}
	after, err := t.kernel.stamp(t.family, t.name)
	commit.Entries = int(after.Entries)
	t.watch.wrote(before, after, grows, errors.Join(stampErr, err))
	return commit, nil
}
