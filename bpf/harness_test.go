package bpf_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// Mark bits the machines are loaded with, and one of somebody else's.
const (
	markSeen    = 1 << 16
	markJudge   = 1 << 17
	markOwn     = 1 << 18
	markForeign = 1<<4 | 1<<30
)

// What a program returns.
const (
	next     = -1
	drop     = 2
	redirect = 7
)

// machine is the loaded programs with maps of their own, in a network namespace with the host sides of two pods' veths.
type machine struct {
	*ebpf.Collection
	spec *ebpf.CollectionSpec
	ns   *testutil.Namespace
	podA uint32 // ifindex of the host side of pod A's veth
	podB uint32
}

// What most tests of packets do without.
const (
	noEvents = 1<<32 - 1 // EventRate of programs that report no events
	shortcut = 1<<32 - 1 // NoShortcut of programs that have the shortcut
	banned   = 1<<32 - 1 // AllowEncap of programs that drop tunnels
)

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// newMachine loads the programs. Marks, tick rate, event rate and timeouts are filled in where cfg has none.
func newMachine(t testing.TB, cfg bpf.Config) *machine {
	t.Helper()
	return newMachineOf(t, cfg, 4096)
}

// newMachineOf is newMachine with maps of at most so many entries.
func newMachineOf(t testing.TB, cfg bpf.Config, entries uint32) *machine {
	t.Helper()
	testutil.Privileged(t)
	cfg.MarkSeen, cfg.MarkJudge, cfg.MarkOwn = markSeen, markJudge, markOwn
	cfg.Hz, cfg.InterfacePrefixLen = 250, 4
	copy(cfg.InterfacePrefix[:], "cali")
	cfg.NoShortcut, cfg.AllowEncap = bit(cfg.NoShortcut != shortcut), bit(cfg.AllowEncap != banned)
	switch cfg.EventRate {
	case 0:
		cfg.EventRate = 1 << 30
	case noEvents:
		cfg.EventRate = 0
	}
	cfg.TimeoutTcpSyn, cfg.TimeoutTcpEstablished, cfg.TimeoutTcpFin = 20, 3600, 30
	if cfg.OpenShare == 0 {
		cfg.OpenShare, cfg.OpenCommon = 64, 1024
	}
	if cfg.HalfShare == 0 {
		cfg.HalfShare, cfg.HalfCommon = 256, 1024
	}
	cfg.TimeoutUdp, cfg.TimeoutIcmp, cfg.TimeoutOther = 60, 5, 600
	spec, err := bpf.LoadMargay()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range spec.Maps {
		if m.Type != ebpf.ArrayOfMaps && m.MaxEntries > entries && m.Type != ebpf.Array && m.Type != ebpf.PerCPUArray && m.Type != ebpf.RingBuf {
			m.MaxEntries = entries
		}
	}
	if err := spec.Variables[bpf.MargayVarCfg].Set(cfg); err != nil {
		t.Fatal(err)
	}
	m := &machine{spec: spec, ns: testutil.NetNS(t)}
	if m.Collection, err = ebpf.NewCollection(spec); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(m.Collection.Close)
	m.podA, m.podB = m.veth(t, "caliA"), m.veth(t, "caliB")
	return m
}

// veth makes a pair of interfaces that are up and returns the ifindex of the one called name; the other one is "pod"+name.
func (m *machine) veth(t testing.TB, name string) uint32 { return m.vethAt(t, name, 0) }

// vethAt makes one whose host side has the given ifindex; 0: the kernel chooses.
func (m *machine) vethAt(t testing.TB, name string, ifindex uint32) uint32 {
	t.Helper()
	h, err := netlink.NewHandleAt(netns.NsHandle(m.ns.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Index = name, int(ifindex)
	if err := h.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "pod" + name}); err != nil {
		t.Fatal(err)
	}
	index := 0
	for _, n := range []string{"pod" + name, name} {
		l, err := h.LinkByName(n)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.LinkSetUp(l); err != nil {
			t.Fatal(err)
		}
		index = l.Attrs().Index
	}
	return uint32(index)
}

