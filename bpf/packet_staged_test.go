package bpf_test

import (
	"fmt"
	"testing"

	"github.com/margay-project/margay/bpf"
)

// stage gives an endpoint staged policies besides what is in force.
func (w *world) stage(t testing.TB, ep *bpf.Endpoint, flags uint32, ingress, egress uint64) {
	t.Helper()
	w.put(t, bpf.MargayMapStaged, ep.Ifindex, bpf.Staged{Ingress: ingress, Egress: egress})
	ep.Flags |= flags
	w.publish(t, ep, ep.Ingress, ep.Egress)
}

// stagedWorld has two staged policies, in slot 12 one that allows UDP to port 53 only, and in slot 13 one that allows nothing.
func stagedWorld(t *testing.T) *world {
	w := newWorld(t, bpf.Config{})
	w.policy(t, 12, rule(bpf.RuleAllow, 17, 0, 53))
	w.policy(t, 13)
	return w
}

// TestStagedPoliciesAreCountedWhereTheyDiffer: once for each new verdict, by what decides among them, and in its event.
func TestStagedPoliciesAreCountedWhereTheyDiffer(t *testing.T) {
	w := stagedWorld(t)
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.stage(t, w.a, bpf.EPStagedEgress, 0, word(12, 1))
		before := w.stats(t)
		w.events(t)
		for port := uint16(52); port < 55; port++ {
			for range 3 { // one flow each: two packets are not judged
				w.fromPod(t, w.podA, udp(f.a, f.out, 1000, port).Bytes()).want(t, 0)
			}
		}
		after := w.stats(t)
		if after[122]-before[122] != 2 || after[121] != before[121] || after[11]-before[11] != 3 {
			t.Errorf("end of the staged policy %d, its rule %d, the enforced rule %d; want 2, 0 and 3",
				after[122]-before[122], after[121]-before[121], after[11]-before[11])
		}
		var got []string
		for _, e := range w.events(t) {
			staged := e.Flags&uint8(bpf.MargayEventFlagsEVENT_STAGED) != 0
			got = append(got, fmt.Sprint(e.Dport, e.Reason, e.Slot, e.RuleId, staged, e.StagedId))
		}
		if want := fmt.Sprint([]string{"52 0 1 11 true 122", "53 0 1 11 false 0", "54 0 1 11 true 122"}); fmt.Sprint(got) != want {
			t.Errorf("events %v, want %v", got, want)
		}
	})
}

// TestStagedPoliciesThatWouldAllow: each packet that is denied is judged, and counted.
func TestStagedPoliciesThatWouldAllow(t *testing.T) {
	w := stagedWorld(t)
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.publish(t, w.a, word(slotDeny, 1), word(slotDeny, 1))
		w.stage(t, w.a, bpf.EPStagedIngress, word(12, 1), word(12, 1))
		before := w.stats(t)
		for range 2 {
			w.toPod(t, w.podA, outside, udp(f.out, f.a, 1000, 53).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
			w.toPod(t, w.podA, outside, udp(f.out, f.a, 1000, 54).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
			w.fromPod(t, w.podA, udp(f.a, f.out, 1000, 53).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		}
		if after := w.stats(t); after[121]-before[121] != 2 || after[122] != before[122] {
			t.Errorf("rule of the staged policy %d, its end %d; want 2 and 0: egress has no staged policy by the flags", after[121]-before[121], after[122]-before[122])
		}
	})
}

// TestStagedPoliciesDecideNothing: whatever is in the map, verdicts and generations are those of the policy in force, and what
// has no answer is not counted.
func TestStagedPoliciesDecideNothing(t *testing.T) {
	w := stagedWorld(t)
	w.eachFamily(t, "", func(t *testing.T, f family) {
		both := bpf.EPStagedIngress | bpf.EPStagedEgress
		for i, staged := range []uint64{word(13, 1), word(4000, 1), 0} {
			w.stage(t, w.a, both, staged, staged)
			before := w.stats(t)
			port := uint16(100 + i)
			w.fromPod(t, w.podA, udp(f.a, f.out, 1000, port).Bytes()).want(t, 0)
			w.toPod(t, w.podA, outside, udp(f.out, f.a, port, 1000).Bytes()).want(t, 0) // the answer
			w.toPod(t, w.podA, outside, udp(f.out, f.a, 2000, port).Bytes()).want(t, 0)
			want := uint64(0)
			if i == 0 {
				want = 2
			}
			if after := w.stats(t); after[131]-before[131] != want {
				t.Errorf("staged word %x: counted %d, want %d", staged, after[131]-before[131], want)
			}
		}
		if err := w.Maps[bpf.MargayMapStaged].Delete(w.a.Ifindex); err != nil {
			t.Fatal(err)
		}
		w.fromPod(t, w.podA, udp(f.a, f.out, 1000, 200).Bytes()).want(t, 0)
	})
}
