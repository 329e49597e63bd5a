package bpf

import (
	"errors"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/model"
)

// reread makes every table read its map again and looks for what others have altered: entries, published policies,
// attached programs. All of it is told, and repaired by the rest of Apply. repairs is how much that is.
func (s *state) reread() (repairs uint64, err error) {
	var errs []error
	entries := s.names.reread()
	for _, t := range verdictTables(s.kernel.maps) {
		n, err := t.Resync()
		entries += n
		errs = append(errs, err)
	}
	if entries > 0 {
		s.kernel.log.Warn("maps had been changed by somebody else, repaired", "entries", entries)
	}
	errs = append(errs, s.kernel.endpoints.Reload())
	repairs = uint64(entries) + s.countAltered()
	republished, err := s.republish()
	errs = append(errs, err, s.endpoints.shares.report(s.endpoints.bound, s.kernel.log))
	for id, ep := range s.endpoints.bound {
		s.endpoints.dirty[id], ep.ensured = true, 0
	}
	s.interfaces.guarded = false
	return repairs + republished, errors.Join(errs...)
}

// countAltered tells of endpoints whose entries are not as they were written. All endpoints are about to be written again.
func (s *state) countAltered() (altered uint64) {
	if !s.plans.done() {
		return 0 // what is being written need not be there yet
	}
	for id, ep := range s.endpoints.bound {
		if ep.policy == nil || ep.ifindex == 0 || s.endpoints.dirty[id] {
			continue
		}
		want, ok := s.endpoints.entry(ep, ep.ifindex)
		if got, there := s.kernel.endpoints.Get(ep.ifindex); ok && (!there || got != want) {
			s.kernel.log.Warn("an endpoint had been changed by somebody else, repaired", "iface", ep.policy.Iface)
			altered++
		}
	}
	return altered
}

// republish publishes policies again whose slots are not as they were published. Flows may have been judged by what was
// there, so they are judged again.
func (s *state) republish() (repairs uint64, err error) {
	altered, err := s.tables.altered(s.plans.compiler.Tables())
	errs := []error{err}
	for _, table := range altered {
		s.kernel.log.Warn("a published policy had been changed by somebody else, published again", "slot", s.tables.slot(table.ID))
		repairs++
		if err := s.tables.republish(table); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := s.endpoints.rejudgeBy(table.ID); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, s.endpoints.update(), s.tables.releaseUnused())
	}
	return repairs, errors.Join(errs...)
}

// mapTable is what is the same about all tables of maps.
type mapTable interface {
	Name() string
	Resync() (repairs int, err error)
	Sync() error
	Pending() int
}

type repairing[K, V comparable] struct{ *bpfmaps.Table[K, V] }

func (t repairing[K, V]) Resync() (int, error) {
	r, err := t.Table.Resync()
	return r.Len(), err
}

// verdictTables are those that verdicts depend on.
func verdictTables(m *bpfmaps.Maps) []mapTable {
	return []mapTable{
		repairing[bpf.IP4, bpf.AddrInfo]{m.Addresses.IP4Host}, repairing[bpf.IP6, bpf.AddrInfo]{m.Addresses.IP6Host},
		repairing[bpf.Net4, bpf.AddrInfo]{m.Addresses.IP4Net}, repairing[bpf.Net6, bpf.AddrInfo]{m.Addresses.IP6Net},
		repairing[bpf.ClassChunk, bpf.SetBits]{m.ClassSets},
	}
}

var _ = [1]struct{}{}[model.Ingress] // words, tables and generations are indexed by model.Direction, ingress first
