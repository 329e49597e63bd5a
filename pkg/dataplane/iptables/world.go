package iptables

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/ruleset"
)

// tableNames are the tables with chains of this dataplane. Packets from addresses that are not their pod's are dropped in raw, before
// conntrack. Others are judged in mangle, after the translation of destinations and before all rules of filter. TCP flows that policy has
// ended are reset in filter, the only table where REJECT works.
var tableNames = [...]string{"raw", "mangle", "filter"}

// world is all chains and sets of one agent. An agent that starts makes its world beside the one in force, and then sends packets
// to its own in one transaction for each table. So the only state that it reads back of an earlier agent is the generation of its
// judgements and the owners of addresses.
//
// The IP versions change from one world to the next one after the other, and an agent may be killed in between. So each IP version
// has names of its own.
type world struct {
	names   map[uint8]chains.Names // by IP version
	tables  []*tableOf
	jumps   map[uint8][]chains.Jump // the ways in, by IP version
	other   map[uint8]chains.Names  // the world in force when this one was begun; none: no entry
	former  []former                // left by agents that used the other backend
	inForce bool
	// breached: somebody has removed the way from mangle FORWARD into the world in force. Its chains in filter still drop flows that no
	// chain has judged.
	breached   bool
	unseen     unseen
	journal    *journal
	inherited  inherited
	preserving preserving
	altered    []alteration
	spent      time.Duration // see overhead
	written    uint64        // transactions that may have changed chains, so far
}

// tableOf is one table of one IP version.
type tableOf struct {
	*iptables.Table
	family uint8
	name   string
	// found is the same table with what it had of the world in force, until packets go to the world of this agent; nil: there is no such
	// world, or unprintable is why it cannot be kept.
	found       *iptables.Table
	unprintable error
	world       chains.Names // that one
	compared    bool         // once at least
}

// newWorld finds the world in force, and chooses the names of another one. It writes nothing.
func newWorld(ctx context.Context, tools *iptables.Tools, instance string) (*world, *inForce, error) {
	w := &world{unseen: unseen{waiting: iptables.Grace, awaited: tools.Awaits()}, journal: newJournal(), jumps: map[uint8][]chains.Jump{}, names: map[uint8]chains.Names{}}
	for _, family := range families {
		for _, name := range tableNames {
			w.tables = append(w.tables, &tableOf{Table: tools.Table(iptables.Family(family), name, "mgy"+instance), family: family, name: name})
		}
	}
	found, err := w.find(ctx, instance)
	if err != nil {
		return nil, nil, err
	}
	w.other, w.breached = found.names, found.breached
	w.preserve(tools, instance, found)
	w.choose(instance)
	for _, t := range w.tables {
		if other, ok := w.other[t.family]; ok {
			t.Keep(other.Prefix())
		}
	}
	return w, found, nil
}

// choose chooses the first names that are not those of a world in force.
func (w *world) choose(instance string) {
	for _, family := range families {
		for _, which := range slices.Backward(chains.Worlds[:]) {
			names := chains.Names{Instance: instance, World: which}
			used := w.other[family] == names
			for _, f := range w.former {
				used = used || f.names[family] == names
			}
			if !used {
				w.names[family] = names
			}
		}
	}
}

// beside notes the chains of the other backend, which stay until removeFormer, and chooses names that they do not have.
func (w *world) beside(list []former) {
	if w.former = list; len(list) > 0 {
		w.choose("")
	}
}

// isBeside reports whether chains of the other backend are in force.
func (w *world) isBeside() bool {
	return slices.ContainsFunc(w.former, func(f former) bool { return len(f.names) > 0 })
}

// setJumps replaces the ways in of an IP version. They are desired when packets go to this world, and with lead.
func (w *world) setJumps(family uint8, jumps []chains.Jump) { w.jumps[family] = jumps }

