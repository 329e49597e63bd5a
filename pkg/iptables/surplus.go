package iptables

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/nfnl"
	"github.com/margay-project/margay/pkg/ruleset"
)

// iptables deletes a rule by its text. A jump whose text is not known is deleted by its handle in nftables, which is a transaction of its
// own. The order is that of any change: the new jumps come first in the chain, then the old ones go, and then the chains that these went
// to. A packet that passes in between meets the new jumps first.

// surplus returns the handles of the jumps that a difference deletes in built-in chains in which the text of one is not known.
func (d difference) surplus(t *Table) (map[string][]uint64, error) {
	surplus := map[string][]uint64{}
	for _, chain := range slices.Concat(d.jumps, slices.Collect(maps.Keys(d.stale))) {
		ours := t.owns
		if stale, is := d.stale[chain]; is {
			ours = func(target string) bool {
				return slices.ContainsFunc(stale, func(rule string) bool { return goesTo(rule, target) })
			}
		}
		if !t.have.unknown(chain) {
			continue
		}
		handles, err := t.kernel.handles(t.family, t.name, chain, ours)
		if err != nil {
			return nil, err
		}
		surplus[chain] = handles
	}
	return surplus, nil
}

// goesTo reports whether a rule goes to a chain.
func goesTo(rule, chain string) bool {
	target, _ := ruleset.Target(rule)
	return target == chain
}

// unknown reports whether a built-in chain has a jump to a chain of ours whose text is not known.
func (a *applied) unknown(chain string) bool {
	return slices.ContainsFunc(a.jumps[chain].rules, func(rule string) bool { return strings.HasPrefix(rule, matches) })
}

// carryOut makes the kernel's table what a difference says: in one transaction, unless there are jumps that only their handles name.
func carryOut(ctx context.Context, t *Table, d difference, surplus map[string][]uint64) (bytes int, waited time.Duration, err error) {
	last := difference{remove: d.remove}
	if len(surplus) > 0 {
		d.remove = nil
	}
	text := t.transaction(d)
	waited, err = t.kernel.restore(ctx, t.family, text)
	if err != nil || len(surplus) == 0 {
		return len(text), waited, err
	}
	if err := t.kernel.discard(t.family, t.name, surplus); err != nil {
		return len(text), waited, err
	}
	if last.none() {
		return len(text), waited, nil
	}
	more := t.transaction(last)
	again, err := t.kernel.restore(ctx, t.family, more)
	return len(text) + len(more), waited + again, err
}

// handles implements kernel.
func (m *machine) handles(family Family, table, chain string, ours func(target string) bool) (handles []uint64, err error) {
	err = rulesOf(family, table, chain, func() { handles = nil }, func(rule []byte) {
		if target := targetOf(nfnl.Find(rule, unix.NFTA_RULE_EXPRESSIONS)); target != "" && ours(target) {
			handles = append(handles, nfnl.Uint64(nfnl.Find(rule, unix.NFTA_RULE_HANDLE)))
		}
	})
	return handles, err
}

// discard implements kernel.
func (m *machine) discard(family Family, table string, handles map[string][]uint64) error {
	var requests []nfnl.Request
	for _, chain := range slices.Sorted(maps.Keys(handles)) {
		for _, handle := range handles[chain] {
			var rule nfnl.Encoder
			rule.String(unix.NFTA_RULE_TABLE, table)
			rule.String(unix.NFTA_RULE_CHAIN, chain)
			rule.Uint64(unix.NFTA_RULE_HANDLE, handle)
			requests = append(requests, nfnl.Request{Subsystem: unix.NFNL_SUBSYS_NFTABLES, Command: unix.NFT_MSG_DELRULE, Family: key(family, table).family,
				Attributes: rule.Bytes()})
		}
	}
	if len(requests) == 0 {
		return nil
	}
	conn, err := nfnl.Open()
	if err != nil {
		return err
	}
	err = conn.Transaction(requests...)
	if closed := conn.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("delete rules of %v table %s by their handles: %w", family, table, err)
	}
	return nil
}
