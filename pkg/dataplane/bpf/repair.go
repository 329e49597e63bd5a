package bpf

import (
	"errors"
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/dataplane/plans"
	"github.com/margay-project/margay/pkg/model"
)

// resync looks for changes made by others, between two plans. It works on the parts of a state.
type resync struct {
	kernel     *kernel
	plans      *plans.Planner
	names      *names
	tables     *tables
	interfaces *interfaces
	endpoints  *endpoints
	comparison *comparison
	grace      time.Duration // the longest period of grace for TCP in mid-flow
}

// look does what is due: the beginning of a resync, and of one that has begun a part. After an error it is to begin again. changed: the Apply
// has changes.
func (r resync) look(begin, changed bool) (repairs uint64, err error) {
	if begin {
		repairs, err = r.run()
	}
	if !r.comparison.due(changed) {
		return repairs, err
	}
	entries, err1 := r.readAgain()
	republished, err2 := r.compare()
	return repairs + uint64(entries) + republished, errors.Join(err, err1, err2)
}

// run begins a resync: it looks for changes made by others to the entries of endpoints and to attached programs, and has the entries of maps
// and published policies compared. Each difference is logged, and repaired by the rest of Apply. repairs is their number.
func (r resync) run() (repairs uint64, err error) {
	entries := r.endpoints.sources.reread()
	limited, err := r.limitGrace()
	entries += limited
	r.logRepaired(entries)
	r.endpoints.staged.reread()
	errs := []error{err, r.kernel.endpoints.Reload()}
	altered, err := r.countAltered()
	errs = append(errs, err)
	repairs = uint64(entries) + altered
	r.kernel.other.pass(time.Now()) // recheck has all endpoints written
	errs = append(errs, r.endpoints.entries.shares.report(r.endpoints.roster.bound, r.kernel.log))
	r.endpoints.recheck()
	r.interfaces.recheck()
	r.comparison.begin(append(verdictTables(r.kernel.maps), r.names.compared()...), r.tables.slots.Live())
	return repairs, errors.Join(errs...)
}

// limitGrace has the grace period end as soon as it should, and returns the number of entries that others have changed.
func (r resync) limitGrace() (entries int, err error) {
	if !r.kernel.limited {
		return 0, nil
	}
	_, shortened, err := r.kernel.boundGrace(r.grace)
	if shortened && err == nil {
		entries = 1
	}
	return entries, err
}

// readAgain makes some of the tables that are left read their maps again, or a part, and returns the number of entries that others have changed.
// Such entries may have allowed flows that policy denies: when they are repaired, all live flows are judged again.
func (r resync) readAgain() (entries int, err error) {
	var errs []error
	altered := false
	for _, t := range r.comparison.nextTables() {
		n, done, err := r.comparison.read(t)
		if entries, errs = entries+n, append(errs, err); !done {
			r.comparison.putBack(t)
		}
		if _, names := t.(comparedNames); n > 0 && !names {
			altered, errs = true, append(errs, t.Sync())
		}
	}
	r.logRepaired(entries)
	if altered {
		errs = append(errs, r.endpoints.rejudgeWhere(func(model.EndpointID, table.ID) bool { return true }), r.endpoints.update())
	}
	return entries, errors.Join(errs...)
}

func (r resync) logRepaired(entries int) {
	if entries > 0 {
		r.kernel.log.Warn("maps had been changed by somebody else, repaired", "entries", entries)
	}
}

// countAltered logs and counts endpoints whose entries are not as they were written. All endpoints are about to be written
// again; live flows of these are judged again.
func (r resync) countAltered() (altered uint64, err error) {
	if !r.plans.Done() {
		return 0, nil // entries of the current plan may not be written yet
	}
	var errs []error
	for id, ep := range r.endpoints.roster.bound {
		if ep.policy == nil || ep.ifindex == 0 || r.endpoints.dirty[id] {
			continue
		}
		want, ok := r.endpoints.entries.desired(ep, ep.ifindex)
		if got, there := r.kernel.endpoints.Get(ep.ifindex); ok && (!there || got != want) {
			r.kernel.log.Warn("an endpoint had been changed by somebody else, repaired", "iface", ep.policy.Iface)
			altered, errs = altered+1, append(errs, r.endpoints.rejudgeWhere(func(of model.EndpointID, _ table.ID) bool { return of == id }))
		}
	}
	return altered, errors.Join(errs...)
}

// compare publishes policies again whose slots differ from the published content: of some of the slots that are left. Flows may have been
// judged by the altered content, so they are judged again. Errors are returned when no slot is left.
func (r resync) compare() (repairs uint64, err error) {
	altered, left, err := r.tables.altered(r.plans.Compiler.Tables(), r.comparison.slots)
	errs := []error{err}
	for _, t := range altered {
		r.kernel.log.Warn("a published policy had been changed by somebody else, published again", "slot", r.tables.slot(t.ID))
		repairs++
		published, err := r.tables.republish(t)
		if errs = append(errs, err); !published {
			continue
		}
		if err := r.rejudgeBy(t.ID); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, r.endpoints.update(), r.tables.releaseUnused(r.endpoints.entries))
	}
	return repairs, r.comparison.compared(left, errs)
}

// rejudgeBy has the live flows judged again of all endpoints that a table judges. Those whose staged policies it is for are written again.
func (r resync) rejudgeBy(changed table.ID) error {
	return r.endpoints.rejudgeWhere(func(_ model.EndpointID, t table.ID) bool { return t == changed }, r.endpoints.staged.users(changed)...)
}

// writeLeft writes the pending entries of failed attempts and of repairs.
func writeLeft(m *bpfmaps.Maps) error {
	var errs []error
	for _, t := range verdictTables(m) {
		if t.Pending() > 0 {
			errs = append(errs, t.Sync())
		}
	}
	return errors.Join(errs...)
}

// mapTable is the common interface of all tables of maps.
type mapTable interface {
	Name() string
	Len() int
	Resync() (repairs int, err error)
	ResyncSome(most int) (repairs int, done bool, err error)
	Sync() error
	Pending() int
}

type repairing[K, V comparable] struct{ *bpfmaps.Table[K, V] }

func (t repairing[K, V]) Resync() (int, error) {
	r, err := t.Table.Resync()
	return r.Len(), err
}

func (t repairing[K, V]) ResyncSome(most int) (int, bool, error) {
	r, done, err := t.Table.ResyncSome(most)
	return r.Len(), done, err
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
