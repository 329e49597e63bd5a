package iptables

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
)

// preserving keeps the worlds in force as they were found, until packets go to the world of this agent. An agent without a snapshot of the
// datastore has no policy to write, but it has read the chains that judge packets meanwhile.
type preserving struct {
	failed  string // the error of the last attempt; the log has it
	written uint64 // transactions of this agent when tables were last read, see world
	read    time.Time
	cost    time.Duration // of that
}

// ownShare bounds the readings after writes of this agent to one part in so many of its time: each looks like a write by others.
const ownShare = 5

// preserve notes for each table what it has of the world in force. The first look of Sweep compares that with the table.
func (w *world) preserve(tools *iptables.Tools, instance string, found *inForce) {
	for _, t := range w.tables {
		names, ok := found.names[t.family]
		if !ok {
			continue
		}
		var others []string
		for _, which := range chains.Worlds {
			if which != names.World {
				others = append(others, chains.Names{Instance: instance, World: which}.Prefix())
			}
		}
		t.world = names
		if t.found, t.unprintable = tools.Adopt(iptables.Family(t.family), t.name, "mgy"+instance, names.Chain(""), found.tables[t]); t.found != nil {
			t.found.Keep(others...)
		}
	}
	found.tables = nil // the text of large policies is large
}

// allTables are those of this world and of the other backends' worlds in force.
func (w *world) allTables() []*tableOf {
	list := w.tables
	for _, f := range w.former {
		list = append(list[:len(list):len(list)], f.tables...)
	}
	return list
}

// repairFound writes back what others have changed in the worlds in force while packets do not go to this one. It returns the number of
// tables that it has repaired, and logs each failure once.
func (w *world) repairFound(kernel ipsets.Kernel, log *slog.Logger) (repaired int) {
	p := &w.preserving
	if w.inForce || w.written != p.written && time.Since(p.read) < ownShare*p.cost {
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), lockPatience)
	defer cancel()
	started, read := time.Now(), false
	var errs []error
	for _, t := range w.allTables() {
		if t.found == nil {
			errs = append(errs, t.unprintable)
			continue
		}
		touched, err := t.found.Touched()
		if touched || !t.compared { // what was written before the first look, with nft only the comparison sees
			read, t.compared = true, true
			var changed bool
			if changed, err = t.repairFound(ctx, kernel, log); changed {
				repaired++
				w.unseen.committed()
			}
		}
		errs = append(errs, err)
	}
	if read {
		p.written, p.read, p.cost = w.written, time.Now(), time.Since(started)
	}
	p.note(errors.Join(errs...), log)
	return repaired
}

// note logs a failure unless the attempt before had the same.
func (p *preserving) note(err error, log *slog.Logger) {
	if err == nil {
		p.failed = ""
		return
	}
	if text := err.Error(); text != p.failed {
		p.failed = text
		log.Error("chains of an earlier agent, which are in force until this one enforces policy, cannot be kept as they are", "err", err)
	}
}

// repairFound compares one table with what was found in it, and writes that back.
func (t *tableOf) repairFound(ctx context.Context, kernel ipsets.Kernel, log *slog.Logger) (changed bool, err error) {
	findings, err := t.found.Check(ctx)
	if err != nil {
		return false, err
	}
	done, err := t.found.Apply(ctx)
	if _, refused := errors.AsType[*iptables.RefusedError](err); refused { // by the kernel, if a rule names a set that is not there
		if made := createMissing(kernel, t.family, t.world); made > 0 {
			log.Warn("IP sets in force had been deleted by somebody else, made without entries: packets of pods are dropped", "table", t.String(), "sets", made)
			done, err = t.found.Apply(ctx)
		}
	}
	if err != nil || !hasChanged(done) {
		return false, err
	}
	if len(findings) == 0 { // the first comparison knows no earlier state
		findings = append(findings, iptables.Finding{What: fmt.Sprintf("%d chains and the jumps of %d others differed", done.Chains+done.Removed, done.Jumps)})
	}
	for _, f := range findings {
		log.Warn("chains had been changed by somebody else, repaired", "table", t.String(), "what", f.String(), "until", "this agent enforces policy")
	}
	return true, nil
}

// createMissing makes sets of a world that are not there, without entries. Then no address is a pod's own, so pods are closed.
func createMissing(kernel ipsets.Kernel, family uint8, names chains.Names) (made int) {
	for _, set := range newSets(kernel, map[uint8]chains.Names{family: names}).of[family].all() {
		if _, err := kernel.Header(set.Spec().Name); errors.Is(err, ipsets.ErrNoSet) && kernel.Create(set.Spec()) == nil {
			made++
		}
	}
	return made
}
