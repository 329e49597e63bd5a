package bpf

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// adopt makes the entries in the kernel the desired ones. owners are the interfaces by the addresses of endpoints.
func (a *addresses) adopt() (list []classes.AddrChange, owners map[netip.Addr]uint32, err error) {
	owners = map[netip.Addr]uint32{}
	ip4, err1 := keep(a.maps.IP4Host)
	ip6, err2 := keep(a.maps.IP6Host)
	net4, err3 := keep(a.maps.IP4Net)
	net6, err4 := keep(a.maps.IP6Net)
	add := func(p netip.Prefix, info bpf.AddrInfo) {
		list = append(list, classes.AddrChange{Prefix: p, Class: info.Class, Flags: classes.AddrFlags(info.Flags)})
		if info.Flags&bpf.AddrEndpoint != 0 && info.Ifindex != 0 && p.IsSingleIP() {
			owners[p.Addr()] = info.Ifindex
		}
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
	return list, owners, errors.Join(err1, err2, err3, err4)
}

// adopt makes a slot in use a table of its own, unless it is one already. iface is an interface that it judges.
func (t *tables) adopt(slot uint32, dir model.Direction, iface string) (found plan.SnapshotTable, isNew bool) {
	id := table.ID(slot)
	if slot == 0 || t.slot(id) != 0 {
		return found, false
	}
	var shape bpf.Slot
	err := t.kernel.maps.Map(bpf.MargayMapSlots).Lookup(&slot, &shape)
	t.list[id] = published{slot: slot, walked: err != nil || shape.Flags&bpf.SlotInterpret != 0}
	rules, err := t.kernel.maps.ReadRules(slot)
	if err != nil { // without rules it is replaced by the first plan, and not used for anything else before
		t.kernel.log.Warn("a policy in force cannot be read back, it will be published again", "iface", iface, "err", err)
		rules = nil
	}
	return plan.SnapshotTable{ID: id, Direction: dir, Rules: rules}, true
}
