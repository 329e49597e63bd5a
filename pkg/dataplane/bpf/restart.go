package bpf

import (
	"errors"
	"maps"
	"net/netip"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// adopt reads back what an earlier agent left in the kernel, so that this one goes on where it stopped, between
// whatever two writes that was: same numbers, same classes, same tables, and live flows that need no new judgement.
// Everything read becomes what the tables want, until a plan says otherwise.
func (s *state) adopt() (*plan.Snapshot, error) {
	found := &plan.Snapshot{}
	var err error
	if found.Sets, found.Rules, err = s.names.adopt(); err != nil {
		return nil, err
	}
	if found.Classes, err = s.classes.adopt(); err != nil {
		return nil, err
	}
	var owners map[netip.Addr]uint32
	if found.Addrs, owners, err = s.addresses.adopt(); err != nil {
		return nil, err
	}
	s.classes.missing(found.Classes, found.Addrs)
	earlier, attachErr := s.kernel.host.Earlier()
	err = s.adoptEndpoints(found, earlier.Outside)
	for _, e := range s.kernel.endpoints.List() { // an address that the maps had no room for is still its endpoint's
		for _, a := range []netip.Addr{netip.AddrFrom4(e.Addr4), netip.AddrFrom16(e.Addr6)} {
			if e.Flags&bpf.EPReady != 0 && !a.IsUnspecified() {
				owners[a] = e.Ifindex
			}
		}
	}
	if published, _ := s.kernel.gens.Use(); published == 0 {
		earlier.Guarded = false
	}
	if s.kernel.other.judges() {
		earlier = Earlier{}
	}
	s.kernel.heirs.resume(earlier, s.interfaces.byName, owners, s.endpoints.entries.inForce)
	return found, errors.Join(err, attachErr)
}

// adoptEndpoints makes what the kernel has of endpoints theirs, with their tables. Those on interfaces outside of the prefix may stay in force,
// too: see outside.
func (s *state) adoptEndpoints(found *plan.Snapshot, outside map[uint32]string) error {
	interfaces := map[uint32]string{}
	maps.Copy(interfaces, outside)
	for name, ifindex := range s.interfaces.byName {
		interfaces[ifindex] = name
	}
	unasked := s.kernel.gens.Announced()
	errs := []error{s.endpoints.sources.adopt()}
	for _, e := range s.kernel.endpoints.List() {
		name := interfaces[e.Ifindex]
		gone, err := s.kernel.host.IsGone(e.Ifindex)
		errs = append(errs, err)
		if name == "" || gone || e.Flags&bpf.EPReady == 0 {
			// Its interface is gone, though a pod that has come since may have its number, or it was being made or removed: nothing can
			// pass there, it can go. The new pod would have its flows.
			errs = append(errs, s.kernel.endpoints.Remove(e.Ifindex))
			continue
		}
		if flags := e.Flags &^ (bpf.EPStagedIngress | bpf.EPStagedEgress); flags != e.Flags {
			// Slots of staged policies are not taken over: they are compiled again, and others may get them meanwhile.
			e.Flags = flags
			errs = append(errs, s.kernel.endpoints.Set(e))
		}
		ep := &endpoint{ifindex: e.Ifindex, number: e.Id, unasked: unasked, share: e.Share%bpf.Shares + 1,
			peer: Peer{Ifindex: e.PeerIfindex, MAC: e.Mac, MTU: e.Mtu}}
		for dir, word := range [2]uint64{e.Ingress, e.Egress} {
			slot, gen := bpfmaps.SplitPolicyWord(word)
			ep.gens[dir], ep.tables[dir] = gen, table.ID(slot)
			if table, isNew := s.tables.adopt(slot, model.Direction(dir), name); isNew {
				found.Tables = append(found.Tables, table)
			}
		}
		found.Endpoints = append(found.Endpoints, plan.SnapshotEndpoint{
			ID: s.endpoints.roster.adopt(name, ep), Iface: name, Ingress: ep.tables[model.Ingress], Egress: ep.tables[model.Egress],
		})
	}
	errs = append(errs, s.endpoints.sources.dropOthers(s.endpoints.roster.isProgrammed))
	return errors.Join(errs...)
}