// index is the ifindex of an interface in the machine's namespace.
func (m *machine) index(t testing.TB, name string) int {
	t.Helper()
	h, err := netlink.NewHandleAt(netns.NsHandle(m.ns.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	l, err := h.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return l.Attrs().Index
}

// skb is struct __sk_buff, as far as a test-run takes and gives it.
type skb struct {
	Len, PktType, Mark, QueueMapping, Protocol, VlanPresent, VlanTci, VlanProto, Priority uint32
	IngressIfindex, Ifindex, TcIndex                                                      uint32
	Cb                                                                                    [5]uint32
	Middle                                                                                [92]byte
	WireLen, GsoSegs                                                                      uint32
	Sk                                                                                    uint64
	GsoSize                                                                               uint32
	Rest                                                                                  [12]byte
}

// result is what became of one packet.
type result struct {
	action int
	mark   uint32
	frame  []byte
	drops  map[bpf.DropKey]bpf.Counter // counted by this packet
}

// reason is why it was dropped; 0: no drop was counted.
func (r result) reason() bpf.DropReason {
	for k := range r.drops {
		return bpf.DropReason(k.Reason)
	}
	return 0
}

// run sends a frame through a hook. at.Ifindex is the veth; at.Mark, at.IngressIfindex and at.GsoSize are the packet's.
func (m *machine) run(t testing.TB, program string, at skb, frame []byte) result {
	t.Helper()
	r, err := m.try(t, program, at, frame)
	if err != nil {
		t.Fatalf("run %s on %d bytes %x: %v", program, len(frame), frame, err)
	}
	return r
}

func (m *machine) try(t testing.TB, program string, at skb, frame []byte) (result, error) {
	t.Helper()
	before := m.drops(t)
	out := skb{}
	opts := &ebpf.RunOptions{Data: frame, DataOut: make([]byte, len(frame)+256), Context: at, ContextOut: &out}
	var ret uint32
	var err error
	m.ns.Do(t, func() { ret, err = m.Programs[program].Run(opts) })
	if err != nil {
		return result{}, err
	}
	r := result{action: int(int32(ret)), mark: out.Mark, frame: opts.DataOut, drops: map[bpf.DropKey]bpf.Counter{}}
	for k, c := range m.drops(t) {
		if c != before[k] {
			r.drops[k] = bpf.Counter{Packets: c.Packets - before[k].Packets, Bytes: c.Bytes - before[k].Bytes}
		}
	}
	return r, nil
}

// fromPod sends a frame from the pod behind the veth.
func (m *machine) fromPod(t testing.TB, veth uint32, frame []byte) result {
	t.Helper()
	return m.run(t, bpf.MargayProgFromPod, skb{Ifindex: veth}, frame)
}

// outside is an interface packets are forwarded from that is no pod's.
const outside = 9999

// toPod sends a frame to the pod behind the veth that came in by from; 0: made on the node.
func (m *machine) toPod(t testing.TB, veth, from uint32, frame []byte) result {
	t.Helper()
	return m.run(t, bpf.MargayProgToPod, skb{Ifindex: veth, IngressIfindex: from}, frame)
}

func (m *machine) drops(t testing.TB) map[bpf.DropKey]bpf.Counter {
	t.Helper()
	all := map[bpf.DropKey]bpf.Counter{}
	var key bpf.DropKey
	var cpus []bpf.Counter
	it := m.Maps[bpf.MargayMapDrops].Iterate()
	for it.Next(&key, &cpus) {
		var c bpf.Counter
		for _, one := range cpus {
			c.Packets += one.Packets
			c.Bytes += one.Bytes
		}
		all[key] = c
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// want checks action and reason at once; reason 0 means that it got through, which sets the seen bit on the way out.
func (r result) want(t testing.TB, reason bpf.DropReason) {
	t.Helper()
	switch {
	case reason == 0 && (r.action != next || len(r.drops) != 0):
		t.Errorf("action %d, reason %s; want it to pass", r.action, bpf.Label(r.reason()))
	case reason != 0 && (r.action != drop || r.reason() != reason || len(r.drops) != 1):
		t.Errorf("action %d, drops %v, reason %s; want it dropped as %s", r.action, r.drops, bpf.Label(r.reason()), bpf.Label(reason))
	}
}

// flow is one tracked connection.
type flow struct {
	open  bool // it has a place that nothing evicts it from
	a, b  netip.AddrPort
	proto uint8
	entry bpf.CtEntry
}

// flows are all tracked connections.
func (m *machine) flows(t testing.TB) []flow {
	t.Helper()
	var all []flow
	var e bpf.CtEntry
	var k4 bpf.Ct4Key
	it := m.Maps[bpf.MargayMapCt4].Iterate()
	for it.Next(&k4, &e) {
		all = append(all, flow{e.Kept != 0, netip.AddrPortFrom(netip.AddrFrom4(k4.A), k4.Pa),
			netip.AddrPortFrom(netip.AddrFrom4(k4.B), k4.Pb), k4.Proto, e})
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	var k6 bpf.Ct6Key
	it = m.Maps[bpf.MargayMapCt6].Iterate()
	for it.Next(&k6, &e) {
		all = append(all, flow{e.Kept != 0, netip.AddrPortFrom(netip.AddrFrom16(k6.A), k6.Pa),
			netip.AddrPortFrom(netip.AddrFrom16(k6.B), k6.Pb), k6.Proto, e})
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// flow is the only tracked connection.
func (m *machine) flow(t testing.TB) flow {
	t.Helper()
	all := m.flows(t)
	if len(all) != 1 {
		t.Fatalf("%d flows are tracked, want 1: %+v", len(all), all)
	}
	return all[0]
}

// noFlow checks that nothing is tracked.
func (m *machine) noFlow(t testing.TB) {
	t.Helper()
	if all := m.flows(t); len(all) != 0 {
		t.Errorf("tracked: %+v; want nothing", all)
	}
}

// opener is the end that opened the flow.
func (f flow) opener() netip.AddrPort {
	if f.entry.Flags&uint8(bpf.MargayCtFlagsCT_OPENER_B) != 0 {
		return f.b
	}
	return f.a
}

func (f flow) has(state bpf.MargayCtState) bool    { return f.entry.State&uint8(state) == uint8(state) }
func (f flow) flagged(flag bpf.MargayCtFlags) bool { return f.entry.Flags&uint8(flag) != 0 }

// forget empties the maps that the programs write.
func (m *machine) forget(t testing.TB) {
	t.Helper()
	for _, name := range []string{bpf.MargayMapCt4, bpf.MargayMapCt6, bpf.MargayMapDrops} {
		m.empty(t, name)
	}
	for number := range bpf.Shares + 1 {
		m.put(t, bpf.MargayMapShares, number, bpf.Share{})
	}
	clearArray[bpf.MargayFragSet](t, m.Maps[bpf.MargayMapFrags])
	clearArray[bpf.MargayFragAccount](t, m.Maps[bpf.MargayMapFragMemory])
}

// clearArray makes all values of an array zero.
func clearArray[V any](t testing.TB, a *ebpf.Map) {
	t.Helper()
	keys := make([]uint32, a.MaxEntries())
	for i := range keys {
		keys[i] = uint32(i)
	}
	if _, err := a.BatchUpdate(keys, make([]V, len(keys)), nil); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) empty(t testing.TB, name string) {
	t.Helper()
	for {
		key, err := m.Maps[name].NextKeyBytes(nil)
		if err != nil {
			t.Fatal(err)
		}
		if key == nil {
			return
		}
		if err := m.Maps[name].Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			t.Fatal(err)
		}
	}
}

// checksum16 adds up 16-bit words as the Internet checksum does; 0xffff is what a correct packet sums up to.
func checksum16(b []byte) uint16 {
	sum := uint32(0)
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}
