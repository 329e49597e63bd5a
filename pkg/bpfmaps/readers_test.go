package bpfmaps

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/bpf"
)

func TestFlowsOfBothFamiliesAreRead(t *testing.T) {
	m, _ := openMaps(t)
	k4 := bpf.Ct4Key{A: [4]uint8{10, 0, 0, 1}, B: [4]uint8{10, 0, 0, 2}, Pa: 4000, Pb: 80, Proto: 6}
	k6 := bpf.Ct6Key{A: [16]uint8{0xfd, 15: 1}, B: [16]uint8{0xfd, 15: 2}, Pa: 53, Pb: 5000, Proto: 17}
	entry, half := bpf.CtEntry{Seen: 5, Egress: 7, Kept: 3}, bpf.CtEntry{Seen: 5, Egress: 7}
	for _, err := range []error{m.Map(bpf.MargayMapCt4).Put(&k4, &entry), m.Map(bpf.MargayMapCt6).Put(&k6, &half)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var got []Flow
	for flow, err := range m.Flows.All() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, flow)
	}
	four := Flow{netip.MustParseAddrPort("10.0.0.1:4000"), netip.MustParseAddrPort("10.0.0.2:80"), 6, true, entry}
	six := Flow{netip.MustParseAddrPort("[fd00::1]:53"), netip.MustParseAddrPort("[fd00::2]:5000"), 17, false, half}
	if !slices.Equal(got, []Flow{four, six}) {
		t.Errorf("got %+v, want %+v and %+v", got, four, six)
	}
	use, err := m.Flows.Use(t.Context())
	if err != nil || use[bpf.MargayMapCt6] != (MapUse{1, 1 << 10}) || len(use) != 2 {
		t.Errorf("%+v (%v)", use, err)
	}
	for range m.Flows.All() {
		break // a reader may stop early
	}
}

func TestReadingAHashWithMoreEntriesThanABatch(t *testing.T) {
	m, o := openMaps(t)
	m.Close()
	o.Instance, o.MaxEntries = "large", map[string]uint32{bpf.MargayMapIp4Host: 50_000, bpf.MargayMapIp4Net: 20_000}
	m = mustOpen(t, o)
	for i := range uint32(50_000) {
		m.Addresses.IP4Host.Set(bpf.IP4{Addr: [4]uint8{byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}}, bpf.AddrInfo{Class: i})
	}
	for i := range uint32(20_000) {
		m.Addresses.IP4Net.Set(bpf.Net4{Prefixlen: 31, Addr: [4]uint8{0, byte(i >> 15), byte(i >> 7), byte(i << 1)}}, bpf.AddrInfo{Class: i})
	}
	if err := errors.Join(m.Addresses.IP4Host.Sync(), m.Addresses.IP4Net.Sync()); err != nil {
		t.Fatal(err)
	}
	hosts, err := m.Addresses.IP4Host.Load()
	if err != nil || len(hosts) != 50_000 {
		t.Errorf("%d hosts (%v)", len(hosts), err)
	}
	nets, err := m.Addresses.IP4Net.Load()
	if err != nil || len(nets) != 20_000 {
		t.Errorf("%d networks (%v)", len(nets), err)
	}
	for _, table := range []interface{ Pending() int }{m.Addresses.IP4Host, m.Addresses.IP4Net} {
		if table.Pending() != 0 {
			t.Errorf("%d pending", table.Pending())
		}
	}
}

func perCPU(t *testing.T) []bpf.Counter {
	t.Helper()
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	counters := make([]bpf.Counter, cpus)
	for i := range counters {
		counters[i] = bpf.Counter{Packets: 2, Bytes: 100}
	}
	return counters
}

func TestCountersAreSummedOverCPUsAndForgotten(t *testing.T) {
	m, _ := openMaps(t)
	counters := perCPU(t)
	n := uint64(len(counters))
	sum := bpf.Counter{Packets: 2 * n, Bytes: 100 * n}
	one, other := bpf.DropKey{Ifindex: 3, Reason: 1, ToPod: 1}, bpf.DropKey{Ifindex: 4, Reason: 2}
	for _, key := range []bpf.DropKey{one, other} {
		if err := m.Map(bpf.MargayMapDrops).Put(&key, counters); err != nil {
			t.Fatal(err)
		}
	}
	drops, err := m.Drops.All()
	if err != nil || len(drops) != 2 || drops[one] != sum || drops[other] != sum {
		t.Errorf("%+v (%v)", drops, err)
	}
	if err := m.Drops.Forget(3); err != nil {
		t.Fatal(err)
	}
	if drops, err = m.Drops.All(); err != nil || len(drops) != 1 || drops[other] != sum {
		t.Errorf("after one is forgotten: %+v (%v)", drops, err)
	}
	for _, rule := range []uint32{1, 600, 1200} {
		if err := m.Map(bpf.MargayMapRuleStats).Put(rule, counters); err != nil {
			t.Fatal(err)
		}
	}
	stats, err := m.RuleStats.Below(1200)
	if err != nil || len(stats) != 2 || stats[1] != sum || stats[600] != sum {
		t.Errorf("%+v (%v)", stats, err)
	}
	if err := m.RuleStats.Zero([]uint32{600}); err != nil {
		t.Fatal(err)
	}
	if stats, err = m.RuleStats.Below(1 << 16); err != nil || len(stats) != 2 || stats[1200] != sum {
		t.Errorf("after one is zeroed: %+v (%v)", stats, err)
	}
}

// sendEvent makes a program write one record to the ring buffer.
func sendEvent(t *testing.T, m *Maps, ifindex int32) {
	t.Helper()
	size := int16(unsafe.Sizeof(bpf.Event{}))
	code := asm.Instructions{asm.Mov.Imm(asm.R0, 0)}
	for at := -size; at < 0; at += 8 {
		code = append(code, asm.StoreMem(asm.RFP, at, asm.R0, asm.DWord))
	}
	code = append(code,
		asm.StoreImm(asm.RFP, -size+int16(unsafe.Offsetof(bpf.Event{}.Ifindex)), int64(ifindex), asm.Word),
		asm.StoreImm(asm.RFP, -size+int16(unsafe.Offsetof(bpf.Event{}.Dst))+15, 9, asm.Byte),
		asm.LoadMapPtr(asm.R1, m.Map(bpf.MargayMapEvents).FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -int32(size)),
		asm.Mov.Imm(asm.R3, int32(size)), asm.Mov.Imm(asm.R4, 0),
		asm.FnRingbufOutput.Call(), asm.Return())
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: code})
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	if result, _, err := program.Test(make([]byte, 64)); err != nil || result != 0 {
		t.Fatalf("result %d (%v)", int32(result), err)
	}
}

func TestEventsAreReadInOrder(t *testing.T) {
	m, _ := openMaps(t)
	events, err := m.Events.Open()
	if err != nil {
		t.Fatal(err)
	}
	for i := range int32(3) {
		sendEvent(t, m, i)
	}
	for i := range uint32(3) {
		got, err := events.Read()
		if err != nil {
			t.Fatal(err)
		}
		want := bpf.Event{Ifindex: i, Dst: [16]uint8{15: 9}}
		if got != want {
			t.Error(cmp.Diff(want.Dst, got.Dst), got)
		}
	}
	events.SetDeadline(time.Now())
	if _, err := events.Read(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("nothing to read: %v", err)
	}
	if err := events.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := events.Read(); err == nil {
		t.Error("read after Close")
	}
}
