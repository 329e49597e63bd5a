package iptables

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
)

// former are chains left by an agent that used the other backend of iptables. Chains in force stay until this agent judges all
// packets: until then a packet passes the chains of both backends. The rest are removed at the start, since they refer to sets.
type former struct {
	tables []*tableOf
	names  map[uint8]chains.Names // the worlds in force, by IP version
}

// LegacyLeft reports whether an agent has left chains in tables of the legacy backend. It needs no tools of that backend.
func LegacyLeft() (bool, error) {
	for _, world := range chains.Worlds {
		found, err := iptables.LegacyChains(chains.Names{World: world}.Prefix())
		if found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// elsewhere returns the other backend if it has chains of an agent; empty: it has none.
func elsewhere(tools *iptables.Tools) (iptables.Backend, error) {
	var prefixes []string
	for _, world := range chains.Worlds {
		prefixes = append(prefixes, chains.Names{World: world}.Prefix())
	}
	return tools.Elsewhere(prefixes...)
}

// findFormer finds such chains. It looks for the tools of the other backends only if one of them has chains of an agent, or there are sets
// that do not belong to the present backend's world in force, which is rare.
func findFormer(ctx context.Context, kernel Kernel, own *inForce) (list []former, found []*inForce, err error) {
	if kernel.Others == nil {
		return nil, nil, nil
	}
	left, err := unexplained(kernel.Sets, own)
	if !left && err == nil {
		var other iptables.Backend
		other, err = elsewhere(kernel.Tools)
		left = other != ""
	}
	if !left || err != nil {
		return nil, nil, err
	}
	return openFormer(ctx, kernel)
}

// openFormer reads the tables of the other backends.
func openFormer(ctx context.Context, kernel Kernel) (list []former, found []*inForce, err error) {
	for _, tools := range kernel.Others(ctx) {
		if tools.Backend == kernel.Tools.Backend {
			continue
		}
		w, there, err := newWorld(ctx, tools, "")
		if err != nil {
			return nil, nil, fmt.Errorf("look for chains of the backend %s: %w", tools.Backend, err)
		}
		list, found = append(list, former{w.tables, there.names}), append(found, there)
	}
	return list, found, nil
}

// unexplained reports whether there are sets of a world that is not in force.
func unexplained(sets ipsets.Kernel, own *inForce) (bool, error) {
	for _, family := range families {
		for _, world := range chains.Worlds {
			names := chains.Names{World: world}
			if own.names[family] == names {
				continue
			}
			list, err := sets.Names(fmt.Sprintf("%s%d-", names.Prefix(), family))
			if len(list) > 0 || err != nil {
				return true, err
			}
		}
	}
	return false, nil
}

// tidy removes chains that are not in force.
func (f former) tidy(ctx context.Context) error {
	for _, t := range f.tables {
		if _, err := t.Apply(ctx); err != nil { // those in force are kept
			return err
		}
	}
	return nil
}

// remove removes all chains: table filter before mangle, since it drops flows that have not been judged.
func (f former) remove(ctx context.Context) (removed int, err error) {
	for i := range f.tables {
		table := f.tables[len(f.tables)-1-i]
		table.Keep()
		commit, err := table.Apply(ctx)
		if removed += commit.Removed; err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// removeFormer removes the chains of the other backend and then their sets, once this world judges all packets.
func (w *world) removeFormer(ctx context.Context, kernel ipsets.Kernel) error {
	if !w.inForce || len(w.former) == 0 {
		return nil
	}
	removed := 0
	for _, f := range w.former {
		n, err := f.remove(ctx)
		if removed += n; err != nil {
			return err
		}
	}
	if removed > 0 {
		if err := iptables.Grace(ctx); err != nil {
			return fmt.Errorf("wait for packets that are being judged: %w", err)
		}
	}
	var errs []error
	for _, f := range w.former {
		maps.DeleteFunc(f.names, func(family uint8, names chains.Names) bool { return names == w.names[family] }) // a copy of this world's chains
		errs = append(errs, destroySets(kernel, f.names))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	w.former = nil
	return nil
}
