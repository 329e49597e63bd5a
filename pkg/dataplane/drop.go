package dataplane

import (
	"errors"
	"fmt"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
)

// The steps that remove what nothing refers to any more.

// release gives the slots of dropped tables back.
func (d *BPF) release() error {
	for _, id := range d.plan.DropTables {
		if slot := d.tables[id].slot; slot != 0 {
			d.unused = append(d.unused, slot)
			delete(d.tables, id)
		}
	}
	return d.releaseUnused()
}

// releaseUnused gives slots back, except those that an entry in the kernel still refers to, because its endpoint could
// not be written: these have another chance with the next plan.
func (d *BPF) releaseUnused() error {
	if len(d.unused) == 0 {
		return nil
	}
	held := map[uint32]bool{}
	for _, e := range d.endpoints.List() {
		for _, word := range []uint64{e.Ingress, e.Egress} {
			slot, _ := bpfmaps.SplitPolicyWord(word)
			held[slot] = true
		}
	}
	var errs []error
	d.unused = slices.DeleteFunc(d.unused, func(slot uint32) bool {
		if held[slot] {
			return false
		}
		errs = append(errs, d.slots.Release(slot))
		return true
	})
	return errors.Join(errs...)
}

func (d *BPF) drop() error {
	for _, c := range d.plan.DropClasses {
		d.retired[c] = true
	}
	if len(d.plan.DropClasses) > 0 {
		d.quiet = d.slots.Quiesce()
	}
	d.names.drop(d.plan.DropSets, d.plan.DropRules)
	if err := d.maps.ZeroRuleStats(d.plan.DropRules); err != nil {
		d.out.rest = append(d.out.rest, err)
	}
	return d.forgetClasses(false)
}

// forgetClasses removes what the kernel knows of dropped classes, once no packet can still be at work with one of them:
// it looked the class up before its address changed. Until then, with wait, no class may be made, since it might get
// the number of a dropped one.
func (d *BPF) forgetClasses(wait bool) error {
	if d.quiet == nil {
		return nil
	}
	if !wait {
		select {
		case err := <-d.quiet:
			return d.forgotten(err)
		default:
			return nil
		}
	}
	return d.forgotten(<-d.quiet)
}

func (d *BPF) forgotten(err error) error {
	if d.quiet = nil; err != nil {
		d.quiet = d.slots.Quiesce() // the next attempt waits anew
		return fmt.Errorf("wait for packets to leave: %w", err)
	}
	var keys []bpf.ClassChunk
	for key := range d.maps.ClassSets.All() {
		if d.retired[key.Class] {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		d.maps.ClassSets.Delete(key)
	}
	clear(d.retired)
	_ = d.maps.ClassSets.Sync() // what is left keeps its number (busyClasses), and writeLeft tells of it
	return nil
}
