package bpf_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

// coarseNow reads the programs' clock from the entry of a new flow.
func (w *world) coarseNow(t *testing.T) uint32 {
	t.Helper()
	w.forget(t)
	w.fromPod(t, w.podA, udp(v4.a, v4.out, 1000, 53).Bytes()).want(t, 0)
	now := w.flow(t).entry.Seen
	w.forget(t)
	return now
}

// TestSweepsRemoveWhatHasExpired, by protocol and state, and nothing that lives.
func TestSweepsRemoveWhatHasExpired(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	midflow := uint8(bpf.MargayCtFlagsCT_MIDFLOW)
	tests := []struct {
		name    string
		proto   uint8
		state   bpf.MargayCtState
		flags   uint8
		seconds uint32
	}{
		{"SYN sent", 6, 0, 0, 20},
		{"SYN answered", 6, replied, 0, 20},
		{"established", 6, replied | open, 0, 3600},
		{"in mid-flow", 6, 0, midflow, 3600},
		{"opener's FIN", 6, replied | open | finOpen, 0, 3600},
		{"responder's FIN", 6, replied | open | finReply, 0, 3600},
		{"FIN of one that was never open", 6, replied | finReply, 0, 20},
		{"both FINs", 6, replied | open | finOpen | finReply, 0, 30},
		{"RST", 6, replied | open | reset, 0, 30},
		{"RST in mid-flow", 6, reset, midflow, 30},
		{"revoked", 6, replied | open | revoked, 0, 30},
		{"UDP", 17, 0, 0, 60},
		{"UDP answered", 17, replied, 0, 15},
		{"UDP carried on", 17, replied | open, 0, 60},
		{"ICMP", 1, 0, 0, 5},
		{"ICMPv6", 58, 0, 0, 5},
		{"SCTP", 132, replied | open, 0, 600},
		{"SCTP that has ended", 132, replied | open | reset, 0, 30},
		{"GRE", 47, 0, 0, 600},
	}
	for _, tc := range tests {
		for name := range sweeps {
			is6 := name == bpf.MargayMapCt6
			if tc.proto == 1 && is6 || tc.proto == 58 && !is6 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", tc.name, name), func(t *testing.T) {
				w.withinASecond(t, func() string { return w.sweepOne(t, name, tc.proto, uint8(tc.state), tc.flags, tc.seconds) })
			})
		}
	}
}

// ticks of the programs' clock.
func ticks(seconds uint32) uint32 { return seconds * 250 / 16 }

// withinASecond repeats what says how it failed until it took less than half a second of the programs' clock: ages mean nothing on a
// machine that stands still meanwhile.
func (w *world) withinASecond(t *testing.T, attempt func() (wrong string)) {
	t.Helper()
	for range 100 {
		began := w.coarseNow(t)
		wrong := attempt()
		if w.coarseNow(t)-began > ticks(1)/2 {
			continue
		}
		if wrong != "" {
			t.Error(wrong)
		}
		return
	}
	t.Error("no attempt took less than half a second")
}

// sweepOne sweeps flows of five ages of one kind.
func (w *world) sweepOne(t *testing.T, table string, proto, state, flags uint8, seconds uint32) (wrong string) {
	t.Helper()
	now := w.coarseNow(t)
	// Of the two in the middle one is a second short of its time, the other a second over it.
	for port, seen := range []uint32{now + 100, now, now - ticks(seconds-1), now - ticks(seconds+1), now - ticks(seconds) - 1<<20} {
		entry := bpf.CtEntry{Seen: seen, State: state, Flags: flags, Egress: 1}
		if table == bpf.MargayMapCt6 {
			w.put(t, table, bpf.Ct6Key{A: v6.a.As16(), B: v6.b.As16(), Pa: uint16(port), Proto: proto}, entry)
		} else {
			w.put(t, table, bpf.Ct4Key{A: v4.a.As4(), B: v4.b.As4(), Pa: uint16(port), Proto: proto}, entry)
		}
	}
	wrong = w.swept(t, table, 5, 2)
	left := map[uint16]bool{}
	for _, f := range w.flows(t) {
		left[f.a.Port()] = true
	}
	if len(left) != 3 || !left[0] || !left[1] || !left[2] {
		wrong += fmt.Sprintf("left: %v, want those seen last: 0, 1, 2; ", left)
	}
	return wrong + w.swept(t, table, 3, 0)
}

