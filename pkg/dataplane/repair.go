package dataplane

import (
	"errors"
	"fmt"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile"
	"github.com/margay-project/margay/pkg/model"
)

// reread makes every table read its map again and looks for what others have altered: entries, published policies,
// attached programs. All of it is told, and repaired by the rest of Apply.
func (d *BPF) reread() error {
	var errs []error
	repairs := d.names.reread()
	for _, t := range d.allTables() {
		n, err := t.Resync()
		repairs += n
		errs = append(errs, err)
	}
	if repairs > 0 {
		d.log.Warn("maps had been changed by somebody else, repaired", "entries", repairs)
		d.repairs += uint64(repairs)
	}
	errs = append(errs, d.endpoints.Reload())
	d.tellAltered()
	errs = append(errs, d.repairSlots(), d.tellQuota())
	for id, ep := range d.bound {
		d.dirty[id], ep.ensured = true, 0
	}
	d.guarded = false
	return errors.Join(errs...)
}

// tellAltered tells of endpoints whose entries are not as they were written. All endpoints are about to be written again.
func (d *BPF) tellAltered() {
	if d.step < len(order) {
		return // what is being written need not be there yet
	}
	for id, ep := range d.bound {
		if ep.policy == nil || ep.ifindex == 0 || d.dirty[id] {
			continue
		}
		want, ok := d.entry(ep, ep.ifindex)
		if got, there := d.endpoints.Get(ep.ifindex); ok && (!there || got != want) {
			d.log.Warn("an endpoint had been changed by somebody else, repaired", "iface", ep.policy.Iface)
			d.repairs++
		}
	}
}

// repairSlots publishes policies anew whose slots are not as they were published. Flows may have been judged by what
// was there, so they are judged again.
func (d *BPF) repairSlots() error {
	altered, err := d.slots.Altered(d.maps)
	if len(altered) == 0 {
		return err
	}
	errs := []error{err}
	for _, table := range d.compiler.Tables() {
		old := d.tables[table.ID].slot
		if old == 0 || !slices.Contains(altered, old) {
			continue
		}
		d.log.Warn("a published policy had been changed by somebody else, published anew", "slot", old)
		d.repairs++
		if err := d.republish(table, old); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (d *BPF) republish(table *compile.Table, old uint32) error {
	gen, err := d.gens.Next()
	if err != nil {
		return err
	}
	published, err := d.slots.Publish([]bpfmaps.SlotContent{content(table, gen)})
	if err != nil {
		return err
	}
	entry := d.tables[table.ID]
	entry.slot = published[0]
	d.tables[table.ID] = entry
	for id, ep := range d.bound {
		for dir, t := range ep.tables {
			if t != table.ID {
				continue
			}
			if ep.gens[dir], err = d.gens.Next(); err != nil {
				return err
			}
			d.dirty[id] = true
		}
	}
	d.unused = append(d.unused, old)
	return errors.Join(d.update(), d.releaseUnused())
}

// failures are the endpoint-directions whose policy cannot be compiled.
func (d *BPF) failures() error {
	var errs []error
	for at, err := range d.compiler.Failed() {
		state := "is closed"
		if _, bound := d.compiler.Endpoint(at.Endpoint); bound {
			state = "keeps its last policy"
		}
		errs = append(errs, fmt.Errorf("%s of endpoint %s %s: %w", at.Direction, at.Endpoint, state, err))
	}
	slices.SortFunc(errs, func(a, b error) int {
		if a.Error() < b.Error() {
			return -1
		}
		return 1
	})
	return errors.Join(errs...)
}

// table is what is the same about all tables of maps.
type table interface {
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

// allTables are those that verdicts depend on.
func (d *BPF) allTables() []table {
	return []table{
		repairing[bpf.IP4, bpf.AddrInfo]{d.maps.IP4Host}, repairing[bpf.IP6, bpf.AddrInfo]{d.maps.IP6Host},
		repairing[bpf.Net4, bpf.AddrInfo]{d.maps.IP4Net}, repairing[bpf.Net6, bpf.AddrInfo]{d.maps.IP6Net},
		repairing[bpf.ClassChunk, bpf.SetBits]{d.maps.ClassSets},
	}
}

var _ = [1]struct{}{}[model.Ingress] // words, tables and generations are indexed by model.Direction, ingress first