// inForce is the world that packets go to at present, by IP version: its names, the chains of table mangle, which contain the
// generation of its judgements, and those of table raw. An IP version without such a world has no entry in names.
type inForce struct {
	names    map[uint8]chains.Names
	saved    map[uint8]*ruleset.Saved // mangle
	raw      map[uint8]*ruleset.Saved
	tables   map[*tableOf]*ruleset.Saved
	breached bool // see world
}

// find returns the worlds in force: those that mangle FORWARD leads to, or else any other way, since what is left of a world still
// drops packets.
func (w *world) find(ctx context.Context, instance string) (*inForce, error) {
	found := &inForce{names: map[uint8]chains.Names{}, saved: map[uint8]*ruleset.Saved{}, raw: map[uint8]*ruleset.Saved{}, tables: map[*tableOf]*ruleset.Saved{}}
	for _, t := range w.tables {
		saved, err := t.Read(ctx)
		if err != nil {
			return nil, err
		}
		found.tables[t] = saved
	}
	for _, family := range families {
		for _, table := range [...]string{"mangle", "filter", "raw"} {
			saved := found.tables[w.of(table, family)]
			found.note(table, family, saved, instance)
		}
	}
	return found, nil
}

// note looks for the ways from one table into a world, unless a table before has led to one.
func (f *inForce) note(table string, family uint8, saved *ruleset.Saved, instance string) {
	switch table {
	case "mangle":
		f.saved[family] = saved
	case "raw":
		f.raw[family] = saved
	}
	for _, chain := range [...]string{"FORWARD", "INPUT", "OUTPUT", "PREROUTING", "POSTROUTING"} {
		names, ok := leadingTo(saved.Chain(chain), instance)
		if _, known := f.names[family]; !ok || known {
			continue
		}
		f.names[family] = names
		f.breached = f.breached || table != "mangle" || chain != "FORWARD"
	}
}

// leadingTo returns the world of an instance that the first jump of a built-in chain into any leads to; not ok: there is no such jump.
func leadingTo(builtIn *ruleset.SavedChain, instance string) (names chains.Names, ok bool) {
	if builtIn == nil {
		return names, false
	}
	for _, rule := range builtIn.Rules {
		target, _ := ruleset.Target(rule.Text)
		for _, which := range chains.Worlds {
			names := chains.Names{Instance: instance, World: which}
			if strings.HasPrefix(target, names.Chain("")) {
				return names, true
			}
		}
	}
	return names, false
}

// of returns the table of a name and IP version.
func (w *world) of(name string, family uint8) *tableOf {
	i := slices.IndexFunc(w.tables, func(t *tableOf) bool { return t.name == name && t.family == family })
	return w.tables[i]
}

// clear removes the chains and then the sets of an agent that made this world but stopped before it enforced it. The chains are
// removed first, also those of the other backend, since they refer to the sets.
func (w *world) clear(ctx context.Context, kernel ipsets.Kernel) error {
	if err := w.commit(ctx); err != nil { // no chain is desired yet
		return err
	}
	for _, f := range w.former {
		if err := f.tidy(ctx); err != nil {
			return err
		}
	}
	return destroySets(kernel, w.names)
}

// changed reports whether chains are desired that are not written yet.
func (w *world) changed() bool {
	return slices.ContainsFunc(w.tables, func(t *tableOf) bool { return t.Changed() })
}

