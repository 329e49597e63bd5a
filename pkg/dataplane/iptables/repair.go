package iptables

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
)

// alteration is a change of a table by others that a Check has found and no transaction has repaired yet.
type alteration struct {
	table   *tableOf
	finding iptables.Finding
	logged  bool // that it waits
}

// repair reads chains and sets again and writes what others have changed. It returns the number of changes that are repaired: of those found
// before as well, if their transaction has failed then.
//
// Chains and sets that others had changed may have allowed flows that policy denies. So what is written in their place has the next generation.
// Packets that are still in the former chains, or have looked up a former entry, mark their flow with the number of before.
func (s *state) repair(ctx context.Context, log *slog.Logger) (repaired int, err error) {
	if !s.begun {
		return 0, nil
	}
	entries, altered, err := s.sets.repair(log)
	errs := []error{err, ipsets.Discard(s.sets.all(), func() error { return s.world.grace(unseen.always) })}
	for _, t := range s.world.tables {
		findings, err := t.Check(ctx)
		errs = append(errs, err)
		s.world.note(t, findings)
		altered = altered || len(findings) > 0
	}
	if altered {
		s.static.markStale()
		if s.plans.Done() { // else the transaction that concludes the plan has it
			errs = append(errs, s.static.rejudge(s.slots.uses))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, lockPatience) // the reading needs no lock
	defer cancel()
	err = s.world.commit(ctx)
	return entries + s.world.repaired(err, log), errors.Join(append(errs, err)...)
}

// note adds alterations. A later Check does not find them again.
func (w *world) note(t *tableOf, findings []iptables.Finding) {
	for _, f := range findings {
		known := func(a alteration) bool { return a.table == t && a.finding == f }
		if !slices.ContainsFunc(w.altered, known) {
			w.altered = append(w.altered, alteration{table: t, finding: f})
		}
	}
}

// repaired logs the alterations that the last commit has repaired, and once of each other that it waits; failed is why. It returns the number
// of the former.
func (w *world) repaired(failed error, log *slog.Logger) (n int) {
	var left []alteration
	for _, a := range w.altered {
		switch {
		case !a.table.Changed():
			log.Warn("chains had been changed by somebody else, repaired", "table", a.table.String(), "what", a.finding.String())
			n++
			continue
		case !a.logged:
			log.Warn("chains have been changed by somebody else, not repaired yet", "table", a.table.String(), "what", a.finding.String(), "err", failed)
			a.logged = true
		}
		left = append(left, a)
	}
	w.altered = left
	return n
}
