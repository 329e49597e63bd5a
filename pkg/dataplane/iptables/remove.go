package iptables

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
)

// allWorlds are the names of all worlds of the agent without an instance name.
var allWorlds = [...]chains.Names{{World: chains.WorldA}, {World: chains.WorldB}, {World: chains.WorldC}}

// OwnChain reports whether a chain's name is one that this dataplane uses.
func OwnChain(name string) bool {
	return slices.ContainsFunc(allWorlds[:], func(n chains.Names) bool { return strings.HasPrefix(name, n.Chain("")) })
}

// Removed counts what Remove has removed.
type Removed struct {
	Chains, Sets, Connections int
	// Left names built-in chains that somebody has replaced, with the reason why they stay; empty: there are none. Chains of agents went from
	// their tables, too.
	Left string
}

// Found reports whether this dataplane has left sets in the network namespace. Its chains never exist without sets.
func Found(sets ipsets.Kernel) (bool, error) {
	for _, world := range allWorlds {
		names, err := sets.Names(world.Prefix())
		if len(names) > 0 || err != nil {
			return len(names) > 0, err
		}
	}
	return false, nil
}

// Remove removes everything that agents of this dataplane have left in the network namespace: the jumps to their chains and the
// chains, in one transaction for each table, and then sets and the bits of connection marks. No such agent may be running. tools are
// those of all backends that an agent may have used. Remove may be repeated.
func Remove(ctx context.Context, tools []*iptables.Tools, sets ipsets.Kernel, flows Flows) (Removed, error) {
	var done Removed
	var used uint32
	for _, t := range tools {
		misplaced, err := done.misplaced(t)
		if err != nil {
			return done, err
		}
		w, found, err := newWorld(ctx, t, "")
		if err != nil {
			return done, err
		}
		used |= found.markBits()
		for _, table := range slices.Backward(w.tables) { // filter before mangle: it drops flows that have not been judged; raw last
			removed, err := 0, error(nil)
			if misplaced[tableKey{table.family, table.name}] {
				removed, err = t.Purge(iptables.Family(table.family), table.name, OwnChain)
			} else {
				table.Keep()
				var commit iptables.Commit
				commit, err = table.Apply(ctx)
				removed = commit.Removed
			}
			if done.Chains += removed; err != nil {
				return done, fmt.Errorf("remove chains: %w", err)
			}
		}
	}
	if done.Chains > 0 {
		if err := iptables.Grace(ctx); err != nil {
			return done, fmt.Errorf("wait for packets that are being judged: %w", err)
		}
	}
	var errs []error
	for _, world := range allWorlds {
		names, err := sets.Names(world.Prefix())
		errs = append(errs, err, destroySets(sets, map[uint8]chains.Names{4: world, 6: world}))
		left, err := sets.Names(world.Prefix())
		errs = append(errs, err)
		done.Sets += len(names) - len(left)
	}
	var err error
	done.Connections, err = clearMarks(flows, used)
	return done, errors.Join(append(errs, err)...)
}

// tableKey names a table.
type tableKey struct {
	family uint8
	name   string
}

// misplaced finds the tables in which somebody has replaced a built-in chain.
func (r *Removed) misplaced(tools *iptables.Tools) (map[tableKey]bool, error) {
	found := map[tableKey]bool{}
	var left []string
	for _, family := range families {
		for _, name := range tableNames {
			chain, err := tools.Misplaced(iptables.Family(family), name)
			if err != nil {
				return nil, err
			}
			if chain != nil {
				found[tableKey{family, name}] = true
				left = append(left, fmt.Sprintf("chain %s of %v table %s: it may have rules of others, and %s", chain.Chain, chain.Family, name, chain.What))
			}
		}
	}
	if len(left) > 0 {
		r.Left = strings.Join(left, "; ")
	}
	return found, nil
}

// markBits returns the bits of marks that the world in force uses; 0: its chains do not show them. The chains show the bits of the
// generation and, one bit above them, a flag. In the layout of before 2026-11-23 they show the generation alone, and the two bits above it belong
// to the mark. Others may use all bits beyond.
func (f *inForce) markBits() uint32 {
	for family, names := range f.names {
		allow := f.saved[family].Chain(names.Chain("allow"))
		if allow == nil || len(allow.Rules) == 0 {
			continue
		}
		_, mask, ok := stampOf(allow.Rules[len(allow.Rules)-1].Text)
		if !ok || mask == 0 {
			continue
		}
		if turned := uint32(1) << (bits.Len32(mask) - 2); mask&turned == 0 {
			return mask | turned
		}
		return mask | mask<<1 | mask<<2
	}
	return 0
}

// clearMarks clears the bits of mask in the marks of all connections.
func clearMarks(flows Flows, mask uint32) (written int, err error) {
	if mask == 0 {
		return 0, nil
	}
	var errs []error
	for _, family := range []conntrack.Family{conntrack.IPv4, conntrack.IPv6} {
		n, err := flows.Remark(family, conntrack.Filter{}, mask, func(e conntrack.Entry) (uint32, bool) { return 0, e.Mark&mask != 0 })
		written += n
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return written, fmt.Errorf("clear marks of connections: %w", err)
	}
	return written, nil
}
