package bpf_test

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// family is the addresses of one IP version. Each is in the set of the same number in both versions.
type family struct {
	name                     string
	a, a2, b                 netip.Addr // pods; a2 is A's second address
	out, other               netip.Addr // outside; other is in no set
	node, service, linkLocal netip.Addr
	icmp, echo, reply        uint8 // protocol and types
}

var (
	v4 = family{name: "v4",
		a: netip.MustParseAddr("10.65.0.2"), a2: netip.MustParseAddr("10.65.0.22"), b: netip.MustParseAddr("10.65.0.3"),
		out: netip.MustParseAddr("192.0.2.10"), other: netip.MustParseAddr("198.51.100.7"),
		node: netip.MustParseAddr("10.0.0.1"), service: netip.MustParseAddr("10.96.0.1"),
		linkLocal: netip.MustParseAddr("169.254.1.1"), icmp: 1, echo: 8, reply: 0}
	v6 = family{name: "v6",
		a: netip.MustParseAddr("fd00:65::2"), a2: netip.MustParseAddr("fd00:65::22"), b: netip.MustParseAddr("fd00:65::3"),
		out: netip.MustParseAddr("2001:db8::10"), other: netip.MustParseAddr("2001:db8:7::7"),
		node: netip.MustParseAddr("fd00::1"), service: netip.MustParseAddr("fd00:96::1"),
		linkLocal: netip.MustParseAddr("fe80::1"), icmp: 58, echo: 128, reply: 129}
	families = []family{v4, v6}
)

// The sets of the world, by number.
const (
	setA = iota + 1
	setB
	setOut
	setNode
	setService
)

// Slots with fixed policies; tests use numbers from 10 on for their own.
const (
	slotAllow  = 1
	slotDeny   = 2
	slotNoICMP = 3
)

// world is a machine in which two pods live, each allowed everything under generation 1.
type world struct {
	*machine
	a, b *bpf.Endpoint
}

func newWorld(t testing.TB, cfg bpf.Config) *world {
	t.Helper()
	w := &world{machine: newMachine(t, cfg)}
	class := uint32(10)
	for _, f := range families {
		for set, addrs := range map[uint32][]netip.Addr{setA: {f.a, f.a2}, setB: {f.b}, setOut: {f.out}, setNode: {f.node}, setService: {f.service}} {
			info := bpf.AddrInfo{Class: class}
			switch set {
			case setA:
				info.Flags, info.Ifindex = bpf.AddrEndpoint, w.podA
			case setB:
				info.Flags, info.Ifindex = bpf.AddrEndpoint, w.podB
			case setNode:
				info.Flags = bpf.AddrHost
			case setService:
				info.Flags = bpf.AddrMayTranslate
			}
			w.put(t, bpf.MargayMapClassSets, bpf.ClassChunk{Class: class}, bpf.SetBits{Bits: [8]uint64{1 << set}})
			for _, a := range addrs {
				w.address(t, a, info)
			}
			class++
		}
	}
	w.policy(t, slotAllow, rule(bpf.RuleAllow, 0, 0))
	w.policy(t, slotDeny)
	w.policy(t, slotNoICMP, rule(bpf.RuleDeny, 1, 0), rule(bpf.RuleDeny, 58, 0), rule(bpf.RuleAllow, 0, 0))
	w.a = &bpf.Endpoint{Ifindex: w.podA, Flags: bpf.EPReady, Id: 1, Share: 1, Addr4: v4.a.As4(), Addr6: v6.a.As16(),
		PeerIfindex: 2, Mac: [6]byte{2, 0, 0, 0, 0, 0xa}, Mtu: 1500}
	w.b = &bpf.Endpoint{Ifindex: w.podB, Flags: bpf.EPReady, Id: 1, Share: 2, Addr4: v4.b.As4(), Addr6: v6.b.As16(),
		PeerIfindex: 3, Mac: [6]byte{2, 0, 0, 0, 0, 0xb}, Mtu: 1500}
	w.reset(t)
	return w
}

// reset forgets all flows and counts, and lets the pods do everything again.
func (w *world) reset(t testing.TB) {
	t.Helper()
	w.forget(t)
	for _, ep := range []*bpf.Endpoint{w.a, w.b} {
		ep.Flags = bpf.EPReady
		w.publish(t, ep, word(slotAllow, 1), word(slotAllow, 1))
	}
}

// word is a policy in force: its slot and generation.
func word(slot, generation uint32) uint64 { return uint64(slot)<<32 | uint64(generation) }

// publish puts policies of an endpoint in force.
func (w *world) publish(t testing.TB, ep *bpf.Endpoint, ingress, egress uint64) {
	t.Helper()
	ep.Ingress, ep.Egress = ingress, egress
	w.put(t, bpf.MargayMapEndpoints, ep.Ifindex, *ep)
}

