package bpf_test

import (
	"testing"

	"github.com/margay-project/margay/bpf"
)

// restamps are the programs that replace stamps, by table.
var restamps = map[string]string{
	bpf.MargayMapCt4: bpf.MargayProgRestamp4, bpf.MargayMapCt6: bpf.MargayProgRestamp6,
}

// TestStampsThatAreNotInForceAreReplaced, those of the present endpoint by its id and others by one that is no generation.
func TestStampsThatAreNotInForceAreReplaced(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.a.Id, w.b.Id = 40, 70
	w.publish(t, w.a, word(slotAllow, 50), word(slotAllow, 51))
	w.publish(t, w.b, word(slotAllow, 70), word(slotAllow, 71))
	const gone = 12345 // no endpoint's interface
	another := bpf.StampOfAnother
	tests := []struct {
		name      string
		ifindex   uint32
		stamp     uint32
		asIngress uint32
		asEgress  uint32
	}{
		{"no stamp", w.podA, 0, 0, 0},
		{"ingress in force", w.podA, 50, 50, 40},
		{"egress in force", w.podA, 51, 40, 51},
		{"earlier, of this endpoint", w.podA, 45, 40, 40},
		{"its id", w.podA, 40, 40, 40},
		{"later than any", w.podA, 1<<31 - 1, 40, 40},
		{"the clock of a revoked flow", w.podA, 1<<31 | 60, 1<<31 | 60, 1<<31 | 60},
		{"before this endpoint", w.podA, 39, another, another},
		{"replaced before", w.podA, another, another, another},
		{"in force for another endpoint", w.podA, 71, 40, 40},
		{"id and ingress are the same number", w.podB, 70, 70, 70},
		{"not in force where its id is", w.podB, 75, another, 70},
		{"no endpoint any more", gone, 51, another, another},
		{"no interface", 0, 51, another, another},
	}
	for table, program := range restamps {
		w.forget(t)
		for i, tc := range tests {
			for _, entry := range []bpf.CtEntry{
				{Egress: tc.stamp, OpenerIf: tc.ifindex, L4: 1, Ingress: 50, ResponderIf: w.podA},
				{Ingress: tc.stamp, ResponderIf: tc.ifindex, L4: 2, Egress: 51, OpenerIf: w.podA},
			} {
				entry.Seen, entry.State, entry.Kept, entry.Place = 7, 3, 9, 11
				if table == bpf.MargayMapCt6 {
					w.put(t, table, bpf.Ct6Key{Pa: uint16(i), Pb: entry.L4, Proto: 6}, entry)
				} else {
					w.put(t, table, bpf.Ct4Key{Pa: uint16(i), Pb: entry.L4, Proto: 6}, entry)
				}
			}
		}
		w.walkBy(t, program, table)
		for _, f := range w.flows(t) {
			tc := tests[f.a.Port()]
			want := f.entry
			want.Egress, want.Ingress = tc.asEgress, 50
			if f.entry.L4 == 2 {
				want.Egress, want.Ingress = 51, tc.asIngress
			}
			if f.entry != want || want.Seen != 7 || want.Kept != 9 {
				t.Errorf("%s, %s: entry %+v, want %+v", table, tc.name, f.entry, want)
			}
		}
		if got := len(w.flows(t)); got != 2*len(tests) {
			t.Errorf("%d flows are left of %d", got, 2*len(tests))
		}
	}
}

// TestAFlowWhoseStampWasReplacedIsJudgedAgain, once. One that policy denies is revoked, and with keep the flows of the present endpoint go
// on, those of a former one do not.
func TestAFlowWhoseStampWasReplacedIsJudgedAgain(t *testing.T) {
	for _, keep := range []uint32{0, 1} {
		w := newWorld(t, bpf.Config{KeepExisting: keep})
		w.eachFamily(t, "", func(t *testing.T, f family) {
			out := udp(f.a, f.out, 1000, 53).Bytes()
			begin := func(policy, id uint32) {
				w.a.Id = 90
				w.publish(t, w.a, word(slotAllow, 91), word(slotAllow, 92))
				w.fromPod(t, w.podA, out).want(t, 0)
				if id > 90 { // another endpoint on this interface
					w.a.Id = id
				}
				w.publish(t, w.a, word(slotAllow, 191), word(slotAllow, 192))
				for table, program := range restamps {
					w.walkBy(t, program, table)
				}
				if w.a.Id = 2; id > 90 {
					w.a.Id = 3
				}
				w.publish(t, w.a, word(policy, 5), word(policy, 6))
				for table, program := range restamps {
					w.walkBy(t, program, table)
				}
			}
			denied := bpf.MargayDropReasonDROP_REVOKED
			if keep == 1 {
				denied = 0
			}
			begin(slotAllow, 90)
			w.fromPod(t, w.podA, out).want(t, 0)
			if fl := w.flow(t); fl.entry.Egress != 6 {
				t.Errorf("stamp %d, want 6", fl.entry.Egress)
			}
			w.forget(t)
			begin(slotDeny, 90)
			w.fromPod(t, w.podA, out).want(t, denied)
			w.forget(t)
			begin(slotDeny, 150)
			w.fromPod(t, w.podA, out).want(t, bpf.MargayDropReasonDROP_POLICY)
			w.a.Id = 1
		})
	}
}
