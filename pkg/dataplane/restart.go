package dataplane

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile"
	"github.com/margay-project/margay/pkg/model"
)

// adopt reads back what an earlier agent left in the kernel, so that this one goes on where it stopped, between
// whatever two writes that was: same numbers, same classes, same tables, and live flows that need no new judgement.
// Everything read becomes what the tables want, until a plan says otherwise. interfaces are names by ifindex.
func (d *BPF) adopt(interfaces map[uint32]string) (*compile.Snapshot, error) {
	s := &compile.Snapshot{}
	if err := d.adoptNames(s); err != nil {
		return nil, err
	}
	if err := d.adoptAddrs(s); err != nil {
		return nil, err
	}
	return s, d.adoptEndpoints(s, interfaces)
}

func (d *BPF) adoptNames(s *compile.Snapshot) error {
	var err error
	if s.Sets, s.Rules, err = d.names.adopt(); err != nil {
		return err
	}
	chunks, err := keep(d.maps.ClassSets)
	members := map[uint32][]uint32{}
	for key, bits := range chunks {
		members[key.Class] = append(members[key.Class], setsIn(key.Chunk, bits)...)
	}
	for class, numbers := range members {
		slices.Sort(numbers)
		s.Classes = append(s.Classes, compile.Class{ID: class, Sets: numbers})
	}
	slices.SortFunc(s.Classes, func(a, b compile.Class) int { return int(int64(a.ID) - int64(b.ID)) })
	return err
}

// setsIn is the reverse of chunksOf for one chunk.
func setsIn(chunk uint32, bits bpf.SetBits) []uint32 {
	var sets []uint32
	for w, word := range bits.Bits {
		for n := range uint32(64) {
			if word>>n&1 != 0 {
				sets = append(sets, chunk<<9|uint32(w)<<6|n)
			}
		}
	}
	return sets
}

// keep makes a table want what is in its map.
func keep[K, V comparable](t *bpfmaps.Table[K, V]) (map[K]V, error) {
	if err := t.Adopt(); err != nil {
		return nil, err
	}
	return maps.Collect(t.All()), nil
}

func (d *BPF) adoptAddrs(s *compile.Snapshot) error {
	ip4, err1 := keep(d.maps.IP4Host)
	ip6, err2 := keep(d.maps.IP6Host)
	net4, err3 := keep(d.maps.IP4Net)
	net6, err4 := keep(d.maps.IP6Net)
	add := func(p netip.Prefix, info bpf.AddrInfo) {
		s.Addrs = append(s.Addrs, compile.AddrChange{Prefix: p, Class: info.Class, Flags: compile.AddrFlags(info.Flags)})
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
	slices.SortFunc(s.Addrs, func(a, b compile.AddrChange) int {
		if c := a.Prefix.Addr().Compare(b.Prefix.Addr()); c != 0 {
			return c
		}
		return a.Prefix.Bits() - b.Prefix.Bits()
	})
	return errors.Join(err1, err2, err3, err4)
}

func (d *BPF) adoptEndpoints(s *compile.Snapshot, interfaces map[uint32]string) error {
	seen, unasked := map[uint32]bool{}, d.gens.Announced()
	var errs []error
	for _, e := range d.endpoints.List() {
		name := interfaces[e.Ifindex]
		if name == "" || e.Flags&bpf.EPReady == 0 {
			// Its interface is gone, or it was being made or removed: nothing can pass there, it can go.
			errs = append(errs, d.endpoints.Remove(e.Ifindex))
			continue
		}
		ep := &endpoint{ifindex: e.Ifindex, number: e.Id, unasked: unasked, share: e.Share%bpf.Shares + 1,
			peer: Peer{Ifindex: e.PeerIfindex, MAC: e.Mac, MTU: e.Mtu}}
		for dir, word := range [2]uint64{e.Ingress, e.Egress} {
			slot, gen := bpfmaps.SplitPolicyWord(word)
			ep.gens[dir], ep.tables[dir] = gen, compile.TableID(slot)
			if slot == 0 || seen[slot] {
				continue
			}
			seen[slot] = true
			d.tables[compile.TableID(slot)] = published{slot: slot}
			rules, err := d.maps.ReadRules(slot)
			if err != nil { // without rules it is replaced by the first plan, and not used for anything else before
				d.log.Warn("a policy in force cannot be read back, it will be published anew", "iface", name, "err", err)
				rules = nil
			}
			s.Tables = append(s.Tables, compile.SnapshotTable{
				ID: compile.TableID(slot), Direction: model.Direction(dir), Rules: rules,
			})
		}
		d.numbers = max(d.numbers, e.Id)
		id := model.EndpointID{Name: "ifindex-" + fmt.Sprint(e.Ifindex)}
		d.bound[id] = ep
		d.adopted[name] = id
		s.Endpoints = append(s.Endpoints, compile.SnapshotEndpoint{
			ID: id, Iface: name, Ingress: ep.tables[model.Ingress], Egress: ep.tables[model.Egress],
		})
	}
	return errors.Join(errs...)
}