// commit writes the chains as they are desired, in one transaction for each table that differs. A table that fails stops none of the others:
// IP versions have nothing in common, and the chains of filter drop what those of mangle have not judged, whichever generation has judged it.
// The steps after a commit do not follow before all tables are written.
func (w *world) commit(ctx context.Context) error {
	if w.changed() {
		// A packet may find the chains of two transactions, but not those of three: nftables keeps one former state.
		if err := w.grace(unseen.ofChains); err != nil {
			return err
		}
	}
	var errs []error
	for _, t := range w.tables {
		done, err := w.apply(ctx, t)
		w.spent += done.Overhead()
		if hasChanged(done) {
			w.unseen.committed()
		}
		errs = append(errs, err)
		if _, locked := errors.AsType[*iptables.LockedError](err); locked {
			break // all tables have one lock, and the time to wait for it is over
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	w.journal.commit()
	return nil
}

// apply writes one table and counts that. If it fails, only a lock of others and a refusal are sure to have kept it from the kernel.
func (w *world) apply(ctx context.Context, t *tableOf) (iptables.Commit, error) {
	done, err := t.Apply(ctx)
	_, locked := errors.AsType[*iptables.LockedError](err)
	_, refused := errors.AsType[*iptables.RefusedError](err)
	if hasChanged(done) || err != nil && !locked && !refused {
		w.written++
	}
	return done, err
}

func hasChanged(done iptables.Commit) bool { return done.Chains+done.Removed+done.Jumps > 0 }

// grace returns when no packet is left that may find the state before the writes that of selects. Before this world or another is in
// force there are no such packets.
func (w *world) grace(of func(unseen) bool) error {
	if !w.inForce && len(w.other) == 0 {
		w.unseen.forget()
	}
	return w.unseen.wait(of)
}

// enforce sends packets to this world, and removes the chains of the other in the same transactions, and then its sets. Table raw comes
// before mangle: packets from addresses of others find no flow there. Filter comes after it: it drops flows that have not been judged.
// otherBits: the marks of the other world are in other bits, so its jumps in filter are removed first.
func (w *world) enforce(ctx context.Context, kernel ipsets.Kernel, otherBits bool) error {
	for _, t := range w.tables {
		if otherBits && t.name == "filter" {
			if err := w.enter(ctx, t, false); err != nil {
				return err
			}
		}
	}
	for _, t := range w.tables {
		if _, ok := w.other[t.family]; ok {
			t.Keep()
		}
		if err := w.enter(ctx, t, true); err != nil {
			return err
		}
	}
	w.journal.commit()
	w.inForce = true
	w.unseen.committed()
	if len(w.other) == 0 {
		return nil
	}
	unused := maps.Clone(w.other)
	for _, f := range w.former { // a copy of these chains with the other backend refers to their sets, until removeFormer
		maps.DeleteFunc(unused, func(family uint8, names chains.Names) bool { return names == f.names[family] })
	}
	return errors.Join(w.grace(unseen.ofChains), destroySets(kernel, unused))
}

// lead makes changed jumps desired if this world is in force, with the next commit.
func (w *world) lead() error {
	if !w.inForce {
		return nil
	}
	var errs []error
	for _, t := range w.tables {
		errs = append(errs, w.desireJumps(t, true))
	}
	return errors.Join(errs...)
}

// enter makes the jumps of one table lead to this world; enter false: it removes them.
func (w *world) enter(ctx context.Context, t *tableOf, enter bool) error {
	if err := w.desireJumps(t, enter); err != nil {
		return err
	}
	done, err := w.apply(ctx, t)
	w.spent += done.Overhead()
	if err == nil {
		t.found, t.unprintable = nil, nil
	}
	return err
}

// desireJumps makes the jumps of one table desired, with its next transaction; enter false: their absence.
func (w *world) desireJumps(t *tableOf, enter bool) error {
	ways := map[string][]string{}
	if t.name == "mangle" {
		ways["PREROUTING"] = nil // it has a way only while packets are searched for source routes
	}
	for _, j := range w.jumps[t.family] {
		switch {
		case j.Table != t.name:
		case enter:
			ways[j.Chain] = append(ways[j.Chain], j.Rule())
		default:
			ways[j.Chain] = nil
		}
	}
	for chain, rules := range ways {
		if err := t.SetJumps(chain, rules...); err != nil {
			return err
		}
	}
	return nil
}

// overhead is the time since its last call that went into chains which no transaction has changed.
func (w *world) overhead() time.Duration {
	spent := w.spent
	w.spent = 0
	return spent
}

// touched reports whether others may have written to the tables.
func (w *world) touched() (bool, error) {
	if !w.inForce {
		return false, nil
	}
	for _, t := range w.tables {
		if touched, err := t.Touched(); touched || err != nil {
			return touched, err
		}
	}
	return false, nil
}
