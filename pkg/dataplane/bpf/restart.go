package bpf

import (
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile/classes"
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
	if found.Addrs, err = s.addresses.adopt(); err != nil {
		return nil, err
	}
	return found, s.adoptEndpoints(found)
}

// keep makes a table want what is in its map.
func keep[K, V comparable](t *bpfmaps.Table[K, V]) (map[K]V, error) {
	if err := t.Adopt(); err != nil {
		return nil, err
	}
	return maps.Collect(t.All()), nil
}

func (a *addresses) adopt() ([]classes.AddrChange, error) {
	var list []classes.AddrChange
	ip4, err1 := keep(a.maps.IP4Host)
	ip6, err2 := keep(a.maps.IP6Host)
	net4, err3 := keep(a.maps.IP4Net)
	net6, err4 := keep(a.maps.IP6Net)
	add := func(p netip.Prefix, info bpf.AddrInfo) {
		list = append(list, classes.AddrChange{Prefix: p, Class: info.Class, Flags: classes.AddrFlags(info.Flags)})
	}
	for k, info := range ip4 {
		add(netip.PrefixFrom(netip.AddrFrom4(k.Addr), 32), info)
	}
	for k, info := range ip6 {
		add(netip.PrefixFrom(netip.AddrFrom16(k.Addr), 128), info)
	}
	for k, info := range net4 {
		add(netip.PrefixFrom(netip.AddrFrom4(k.Addr), int(k.Prefixlen)), info)
	}
	for k, info := range net6 {
		add(netip.PrefixFrom(netip.AddrFrom16(k.Addr), int(k.Prefixlen)), info)
	}
	slices.SortFunc(list, func(a, b classes.AddrChange) int {
		if c := a.Prefix.Addr().Compare(b.Prefix.Addr()); c != 0 {
			return c
		}
		return a.Prefix.Bits() - b.Prefix.Bits()
	})
	return list, errors.Join(err1, err2, err3, err4)
}

// adoptEndpoints makes what the kernel has of endpoints theirs, with their tables.
func (s *state) adoptEndpoints(found *plan.Snapshot) error {
	interfaces := map[uint32]string{}
	for name, ifindex := range s.interfaces.byName {
		interfaces[ifindex] = name
	}
	unasked := s.kernel.gens.Announced()
	var errs []error
	for _, e := range s.kernel.endpoints.List() {
		name := interfaces[e.Ifindex]
		if name == "" || e.Flags&bpf.EPReady == 0 {
			// Its interface is gone, or it was being made or removed: nothing can pass there, it can go.
			errs = append(errs, s.kernel.endpoints.Remove(e.Ifindex))
			continue
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
	return errors.Join(errs...)
}

// adopt makes a slot in use a table of its own, unless it is one already. iface is an interface that it judges.
func (t *tables) adopt(slot uint32, dir model.Direction, iface string) (found plan.SnapshotTable, isNew bool) {
	id := table.ID(slot)
	if slot == 0 || t.slot(id) != 0 {
		return found, false
	}
	t.list[id] = published{slot: slot}
	rules, err := t.kernel.maps.ReadRules(slot)
	if err != nil { // without rules it is replaced by the first plan, and not used for anything else before
		t.kernel.log.Warn("a policy in force cannot be read back, it will be published again", "iface", iface, "err", err)
		rules = nil
	}
	return plan.SnapshotTable{ID: id, Direction: dir, Rules: rules}, true
}
