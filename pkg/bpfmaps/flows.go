package bpfmaps

import (
	"context"
	"fmt"
	"iter"
	"net/netip"

	"github.com/margay-project/margay/bpf"
)

// Flow is one entry of the connection table. A and B are its two ends, A the lower one; Entry.Flags says who opened it.
type Flow struct {
	A, B  netip.AddrPort
	Proto uint8
	Open  bool // answered and carried on, and in its endpoint's share: nothing evicts it
	Entry bpf.CtEntry
}

// Flows yields all tracked flows, and after them at most one error. Flows that come or go meanwhile may be missing, and
// others come twice.
func (m *Maps) Flows() iter.Seq2[Flow, error] {
	return func(yield func(Flow, error) bool) {
		for _, from := range []struct {
			name string
			read func(name string, yield func(Flow, error) bool) bool
		}{
			{bpf.MargayMapCt4, m.flows4}, {bpf.MargayMapCt6, m.flows6},
		} {
			if !from.read(from.name, yield) {
				return
			}
		}
	}
}

func (m *Maps) flows4(name string, yield func(Flow, error) bool) bool {
	for part, err := range readAll[bpf.Ct4Key, bpf.CtEntry](m.maps[name]) {
		if err != nil {
			return yield(Flow{}, fmt.Errorf("read map %s: %w", name, err))
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

func (m *Maps) flows6(name string, yield func(Flow, error) bool) bool {
	for part, err := range readAll[bpf.Ct6Key, bpf.CtEntry](m.maps[name]) {
		if err != nil {
			return yield(Flow{}, fmt.Errorf("read map %s: %w", name, err))
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

// MapUse is how full a map is.
type MapUse struct{ Entries, Max uint32 }

// FlowUse counts the entries of the two connection tables, by map name.
func (m *Maps) FlowUse() (map[string]MapUse, error) {
	return m.filled(context.Background(), counters[:flowTables])
}
