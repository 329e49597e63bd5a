package agent_test

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/agent"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

// damage is what somebody may do to the maps.
type damage struct {
	name string
	do   func(t *testing.T, v *verified)
	says string                          // is in a reported difference
	undo func(t *testing.T, v *verified) // nil: a resync repairs it
}

var db = model.WorkloadID("shop", "db")

func (v *verified) entry(t *testing.T, id model.EndpointID) (e bpf.Endpoint) {
	t.Helper()
	v.query(t, func(agent.View) {
		var ok bool
		if e, ok = v.dp.Kernel(id); !ok {
			t.Errorf("%s is not in the kernel", id)
		}
	})
	return e
}

// slot is that of the ingress policy of an endpoint.
func (v *verified) slot(t *testing.T, id model.EndpointID) uint32 {
	t.Helper()
	slot, _ := bpfmaps.SplitPolicyWord(v.entry(t, id).Ingress)
	return slot
}

func (v *verified) m(name string) *ebpf.Map { return v.dp.Maps().Map(name) }

// part opens one array of the ingress policy of db.
func (v *verified) part(t *testing.T, name string) *ebpf.Map {
	t.Helper()
	slot := v.slot(t, db)
	var id ebpf.MapID
	if err := v.m(name).Lookup(&slot, &id); err != nil {
		t.Fatal(err)
	}
	inner, err := ebpf.NewMapFromID(id)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inner.Close() })
	return inner
}

