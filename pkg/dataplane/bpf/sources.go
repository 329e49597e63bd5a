package bpf

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
)

// sources are the prefixes from which endpoints may send beside their own addresses. An entry of the map opens; so a prefix that
// cannot be written is left out, and one that cannot be removed is an error, for which the endpoint is closed.
type sources struct {
	table  *bpfmaps.Table[bpf.SourceKey, uint32]
	log    *slog.Logger
	listed map[uint32][]netip.Prefix // what the table has, by interface
	failed bool                      // an entry could not be written, and the log knows
	// barred: the entry of some address could not be written. It may be owned, so no further source counts.
	barred bool
}

func newSources(k *kernel) *sources {
	return &sources{table: k.maps.Addresses.Sources, log: k.log, listed: map[uint32][]netip.Prefix{}}
}

// adopt reads the entries that an earlier agent has left in the map; they are the desired ones until endpoints change them.
func (s *sources) adopt() error {
	found, err := keep(s.table)
	for key := range found {
		s.listed[key.Ifindex] = append(s.listed[key.Ifindex], bpfmaps.SourcePrefix(key))
	}
	return err
}

// dropOthers removes the entries of interfaces that are not those of endpoints.
func (s *sources) dropOthers(isEndpoint func(ifindex uint32) bool) error {
	for ifindex := range s.listed {
		if !isEndpoint(ifindex) {
			if err := s.narrow(ifindex, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// narrow removes the entries of an interface that are not in the list.
func (s *sources) narrow(ifindex uint32, list []netip.Prefix) error {
	gone := slices.DeleteFunc(slices.Clone(s.listed[ifindex]), func(p netip.Prefix) bool { return slices.Contains(list, p) })
	if len(gone) == 0 {
		return nil
	}
	for _, p := range gone {
		s.table.Delete(bpfmaps.SourceKey(ifindex, p))
	}
	err := s.table.Sync()
	for _, p := range gone {
		if s.table.IsUnwritten(bpfmaps.SourceKey(ifindex, p)) {
			return fmt.Errorf("remove further source %s of interface %d: %w", p, ifindex, err)
		}
	}
	kept := slices.DeleteFunc(slices.Clone(s.listed[ifindex]), func(p netip.Prefix) bool { return slices.Contains(gone, p) })
	if s.listed[ifindex] = kept; len(kept) == 0 {
		delete(s.listed, ifindex)
	}
	return nil
}

// write makes the entries of an interface those of the list.
func (s *sources) write(ifindex uint32, list []netip.Prefix) error {
	if err := s.narrow(ifindex, list); err != nil || len(list) == 0 {
		return err
	}
	for _, p := range list {
		s.table.Set(bpfmaps.SourceKey(ifindex, p), 1)
	}
	s.listed[ifindex] = list
	s.sync()
	return nil
}

// bar has no further source count from the next writes of endpoints on, or has them count again. It reports whether that is a change.
func (s *sources) bar(now bool) (changed bool) {
	changed = s.barred != now
	s.barred = now
	return changed
}

// reread looks for what others have changed, repairs it, and returns how many entries that were.
func (s *sources) reread() int {
	repairs, err := s.table.Resync()
	if err != nil {
		return 0 // it is read again with the next write
	}
	s.sync()
	return repairs.Len()
}

// sync writes what is to be written. The log says once that it cannot be.
func (s *sources) sync() {
	err := s.table.Sync()
	if err != nil && !s.failed {
		s.log.Warn("further sources of endpoints cannot be written to the kernel: packets from these addresses are dropped", "err", err)
	}
	s.failed = err != nil
}

// notInForce says which further sources of an interface do not count, and why; empty: all count, or there are none.
func (s *sources) notInForce(ifindex uint32) string {
	listed := s.listed[ifindex]
	if s.barred && len(listed) > 0 {
		return "further sources do not count while the address of some endpoint cannot be written to the kernel"
	}
	missing := slices.DeleteFunc(slices.Clone(listed), func(p netip.Prefix) bool { return !s.table.IsUnwritten(bpfmaps.SourceKey(ifindex, p)) })
	if len(missing) == 0 {
		return ""
	}
	text := missing[0].String()
	if n := len(missing) - 1; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("packets from the further source %s are dropped: the map %s is full or cannot be written", text, s.table.Name())
}

// flags are those of the entry of an endpoint that has further sources in the kernel.
func (s *sources) flags(ifindex uint32) uint32 {
	inKernel := func(p netip.Prefix) bool {
		_, ok := s.table.Believed(bpfmaps.SourceKey(ifindex, p))
		return ok
	}
	if s.barred || !slices.ContainsFunc(s.listed[ifindex], inKernel) {
		return 0
	}
	return bpf.EPSources
}