// sweeps are the programs that walk over flow tables, by table.
var sweeps = map[string]string{
	bpf.MargayMapCt4: bpf.MargayProgSweep4, bpf.MargayMapCt6: bpf.MargayProgSweep6,
}

// walk sweeps a table and returns how many runs of the program it took.
func (m *machine) walk(t testing.TB, table string) int {
	t.Helper()
	return m.walkBy(t, sweeps[table], table)
}

// walkBy has a program walk over a table and returns how many runs it took.
func (m *machine) walkBy(t testing.TB, program, table string) (runs int) {
	t.Helper()
	m.walkIn(t, program, table, func(run func()) {
		runs++
		run()
	})
	return runs
}

// walkIn has a program walk over a table by calls of each, which gets one run of the program.
func (m *machine) walkIn(t testing.TB, program, table string, each func(run func())) {
	t.Helper()
	if table == bpf.MargayMapCt6 {
		walkKeys[bpf.Ct6Key](t, m.Programs[program], m.Maps[table], m.Maps[bpf.MargayMapWalk6], each)
		return
	}
	walkKeys[bpf.Ct4Key](t, m.Programs[program], m.Maps[table], m.Maps[bpf.MargayMapWalk4], each)
}

// walkKeys has a program look at all flows of a table, whose keys it reads from a map.
func walkKeys[K any](t testing.TB, program *ebpf.Program, table, keysOf *ebpf.Map, each func(run func())) {
	t.Helper()
	places, keys, entries := make([]uint32, bpf.WalkedKeys), make([]K, bpf.WalkedKeys), make([]bpf.CtEntry, bpf.WalkedKeys)
	for i := range places {
		places[i] = uint32(i)
	}
	var cursor ebpf.MapBatchCursor
	for runs := 1; ; runs++ {
		n, err := table.BatchLookup(&cursor, keys, entries, nil)
		part := bpf.WalkPart{Keys: uint32(n)}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			part.Last = 1
		} else if err != nil {
			t.Fatalf("run %d: read keys of %v: %v", runs, table, err)
		}
		if n > 0 {
			if _, err := keysOf.BatchUpdate(places[:n], keys[:n], nil); err != nil {
				t.Fatal(err)
			}
		}
		each(func() {
			if _, err := program.Run(&ebpf.RunOptions{Context: part}); err != nil {
				t.Fatalf("run %d of %v: %v", runs, program, err)
			}
		})
		if part.Last != 0 {
			return
		}
	}
}

const mostKeys = int(bpf.MargayFlowLimitsWALK_KEYS)

// sweepAll sweeps all tables.
func (m *machine) sweepAll(t testing.TB) {
	t.Helper()
	for table := range sweeps {
		m.walk(t, table)
	}
}

// sweep sweeps a table of half-open flows and checks what the programs say they found.
func (w *world) sweep(t *testing.T, table string, entries, expired uint64) {
	t.Helper()
	if wrong := w.swept(t, table, entries, expired); wrong != "" {
		t.Error(wrong)
	}
}

// swept is sweep, and returns how what was found differs.
func (w *world) swept(t *testing.T, table string, entries, expired uint64) (wrong string) {
	t.Helper()
	var before, after [2]bpf.MargaySweep
	lookup := func(to *[2]bpf.MargaySweep) {
		t.Helper()
		for kind := range to {
			if err := w.Maps[bpf.MargayMapSwept].Lookup(uint32(kind), &to[kind]); err != nil {
				t.Fatal(err)
			}
		}
	}
	lookup(&before)
	w.walk(t, table)
	lookup(&after)
	if after[1].Entries-before[1].Entries != entries || after[1].Expired-before[1].Expired != expired ||
		after[0].Entries != before[0].Entries || after[0].Runs-before[0].Runs != 1 {
		return fmt.Sprintf("from %+v to %+v; want %d entries, %d expired, one run; ", before, after, entries, expired)
	}
	return ""
}