func get[V, K any](t *testing.T, m *ebpf.Map, key K) (value V) {
	t.Helper()
	if err := m.Lookup(&key, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func put[K, V any](t *testing.T, m *ebpf.Map, key K, value V) {
	t.Helper()
	if err := m.Put(&key, &value); err != nil {
		t.Fatal(err)
	}
}

func remove[K any](t *testing.T, m *ebpf.Map, key K) {
	t.Helper()
	if err := m.Delete(&key); err != nil {
		t.Fatal(err)
	}
}

// alter changes the value of a key.
func alter[K, V any](t *testing.T, m *ebpf.Map, key K, change func(*V)) {
	t.Helper()
	value := get[V](t, m, key)
	change(&value)
	put(t, m, key, value)
}

func addr4(text string) bpf.IP4 { return bpfmaps.IP4(netip.MustParseAddr(text)) }
func addr6(text string) bpf.IP6 { return bpfmaps.IP6(netip.MustParseAddr(text)) }
func net4(text string) bpf.Net4 { return bpfmaps.Net4(netip.MustParsePrefix(text)) }

// inSlot is damage of one array of db's ingress policy.
func inSlot[V any](part string, key uint32, change func(*V)) func(*testing.T, *verified) {
	return func(t *testing.T, v *verified) { alter(t, v.part(t, part), key, change) }
}

// inAll is damage of all values of one array.
func inAll[V any](part string, change func(*V)) func(*testing.T, *verified) {
	return func(t *testing.T, v *verified) {
		m := v.part(t, part)
		for i := range m.MaxEntries() {
			alter(t, m, i, change)
		}
	}
}

// inShape is damage of the shape of db's ingress policy.
func inShape(change func(*bpf.Slot)) func(*testing.T, *verified) {
	return func(t *testing.T, v *verified) { alter(t, v.m(bpf.MargayMapSlots), v.slot(t, db), change) }
}

// inEndpoint is damage of db's entry.
func inEndpoint(change func(*bpf.Endpoint)) func(*testing.T, *verified) {
	return func(t *testing.T, v *verified) { alter(t, v.m(bpf.MargayMapEndpoints), v.entry(t, db).Ifindex, change) }
}

// inHost is damage of the whole entry of a single IPv4 address.
func inHost(addr string, change func(*bpf.HostInfo)) func(*testing.T, *verified) {
	return func(t *testing.T, v *verified) { alter(t, v.m(bpf.MargayMapIp4Host), addr4(addr), change) }
}

// inAddress is damage of the entry of a single IPv4 address.
func inAddress(addr string, change func(*bpf.AddrInfo)) func(*testing.T, *verified) {
	return inHost(addr, func(h *bpf.HostInfo) {
		a := netip.MustParseAddr(addr)
		info, _ := h.Of(a)
		change(&info)
		*h = bpf.HostInfoOf(a, info)
	})
}

func (v *verified) class(t *testing.T, addr string) uint32 {
	return get[bpf.HostInfo](t, v.m(bpf.MargayMapIp4Host), addr4(addr)).Class
}

// firstKey is one of the keys of a map.
func firstKey[K any](t *testing.T, m *ebpf.Map) (key K) {
	t.Helper()
	if err := m.NextKey(nil, &key); err != nil {
		t.Fatal(err)
	}
	return key
}

// slotDamages are those of compiled policies.
func slotDamages() []damage {
	cells := func(b *bpf.CellBlock) {
		for i := range b.Cell {
			b.Cell[i] ^= 1
		}
	}
	return []damage{
		{name: "outcomes allow", do: inAll(bpf.MargayMapOutcomes, func(o *bpf.Outcome) { o.Action = bpf.RuleAllow }), says: "should deny it"},
		{name: "outcomes deny", do: inAll(bpf.MargayMapOutcomes, func(o *bpf.Outcome) { o.Action = bpf.RuleDeny }), says: "should allow it"},
		{name: "outcomes are of another rule", do: inAll(bpf.MargayMapOutcomes, func(o *bpf.Outcome) { o.Rule ^= 1 }), says: "shop/db ingress"},
		{name: "outcomes are counted for another rule", do: inAll(bpf.MargayMapOutcomes, func(o *bpf.Outcome) { o.Id += 7 }), says: "shop/db ingress"},
		{name: "outcomes have logs", do: inAll(bpf.MargayMapOutcomes, func(o *bpf.Outcome) { o.Nlogs++ }), says: "logged by"},
		{name: "outcomes have passes", do: inAll(bpf.MargayMapOutcomes, func(o *bpf.Outcome) { o.Npasses++ }), says: "passed by"},
		{name: "cells", do: inAll(bpf.MargayMapCells, cells), says: "shop/db ingress"},
		{name: "a cell that no packet reaches", do: func(t *testing.T, v *verified) {
			alter(t, v.part(t, bpf.MargayMapCells), uint32(0), func(b *bpf.CellBlock) { b.Cell[31] ^= 1 })
		}, says: "cells"},
		{name: "the row of a class", do: func(t *testing.T, v *verified) {
			class := v.class(t, "10.0.0.1")
			alter(t, v.part(t, bpf.MargayMapRows), class/32, func(b *bpf.CellBlock) { b.Cell[class%32] = 0 })
		}, says: "10.0.0.1"},
		{name: "the row of outside addresses", do: func(t *testing.T, v *verified) {
			class := v.class(t, "10.0.0.1")
			m := v.part(t, bpf.MargayMapRows)
			row := get[bpf.CellBlock](t, m, class/32).Cell[class%32]
			alter(t, m, uint32(0), func(b *bpf.CellBlock) { b.Cell[0] = row })
		}, says: "should deny it"},
		{name: "the row of a class that no address has", do: func(t *testing.T, v *verified) {
			m := v.part(t, bpf.MargayMapRows)
			alter(t, m, m.MaxEntries()-1, func(b *bpf.CellBlock) { b.Cell[31] = 1 })
		}, says: "rows"},
		{name: "blocks of rows", do: inAll(bpf.MargayMapRowblk, cells), says: "shop/db ingress"},
		{name: "a page of ports", do: func(t *testing.T, v *verified) {
			m := v.part(t, bpf.MargayMapL4)
			first := get[bpf.L4Page](t, m, uint32(bpf.L4TCP))
			alter(t, m, uint32(first.Col[5432>>8]), func(p *bpf.L4Page) { p.Col[5432&255] = p.Col[1] })
		}, says: ":5432"},
		{name: "one more port", do: func(t *testing.T, v *verified) {
			m := v.part(t, bpf.MargayMapL4)
			first := get[bpf.L4Page](t, m, uint32(bpf.L4TCP))
			alter(t, m, uint32(first.Col[5432>>8]), func(p *bpf.L4Page) { p.Col[5433&255] = p.Col[5432&255] })
		}, says: ":5433"},
		{name: "a first page of ports", do: inSlot(bpf.MargayMapL4, uint32(bpf.L4UDP), func(p *bpf.L4Page) { p.Col[0] = 0xffff }), says: "udp"},
		{name: "the action of a rule", do: inSlot(bpf.MargayMapRules, 0, func(r *bpf.Rule) { r.Action = bpf.RuleDeny }), says: "match table"},
		{name: "the port of a rule", do: inSlot(bpf.MargayMapRules, 0, func(r *bpf.Rule) { r.Dport[0].Hi = 9999 }), says: "rules"},
		{name: "the set of a rule", do: inSlot(bpf.MargayMapRules, 0, func(r *bpf.Rule) { r.In[0] = 0 }), says: "match table"},
		{name: "the number of a rule", do: inSlot(bpf.MargayMapRules, 0, func(r *bpf.Rule) { r.Id++ }), says: "shop/db"},
		{name: "the family of a rule", do: inSlot(bpf.MargayMapRules, 0, func(r *bpf.Rule) { r.Flags = bpf.RuleV6 }), says: "match table"},
		{name: "the walk is in force", do: inShape(func(s *bpf.Slot) { s.Flags |= bpf.SlotInterpret }), says: "slots"},
		{name: "the flag of wide tables", do: inShape(func(s *bpf.Slot) { s.Flags |= bpf.SlotWide }), says: "slots"},
		{name: "the number of blocks", do: inShape(func(s *bpf.Slot) { s.Blocks += 3 }), says: "slots"},
		{name: "the number of rules", do: inShape(func(s *bpf.Slot) { s.Rules = 1 }), says: "slots"},
		{name: "the generation of a slot", do: inShape(func(s *bpf.Slot) { s.Generation = 1 }), says: "slots"},
		{name: "a part is gone", do: func(t *testing.T, v *verified) { remove(t, v.m(bpf.MargayMapOutcomes), v.slot(t, db)) }, says: "shop/db ingress"},
		{name: "a part is another policy's", do: func(t *testing.T, v *verified) {
			from := v.slot(t, model.WorkloadID("shop", "web"))
			inner, err := ebpf.NewMapFromID(get[ebpf.MapID](t, v.m(bpf.MargayMapL4), from))
			if err != nil {
				t.Fatal(err)
			}
			defer inner.Close()
			put(t, v.m(bpf.MargayMapL4), v.slot(t, db), uint32(inner.FD()))
		}, says: "shop/db"},
	}
}

// endpointDamages are those of entries of endpoints.
func endpointDamages() []damage {
	foreign := bpf.Endpoint{Ifindex: 4711, Flags: bpf.EPReady}
	return []damage{
		{name: "another ingress policy", do: func(t *testing.T, v *verified) {
			word := v.entry(t, model.WorkloadID("shop", "web")).Ingress
			inEndpoint(func(e *bpf.Endpoint) { e.Ingress = word })(t, v)
		}, says: "shop/db ingress"},
		{name: "no ingress policy", do: inEndpoint(func(e *bpf.Endpoint) { e.Ingress = 0 }), says: "shop/db ingress"},
		{name: "the policy of the other direction", do: inEndpoint(func(e *bpf.Endpoint) { e.Egress = e.Ingress }), says: "shop/db egress"},
		{name: "another generation", do: inEndpoint(func(e *bpf.Endpoint) { e.Ingress++ }), says: "generation"},
		{name: "not ready", do: inEndpoint(func(e *bpf.Endpoint) { e.Flags &^= bpf.EPReady }), says: "ready"},
		{name: "may send from other addresses", do: inEndpoint(func(e *bpf.Endpoint) { e.Flags ^= bpf.EPSources }), says: "flags"},
		{name: "has more addresses", do: inEndpoint(func(e *bpf.Endpoint) { e.Flags |= bpf.EPMoreAddrs }), says: "flags"},
		{name: "staged policies", do: inEndpoint(func(e *bpf.Endpoint) { e.Flags |= bpf.EPStagedEgress }), says: "flags"},
		{name: "another IPv4 address", do: inEndpoint(func(e *bpf.Endpoint) { e.Addr4[3] = 99 }), says: "IPv4 address 10.0.0.99"},
		{name: "another IPv6 address", do: inEndpoint(func(e *bpf.Endpoint) { e.Addr6[15] = 99 }), says: "IPv6 address"},
		{name: "another share", do: inEndpoint(func(e *bpf.Endpoint) { e.Share++ }), says: "share"},
		{name: "another peer", do: inEndpoint(func(e *bpf.Endpoint) { e.PeerIfindex = 9 }), says: "peer interface 9"},
		{name: "another MAC", do: inEndpoint(func(e *bpf.Endpoint) { e.Mac[0] = 2 }), says: "peer MAC"},
		{name: "another MTU", do: inEndpoint(func(e *bpf.Endpoint) { e.Mtu = 100 }), says: "peer MTU 100"},
		{name: "another number", do: inEndpoint(func(e *bpf.Endpoint) { e.Id += 100 }), says: "number"},
		{name: "gone", do: inEndpoint(func(e *bpf.Endpoint) { *e = bpf.Endpoint{} }), says: "shop/db: the kernel has no endpoint"},
		{name: "an endpoint that no agent knows", do: func(t *testing.T, v *verified) { put(t, v.m(bpf.MargayMapEndpoints), foreign.Ifindex, foreign) },
			says: "interface 4711", undo: func(t *testing.T, v *verified) { put(t, v.m(bpf.MargayMapEndpoints), foreign.Ifindex, bpf.Endpoint{}) }},
		{name: "one more that no agent knows", do: func(t *testing.T, v *verified) {
			put(t, v.m(bpf.MargayMapEndpoints), bpf.Endpoints+7, foreign)
			put(t, v.m(bpf.MargayMapEndpointPlaces), foreign.Ifindex, bpf.Endpoints+7)
		}, says: "interface 4711", undo: func(t *testing.T, v *verified) {
			remove(t, v.m(bpf.MargayMapEndpointPlaces), foreign.Ifindex)
			put(t, v.m(bpf.MargayMapEndpoints), bpf.Endpoints+7, bpf.Endpoint{})
		}},
	}
}

// addressDamages are those of addresses and their classes.
func addressDamages() []damage {
	return []damage{
		{name: "the class of a pod's address", do: inAddress("10.0.0.1", func(i *bpf.AddrInfo) { i.Class = 0 }), says: "10.0.0.1"},
		{name: "a pod's address is gone", do: func(t *testing.T, v *verified) { remove(t, v.m(bpf.MargayMapIp4Host), addr4("10.0.0.1")) }, says: "10.0.0.1"},
		{name: "an outside address is taken for a pod's", do: func(t *testing.T, v *verified) {
			put(t, v.m(bpf.MargayMapIp4Host), addr4("203.0.113.7"), bpf.HostInfoOf(netip.MustParseAddr("203.0.113.7"), bpf.AddrInfo{Class: v.class(t, "10.0.0.1")}))
		}, says: "203.0.113.7"},
		{name: "the class of an IPv6 address", do: func(t *testing.T, v *verified) {
			alter(t, v.m(bpf.MargayMapIp6Host), addr6("fd00::1"), func(h *bpf.HostInfo) { h.Class = 1 })
		}, says: "fd00::1"},
		{name: "the class of a prefix", do: func(t *testing.T, v *verified) {
			alter(t, v.m(bpf.MargayMapIp4Net), net4("192.0.2.0/24"), func(i *bpf.AddrInfo) { i.Class = 0 })
		}, says: "192.0.2."},
		{name: "a prefix is gone", do: func(t *testing.T, v *verified) { remove(t, v.m(bpf.MargayMapIp4Net), net4("198.51.100.0/25")) }, says: "198.51.100."},
		{name: "a longer prefix", do: func(t *testing.T, v *verified) {
			put(t, v.m(bpf.MargayMapIp4Net), net4("192.0.2.64/26"), bpf.AddrInfo{})
		}, says: "192.0.2.64"},
		{name: "all addresses are taken for a pod's", do: func(t *testing.T, v *verified) {
			put(t, v.m(bpf.MargayMapIp4Net), net4("0.0.0.0/0"), bpf.AddrInfo{Class: v.class(t, "10.0.0.1")})
		}, says: "should deny it"},
		{name: "a single address among prefixes", do: func(t *testing.T, v *verified) {
			put(t, v.m(bpf.MargayMapIp4Net), net4("203.0.113.8/32"), bpf.AddrInfo{Class: v.class(t, "10.0.0.1")})
		}, says: "203.0.113.8"},
		{name: "the entry of a pod's address is another address's", do: inHost("10.0.0.1", func(h *bpf.HostInfo) { h.Check[2] ^= 1 }), says: "10.0.0.1"},
		{name: "a pod's address is nobody's", do: inAddress("10.0.0.2", func(i *bpf.AddrInfo) { i.Flags &^= bpf.AddrEndpoint }), says: "address 10.0.0.2"},
		{name: "a pod's address is another's", do: inAddress("10.0.0.2", func(i *bpf.AddrInfo) { i.Ifindex++ }), says: "address 10.0.0.2"},
		{name: "an address of the node", do: inAddress("10.0.0.3", func(i *bpf.AddrInfo) { i.Flags |= bpf.AddrHost }), says: "of this node"},
		{name: "a node's address is nobody's", do: inAddress("192.168.0.1", func(i *bpf.AddrInfo) { i.Flags &^= bpf.AddrHost }), says: "of this node"},
		{name: "a Service's address is not translated", do: inAddress("10.96.0.1", func(i *bpf.AddrInfo) { i.Flags &^= bpf.AddrMayTranslate }), says: "of a Service"},
		{name: "an address is owned", do: inAddress("10.96.0.1", func(i *bpf.AddrInfo) { i.Flags ^= bpf.AddrOwned }), says: "owned"},
		{name: "one more set of a class", do: func(t *testing.T, v *verified) {
			alter(t, v.m(bpf.MargayMapClassSets), bpf.ClassChunk{Class: v.class(t, "10.0.0.1")}, func(b *bpf.SetBits) { b.Bits[0] ^= 2 | 4 })
		}, says: "sets"},
		{name: "the sets of a class are gone", do: func(t *testing.T, v *verified) {
			remove(t, v.m(bpf.MargayMapClassSets), bpf.ClassChunk{Class: v.class(t, "10.0.0.1")})
		}, says: "10.0.0.1"},
	}
}

// otherDamages are those of names, staged policies, further sources, generations, the grace period and pins.
func otherDamages() []damage {
	rename := func(n *bpf.Name) { n.Text[0] = 'X' }
	source := bpfmaps.SourceKey(1001, netip.MustParsePrefix("203.0.113.0/24"))
	generation := func(change func(uint32) uint32) func(*testing.T, *verified) {
		return func(t *testing.T, v *verified) {
			alter(t, v.m(bpf.MargayMapSlots), uint32(0), func(s *bpf.Slot) { s.Generation = change(s.Generation) })
		}
	}
	pin := func(v *verified) string { return filepath.Join(v.dp.Maps().Dir(), bpf.MargayMapRuleNames) }
	return []damage{
		{name: "the name of a rule", do: func(t *testing.T, v *verified) {
			m := v.m(bpf.MargayMapRuleNames)
			alter(t, m, firstKey[uint32](t, m), rename)
		}, says: "X"},
		{name: "the name of db's rule is gone", do: func(t *testing.T, v *verified) {
			remove(t, v.m(bpf.MargayMapRuleNames), get[bpf.Rule](t, v.part(t, bpf.MargayMapRules), uint32(0)).Id)
		}, says: "shop/db"},
		{name: "the name of a set", do: func(t *testing.T, v *verified) {
			m := v.m(bpf.MargayMapSetNames)
			alter(t, m, firstKey[uint32](t, m), rename)
		}, says: "set_names"},
		{name: "the name of a set is gone", do: func(t *testing.T, v *verified) {
			m := v.m(bpf.MargayMapSetNames)
			remove(t, m, firstKey[uint32](t, m))
		}, says: "set_names"},
		{name: "the name of an endpoint", do: func(t *testing.T, v *verified) {
			alter(t, v.m(bpf.MargayMapEndpointNames), v.entry(t, db).Ifindex, rename)
		}, says: "endpoint_names"},
		{name: "the staged policies of an endpoint", do: func(t *testing.T, v *verified) {
			m := v.m(bpf.MargayMapStaged)
			alter(t, m, firstKey[uint32](t, m), func(s *bpf.Staged) { s.Ingress ^= 1 << 32 })
		}, says: "staged"},
		{name: "a compiled staged policy", do: func(t *testing.T, v *verified) {
			m := v.m(bpf.MargayMapStaged)
			slot := uint32(get[bpf.Staged](t, m, firstKey[uint32](t, m)).Ingress >> 32)
			outcomes, err := ebpf.NewMapFromID(get[ebpf.MapID](t, v.m(bpf.MargayMapOutcomes), slot))
			if err != nil {
				t.Fatal(err)
			}
			defer outcomes.Close()
			for i := range outcomes.MaxEntries() {
				alter(t, outcomes, i, func(o *bpf.Outcome) { o.Action = bpf.RuleAllow })
			}
		}, says: "decision table of staged policies allows it"},
		{name: "staged policies are gone", do: func(t *testing.T, v *verified) {
			m := v.m(bpf.MargayMapStaged)
			remove(t, m, firstKey[uint32](t, m))
		}, says: "staged"},
		{name: "one more source", do: func(t *testing.T, v *verified) { put(t, v.m(bpf.MargayMapSources), source, uint32(1)) }, says: "sources"},
		{name: "a source is gone", do: func(t *testing.T, v *verified) {
			m := v.m(bpf.MargayMapSources)
			remove(t, m, firstKey[bpf.SourceKey](t, m))
		}, says: "sources"},
		{name: "generations may be used twice", do: generation(func(g uint32) uint32 { return g - 1 }), says: "generation",
			undo: generation(func(g uint32) uint32 { return g + 1 })},
		{name: "answers are believed for ever", do: func(t *testing.T, v *verified) {
			put(t, v.m(bpf.MargayMapMidflowGrace), uint32(0), bpf.Grace{Until: bpfmaps.OpenEnded})
		}, says: "midflow_grace"},
		{name: "answers are believed for an hour", do: func(t *testing.T, v *verified) {
			until, err := bpfmaps.KernelTime(time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			put(t, v.m(bpf.MargayMapMidflowGrace), uint32(0), bpf.Grace{Until: until})
		}, says: "midflow_grace"},
		{name: "a pin is gone", do: func(t *testing.T, v *verified) {
			if err := v.m(bpf.MargayMapRuleNames).Unpin(); err != nil {
				t.Fatal(err)
			}
			if _, err := ebpf.LoadPinnedMap(pin(v), nil); err == nil {
				t.Fatal("it is still pinned")
			}
		}, says: "rule_names", undo: func(t *testing.T, v *verified) {
			if err := v.m(bpf.MargayMapRuleNames).Pin(pin(v)); err != nil {
				t.Fatal(err)
			}
		}},
	}
}

// resync has the dataplane repair what others have changed.
func (v *verified) resync(t *testing.T) {
	t.Helper()
	applies := v.Status().Applies
	v.query(t, func(agent.View) {
		v.plane.Resync()
		v.nudge(0)
	})
	testutil.WaitFor(t, time.Minute, "a resync", func() bool { return v.Status().Applies > applies })
	v.change(t)
}

// TestVerifyFindsDamage: each kind of damage is found and named, and after its repair everything is proven again.
func TestVerifyFindsDamage(t *testing.T) {
	v := runVerified(t, func(*dataplane.Config) {})
	v.replace(t, shop())
	all := append(append(append(slotDamages(), endpointDamages()...), addressDamages()...), otherDamages()...)
	for _, d := range all {
		t.Run(d.name, func(t *testing.T) {
			if r := v.verify(t); !r.Proven {
				t.Fatalf("without damage: %s", textOf(r))
			}
			d.do(t, v)
			said := ""
			for _, row := range v.verify(t).Differences {
				said += row.Text + "\n"
			}
			if !strings.Contains(said, d.says) || said == "" {
				t.Errorf("nothing with %q is reported, but:\n%s", d.says, said)
			}
			if d.undo != nil {
				d.undo(t, v)
			}
			v.resync(t)
		})
	}
	t.Logf("%d kinds of damage", len(all))
	if r := v.verify(t); !r.Proven {
		t.Errorf("after all damage: %s", textOf(r))
	}
}

// TestVerifyLeavesCountersAlone: what somebody writes into counters changes no verdict, and no packet of a verification is
// counted.
func TestVerifyLeavesCountersAlone(t *testing.T) {
	v := runVerified(t, func(*dataplane.Config) {})
	v.replace(t, shop())
	stats := v.m(bpf.MargayMapRuleStats)
	var counts []bpf.Counter
	if err := stats.Lookup(uint32(1), &counts); err != nil {
		t.Fatal(err)
	}
	for i := range counts {
		counts[i] = bpf.Counter{Packets: 4711, Bytes: 4711}
	}
	if err := stats.Put(uint32(1), counts); err != nil {
		t.Fatal(err)
	}
	if r := v.verify(t); !r.Proven || r.Questions == 0 {
		t.Errorf("%+v", r)
	}
	after := make([]bpf.Counter, len(counts))
	if err := stats.Lookup(uint32(1), &after); err != nil {
		t.Fatal(err)
	}
	for _, c := range after {
		if c.Packets != 4711 {
			t.Errorf("the counter is %d", c.Packets)
		}
	}
	for _, name := range []string{bpf.MargayMapCt4, bpf.MargayMapCt6, bpf.MargayMapDrops} {
		if key, err := v.m(name).NextKeyBytes(nil); err != nil || key != nil {
			t.Errorf("map %s has an entry: %v, %v", name, key, err)
		}
	}
}