// address writes the entry of a single address as the agent does: where it is.
func (m *machine) address(t testing.TB, a netip.Addr, info bpf.AddrInfo) {
	t.Helper()
	var err error
	if a.Is4() {
		err = m.Maps[bpf.MargayMapIp4Host].Update(bpf.IP4{Addr: a.As4()}, bpf.HostInfoOf(a, info), ebpf.UpdateLock)
	} else {
		err = m.Maps[bpf.MargayMapIp6Host].Update(bpf.IP6{Addr: a.As16()}, bpf.HostInfoOf(a, info), ebpf.UpdateLock)
	}
	if err != nil {
		t.Fatalf("entry of %v: %v", a, err)
	}
}

// eachFamily runs a test with the addresses of both IP versions, in a world as new.
func (w *world) eachFamily(t *testing.T, name string, test func(t *testing.T, f family)) {
	t.Helper()
	for _, f := range families {
		t.Run(fmt.Sprintf("%s/%s", name, f.name), func(t *testing.T) {
			w.reset(t)
			test(t, f)
		})
	}
}

// put writes one map entry.
func (m *machine) put(t testing.TB, name string, key, value any) {
	t.Helper()
	if err := m.Maps[name].Put(key, value); err != nil {
		t.Fatalf("map %s: %v", name, err)
	}
}

// part puts the values of one part of a compiled policy into a slot.
func part[T any](t testing.TB, m *machine, name string, slot uint32, values []T) {
	t.Helper()
	spec := m.spec.Maps[name].InnerMap.Copy()
	spec.MaxEntries = uint32(len(values))
	inner, err := ebpf.NewMap(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer inner.Close()
	for i, v := range values {
		if err := inner.Put(uint32(i), v); err != nil {
			t.Fatal(err)
		}
	}
	m.put(t, name, slot, inner)
}

// rule is one entry of a policy: what it does to packets of a protocol (0: any), to or from members of a set (0: any),
// with destination ports in a list (none: any).
func rule(action, protocol uint8, set uint32, ports ...uint16) bpf.Rule {
	r := bpf.Rule{Action: action, Flags: bpf.RuleV4 | bpf.RuleV6, Proto: protocol, In: [3]uint32{set}, Ndports: uint8(len(ports))}
	if protocol != 0 {
		r.Flags |= bpf.RuleProto
	}
	for i, p := range ports {
		r.Dport[i].Lo, r.Dport[i].Hi = p, p
	}
	return r
}

// policy puts rules into a slot, to be walked one by one; what none matches is denied. Rule i has the number 10*slot+i+1.
func (m *machine) policy(t testing.TB, slot uint32, rules ...bpf.Rule) {
	t.Helper()
	end := rule(bpf.RuleDeny, 0, 0)
	end.Flags |= bpf.RuleEnd
	rules = append(slices.Clone(rules), end)
	for i := range rules {
		rules[i].Id = 10*slot + uint32(i) + 1
	}
	part(t, m, bpf.MargayMapRules, slot, rules)
	m.put(t, bpf.MargayMapSlots, slot, bpf.Slot{Rules: uint32(len(rules)), Flags: bpf.SlotInterpret})
}

// events returns the verdicts told since the last call.
func (m *machine) events(t testing.TB) []bpf.Event {
	t.Helper()
	reader, err := ringbuf.NewReader(m.Maps[bpf.MargayMapEvents])
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	reader.SetDeadline(time.Now())
	var all []bpf.Event
	for {
		record, err := reader.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var e bpf.Event
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&e)), unsafe.Sizeof(e)), record.RawSample)
		all = append(all, e)
	}
}

// stats are how many first packets each rule has decided.
func (m *machine) stats(t testing.TB) map[uint32]uint64 {
	t.Helper()
	n := map[uint32]uint64{}
	for id := range uint32(200) {
		var cpus []bpf.Counter
		if err := m.Maps[bpf.MargayMapRuleStats].Lookup(id, &cpus); err != nil {
			t.Fatal(err)
		}
		for _, c := range cpus {
			n[id] += c.Packets
		}
	}
	maps.DeleteFunc(n, func(_ uint32, packets uint64) bool { return packets == 0 })
	return n
}

// tcp, udp and echo are packets between two ends.
func tcp(src, dst netip.Addr, sport, dport uint16, flags uint8) testutil.Packet {
	return testutil.Packet{Src: src, Dst: dst, L4: testutil.TCP{SrcPort: sport, DstPort: dport, Flags: flags, Seq: 1000, Ack: 2000}}
}

func udp(src, dst netip.Addr, sport, dport uint16) testutil.Packet {
	return testutil.Packet{Src: src, Dst: dst, L4: testutil.UDP{SrcPort: sport, DstPort: dport}}
}

func icmp(src, dst netip.Addr, kind uint8, id uint16) testutil.Packet {
	return testutil.Packet{Src: src, Dst: dst, L4: testutil.ICMP{Type: kind, ID: id}}
}

const (
	syn    = testutil.SYN
	synack = testutil.SYN | testutil.ACK
	ack    = testutil.ACK
	fin    = testutil.FIN | testutil.ACK
	rst    = testutil.RST
)