// TestASweepPauses: a walk looks at each flow once, and no run of the program at more than 1,024, whatever the agent asks for.
func TestASweepPauses(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	now := w.coarseNow(t)
	for port := range uint16(2500) {
		w.put(t, bpf.MargayMapCt4, bpf.Ct4Key{A: v4.a.As4(), B: v4.b.As4(), Pa: port, Proto: 17}, bpf.CtEntry{Seen: now})
	}
	w.sweep(t, bpf.MargayMapCt4, 2500, 0)
	var before, after bpf.MargaySweep
	const halfOpen = uint32(1)
	if err := w.Maps[bpf.MargayMapSwept].Lookup(halfOpen, &before); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Programs[bpf.MargayProgSweep4].Run(&ebpf.RunOptions{Context: bpf.WalkPart{Keys: 1 << 31}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Maps[bpf.MargayMapSwept].Lookup(halfOpen, &after); err != nil {
		t.Fatal(err)
	}
	if n := after.Entries - before.Entries; n == 0 || n > uint64(mostKeys) {
		t.Errorf("one run looked at %d flows, want 1 to %d", n, mostKeys)
	}
	ageAll[bpf.Ct4Key](t, w.Maps[bpf.MargayMapCt4])
	w.walk(t, bpf.MargayMapCt4)
	w.noFlow(t)
}

// TestASweepPassesOverFlowsThatHaveGone since their keys were read, and over keys that were never read.
func TestASweepPassesOverFlowsThatHaveGone(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	now := w.coarseNow(t)
	w.put(t, bpf.MargayMapCt4, bpf.Ct4Key{A: v4.a.As4(), B: v4.b.As4(), Pa: 1, Proto: 17}, bpf.CtEntry{Seen: now})
	gone := bpf.Ct4Key{A: v4.a.As4(), B: v4.b.As4(), Pa: 2, Proto: 17}
	if err := w.Maps[bpf.MargayMapWalk4].Put(uint32(0), gone); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Programs[bpf.MargayProgSweep4].Run(&ebpf.RunOptions{Context: bpf.WalkPart{Keys: 2}}); err != nil {
		t.Fatal(err)
	}
	w.sweep(t, bpf.MargayMapCt4, 1, 0)
}

// TestTheClockWrapsAround: an entry seen just before the coarse clock turns over is young just after it.
func TestTheClockWrapsAround(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	now := w.coarseNow(t)
	for port, seen := range []uint32{now, now - 10} {
		w.put(t, bpf.MargayMapCt4, bpf.Ct4Key{A: v4.a.As4(), B: v4.b.As4(), Pa: uint16(port), Proto: 17}, bpf.CtEntry{Seen: seen})
	}
	w.sweep(t, bpf.MargayMapCt4, 2, 0)
}

// TestAFloodEvictsOnlyItsLike: established flows outlive more new flows than both maps hold.
func TestAFloodEvictsOnlyItsLike(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	for _, s := range []step{{out: true, flags: syn}, {flags: synack}, {out: true, flags: ack}} {
		if s.out {
			w.fromPod(t, w.podA, tcp(v4.a, v4.out, 1000, 80, s.flags).Bytes()).want(t, 0)
		} else {
			w.toPod(t, w.podA, outside, tcp(v4.out, v4.a, 80, 1000, s.flags).Bytes()).want(t, 0)
		}
	}
	program := w.Programs[bpf.MargayProgFromPod]
	w.ns.Do(t, func() {
		for i := range 10000 {
			frame := tcp(v4.a, v4.out, uint16(10000+i), 80, syn).Bytes()
			ret, err := program.Run(&ebpf.RunOptions{Data: frame, Context: skb{Ifindex: w.podA}})
			if err != nil || int32(ret) != next {
				t.Fatalf("flow %d: %d, %v", i, int32(ret), err)
			}
		}
	})
	known := 0
	for _, f := range w.flows(t) {
		if f.open && f.a.Port() == 1000 {
			known++
		}
	}
	if known != 1 {
		t.Error("the established flow is gone")
	}
}
