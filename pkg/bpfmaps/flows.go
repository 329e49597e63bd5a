package bpfmaps

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// Flow is one entry of the connection table. A and B are its two ends, A the lower one; Entry.Flags says who opened it.
type Flow struct {
	A, B  netip.AddrPort
	Proto uint8
	Open  bool // answered and carried on, and in its endpoint's share: nothing evicts it
	Entry bpf.CtEntry
}

// Flows are the connection tables and what the programs keep beside them. Any goroutine may call its methods while the
// maps are open.
type Flows struct {
	ct4, ct6, swept, shares, grace *ebpf.Map
	walk4, walk6                   *ebpf.Map // see walk
	isNew                          bool      // one of the tables was not pinned
}

func newFlows(maps map[string]*ebpf.Map, made []string) *Flows {
	return &Flows{
		ct4: maps[bpf.MargayMapCt4], ct6: maps[bpf.MargayMapCt6], walk4: maps[bpf.MargayMapWalk4], walk6: maps[bpf.MargayMapWalk6],
		swept: maps[bpf.MargayMapSwept], shares: maps[bpf.MargayMapShares], grace: maps[bpf.MargayMapMidflowGrace],
		isNew: slices.Contains(made, bpf.MargayMapCt4) || slices.Contains(made, bpf.MargayMapCt6),
	}
}

// Lost reports whether Open created a connection table: flows of an earlier table, or of one of another layout, are
// lost.
func (f *Flows) Lost() bool { return f.isNew }

// All yields all tracked flows, and after them at most one error. Flows that come or go meanwhile may be missing, and
// others come twice.
func (f *Flows) All() iter.Seq2[Flow, error] {
	return func(yield func(Flow, error) bool) {
		_ = f.all4(yield) && f.all6(yield)
	}
}

func (f *Flows) all4(yield func(Flow, error) bool) bool {
	for part, err := range readAll[bpf.Ct4Key, bpf.CtEntry](f.ct4) {
		if err != nil {
			return yield(Flow{}, fmt.Errorf("read map %s: %w", bpf.MargayMapCt4, err))
		}
		for i, key := range part.keys {
			a := netip.AddrPortFrom(netip.AddrFrom4(key.A), key.Pa)
			b := netip.AddrPortFrom(netip.AddrFrom4(key.B), key.Pb)
			if !yield(Flow{a, b, key.Proto, isOpen(&part.values[i]), part.values[i]}, nil) {
				return false
			}
		}
	}
	return true
}

func (f *Flows) all6(yield func(Flow, error) bool) bool {
	for part, err := range readAll[bpf.Ct6Key, bpf.CtEntry](f.ct6) {
		if err != nil {
			return yield(Flow{}, fmt.Errorf("read map %s: %w", bpf.MargayMapCt6, err))
		}
		for i, key := range part.keys {
			a := netip.AddrPortFrom(netip.AddrFrom16(key.A), key.Pa)
			b := netip.AddrPortFrom(netip.AddrFrom16(key.B), key.Pb)
			if !yield(Flow{a, b, key.Proto, isOpen(&part.values[i]), part.values[i]}, nil) {
				return false
			}
		}
	}
	return true
}

func isOpen(e *bpf.CtEntry) bool { return e.Kept != 0 && e.Kept != gone }

// gone is CtEntry.Kept of an entry that is about to be deleted.
const gone = 1<<32 - 1
