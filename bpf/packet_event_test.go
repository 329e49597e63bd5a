package bpf_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/bpf"
)

func bytes16(a netip.Addr) (b [16]byte) {
	copy(b[:], a.AsSlice())
	return b
}

// TestEventsTellTheVerdict: one for each new verdict, with what was asked and what decided.
func TestEventsTellTheVerdict(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	log, pass := rule(bpf.RuleLog, 0, 0), rule(bpf.RulePass, 0, 0)
	pass.Jump = 4
	w.policy(t, 10, log, log, pass, rule(bpf.RuleDeny, 0, 0), log, rule(bpf.RuleAllow, 17, 0, 53))
	w.eachFamily(t, "", func(t *testing.T, f family) {
		v6 := uint8(0)
		if f.a.Is6() {
			v6 = uint8(bpf.MargayEventFlagsEVENT_IPV6)
		}
		w.publish(t, w.a, word(10, 5), word(10, 6))
		w.events(t)
		w.fromPod(t, w.podA, udp(f.a, f.out, 1000, 53).Bytes()).want(t, 0)
		w.fromPod(t, w.podA, udp(f.a, f.out, 1000, 53).Bytes()).want(t, 0)
		w.toPod(t, w.podA, outside, udp(f.out, f.a, 1000, 54).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		want := []bpf.Event{
			{Ifindex: w.podA, Slot: 10, Generation: 6, RuleId: 106, Rule: 5, Flags: v6, Proto: 17, Sport: 1000, Dport: 53,
				Src: bytes16(f.a), Dst: bytes16(f.out), Nlogs: 3, Npasses: 1, Log: [4]uint16{0, 1, 4}, Pass: [6]uint16{2}},
			{Ifindex: w.podA, Slot: 10, Generation: 5, RuleId: 107, Rule: 6, Reason: uint16(bpf.MargayDropReasonDROP_POLICY),
				Flags: v6 | uint8(bpf.MargayEventFlagsEVENT_INGRESS), Proto: 17, Sport: 1000, Dport: 54,
				Src: bytes16(f.out), Dst: bytes16(f.a), Nlogs: 3, Npasses: 1, Log: [4]uint16{0, 1, 4}, Pass: [6]uint16{2}},
		}
		got := w.events(t)
		for i := range got {
			if got[i].TimeNs == 0 {
				t.Error("an event without its time")
			}
			got[i].TimeNs = 0
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

// TestEventsOfMessagesTellTypeAndCode.
func TestEventsOfMessagesTellTypeAndCode(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.events(t)
		w.fromPod(t, w.podA, icmp(f.a, f.out, f.echo, 7).Bytes()).want(t, 0)
		if told := w.events(t); len(told) != 1 || told[0].Dport != uint16(f.echo)<<8 || told[0].Proto != f.icmp {
			t.Errorf("events %+v", told)
		}
	})
}

// TestAPodDoesNotHideTheEventsOfOthers: a pod that is denied all the time leaves half of each second's events to them.
func TestAPodDoesNotHideTheEventsOfOthers(t *testing.T) {
	const rate = 10
	w := newWorld(t, bpf.Config{EventRate: rate})
	w.a.Share = 1
	w.publish(t, w.a, word(slotDeny, 1), word(slotDeny, 1))
	w.events(t)
	reported := map[uint32]int{}
	// All may happen within a second: then each of these pods is one more that the first one leaves room for.
	for share := range uint32(rate/2 - 1) {
		w.b.Share = 2 + share
		w.publish(t, w.b, word(slotDeny, 1), word(slotDeny, 1))
		for range 50 * rate {
			w.fromPod(t, w.podA, udp(v4.a, v4.out, 1000, 53).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		}
		w.fromPod(t, w.podB, udp(v4.b, v4.out, 1000, 53).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		for _, e := range w.events(t) {
			reported[e.Ifindex]++
		}
		if n := reported[w.podB]; n != int(share+1) {
			t.Fatalf("%d events of %d other pods", n, share+1)
		}
	}
	if reported[w.podA] == 0 {
		t.Error("no event of the pod that was denied all the time")
	}
}

// TestEventsAreLimited: what is left out is counted in the next one. A pod has half of what is left by the others.
func TestEventsAreLimited(t *testing.T) {
	const rate, alone, packets = 5, 3, 2000
	w := newWorld(t, bpf.Config{EventRate: rate})
	w.publish(t, w.a, word(slotDeny, 1), word(slotDeny, 1))
	frame := udp(v4.a, v4.out, 1000, 53).Bytes()
	for range packets {
		w.fromPod(t, w.podA, frame)
	}
	told := w.events(t)
	// One CPU may do all; more than a second may pass, but not many.
	if len(told) < alone || len(told) >= packets/4 {
		t.Errorf("%d events of %d verdicts at %d a second", len(told), packets, rate)
	}
	// On until some events have come in a second that follows one with too many.
	verdicts, suppressed, after := packets, 0, 0
	for ; ; verdicts++ {
		for _, e := range told {
			if suppressed += int(e.Suppressed); suppressed > 0 {
				after++
			}
		}
		if after >= alone-1 || verdicts > 50*packets {
			break
		}
		w.fromPod(t, w.podA, frame)
		told = append(told[:0], w.events(t)...)
	}
	if suppressed == 0 || suppressed >= verdicts {
		t.Errorf("events tell that %d of %d were left out", suppressed, verdicts)
	}
}

// TestEventsCanBeOff: then nothing is told; counts go on.
func TestEventsCanBeOff(t *testing.T) {
	w := newWorld(t, bpf.Config{EventRate: noEvents})
	before := w.stats(t)
	w.fromPod(t, w.podA, udp(v4.a, v4.out, 1000, 53).Bytes()).want(t, 0)
	if told := w.events(t); len(told) != 0 {
		t.Errorf("told %+v", told)
	}
	if after := w.stats(t); after[11] != before[11]+1 {
		t.Errorf("counted %d, want 1", after[11]-before[11])
	}
}

// TestRulesCountFirstPackets: of each flow once for each side, of what is denied every one that asks.
func TestRulesCountFirstPackets(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.policy(t, 10, rule(bpf.RuleAllow, 6, 0, 80))
	w.policy(t, 11, rule(bpf.RuleAllow, 6, 0, 80))
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.publish(t, w.a, word(slotDeny, 1), word(10, 1))
		w.publish(t, w.b, word(11, 1), word(slotDeny, 1))
		before := w.stats(t)
		for range 3 {
			frame := tcp(f.a, f.b, 1000, 80, syn).Bytes()
			w.fromPod(t, w.podA, frame).want(t, 0)
			w.toPod(t, w.podB, w.podA, frame).want(t, 0)
			w.fromPod(t, w.podA, tcp(f.a, f.b, 1000, 81, syn).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		}
		after := w.stats(t)
		for id, want := range map[uint32]uint64{101: 1, 111: 1, 102: 3, 112: 0} {
			if n := after[id] - before[id]; n != want {
				t.Errorf("rule %d counted %d, want %d", id, n, want)
			}
		}
	})
}
