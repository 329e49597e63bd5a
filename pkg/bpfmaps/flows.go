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
	Open  bool // in ct*_open: answered and carried on
	Entry bpf.CtEntry
}

// Flows yields all tracked flows, those that are open first, and after them at most one error. Flows that come or go
// meanwhile may be missing; one that is moved meanwhile may come twice.
func (m *Maps) Flows() iter.Seq2[Flow, error] {
	return func(yield func(Flow, error) bool) {
		for _, from := range []struct {
			name string
			read func(name string, yield func(Flow, error) bool) bool
		}{
			{bpf.MargayMapCt4Open, m.flows4}, {bpf.MargayMapCt6Open, m.flows6},
			{bpf.MargayMapCt4Half, m.flows4}, {bpf.MargayMapCt6Half, m.flows6},
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
			if !yield(Flow{a, b, key.Proto, name == bpf.MargayMapCt4Open, part.values[i]}, nil) {
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
			if !yield(Flow{a, b, key.Proto, name == bpf.MargayMapCt6Open, part.values[i]}, nil) {
				return false
			}
		}
	}
	return true
}

// MapUse is how full a map is.
type MapUse struct{ Entries, Max uint32 }

// FlowUse counts the entries of the four connection tables, by map name.
func (m *Maps) FlowUse() (map[string]MapUse, error) {
	return m.filled(context.Background(), counters[:flowTables])
}
