package table

import (
	"slices"

	"github.com/margay-project/margay/bpf"
)

// portSide says whose ports are meant. ICMP types are kept where destination ports are.
type portSide uint8

const (
	destinationPorts portSide = iota
	sourcePorts
)

// sweep walks the ports of a protocol upwards and calls span at 0 and wherever the entries whose ranges hold the port
// change: with the first port, a hash of the entries, and the entries, ascending, which are valid during the call only.
// It ends early when span returns false.
func sweep(rules []bpf.Rule, proto uint8, side portSide, breaks *breaks, span func(lo uint16, hash uint64, entries []int32) bool) {
	// One event is port << 32 | entry << 1 | 1 if the entry begins to hold there.
	names := func(r *bpf.Rule) bool { return r.Flags&bpf.RuleProto != 0 && r.Proto == proto }
	count := 0
	for i := range rules {
		if r := &rules[i]; names(r) && side == sourcePorts {
			count += 2 * int(r.Nsports)
		} else if names(r) {
			count += 2 * int(r.Ndports)
		}
	}
	events := make([]uint64, 0, count)
	for i := range rules {
		r := &rules[i]
		if !names(r) {
			continue
		}
		ranges := r.Dport[:r.Ndports]
		if side == sourcePorts {
			ranges = r.Sport[:r.Nsports]
		}
		for _, x := range ranges {
			events = append(events, uint64(x.Lo)<<32|uint64(i)<<1|1, (uint64(x.Hi)+1)<<32|uint64(i)<<1)
		}
	}
	events = sortEvents(events, breaks)
	var (
		holding []int32
		hash    uint64
		at      uint64
	)
	for _, e := range events {
		if port := e >> 32; port != at {
			if !span(uint16(at), hash, holding) || port > 0xffff {
				return
			}
			at = port
		}
		entry := int32(uint32(e) >> 1)
		place, _ := slices.BinarySearch(holding, entry)
		if e&1 != 0 {
			holding = slices.Insert(holding, place, entry)
			hash += mix(uint64(entry))
		} else {
			holding = slices.Delete(holding, place, place+1)
			hash -= mix(uint64(entry))
		}
	}
	span(uint16(at), hash, holding)
}

// manyEvents are worth a pass over all ports.
const manyEvents = 1 << 14

// sortEvents sorts events, which are by entry, also by port. The slice may be another one.
func sortEvents(events []uint64, breaks *breaks) []uint64 {
	if len(events) < manyEvents {
		slices.Sort(events)
		breaks.spend(len(events))
		return events
	}
	var next [1<<16 + 2]int32 // by port: where its next event is to be
	for _, e := range events {
		next[e>>32+1]++
	}
	for port := range next[1:] {
		next[port+1] += next[port]
	}
	breaks.spend(len(events)/4 + len(next)/16)
	sorted := make([]uint64, len(events))
	for i, e := range events {
		sorted[next[e>>32]] = e
		next[e>>32]++
		if i%4096 == 0 {
			breaks.spend(1024)
		}
	}
	return sorted
}

// mix spreads a number over 64 bits (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
