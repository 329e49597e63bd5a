package bpf_test

import (
	"fmt"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// TestTCPInMidFlow: packets of connections nobody knows of, as after a restart without maps.
func TestTCPInMidFlow(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.policy(t, 10, rule(bpf.RuleAllow, 6, setOut, 80)) // as opener: to port 80; as responder: on port 80
	denied := bpf.MargayDropReasonDROP_MIDFLOW
	allow, deny, web := word(slotAllow, 2), word(slotDeny, 2), word(10, 2)
	tests := []struct {
		name            string
		ingress, egress uint64
		out             bool
		sport, dport    uint16
		reason          bpf.DropReason
		opener          string
	}{
		{"the pod as opener", deny, web, true, 1000, 80, 0, "a"},
		{"the pod as opener, an answer", deny, web, false, 80, 1000, 0, "a"},
		{"the pod as responder", web, deny, false, 1000, 80, 0, "out"},
		{"the pod as responder, an answer", web, deny, true, 80, 1000, 0, "out"},
		{"to a port it may not open", deny, web, true, 1000, 81, denied, ""},
		{"from a port it may not have opened", deny, web, false, 81, 1000, denied, ""},
		{"neither way", deny, deny, true, 1000, 80, denied, ""},
		{"both ways: the sender is taken for the opener", allow, allow, false, 80, 1000, 0, "out"},
	}
	for _, tc := range tests {
		w.eachFamily(t, tc.name, func(t *testing.T, f family) {
			for _, flags := range []uint8{ack, synack, fin, testutil.FIN, 0xff &^ syn &^ rst} {
				w.reset(t)
				w.publish(t, w.a, tc.ingress, tc.egress)
				send := func(flags uint8) result {
					if tc.out {
						return w.fromPod(t, w.podA, tcp(f.a, f.out, tc.sport, tc.dport, flags).Bytes())
					}
					return w.toPod(t, w.podA, outside, tcp(f.out, f.a, tc.sport, tc.dport, flags).Bytes())
				}
				send(flags).want(t, tc.reason)
				if tc.reason != 0 {
					w.noFlow(t)
					continue
				}
				fl := w.flow(t)
				if addr := map[string]bool{"a": fl.opener().Addr() == f.a, "out": fl.opener().Addr() == f.out}; !addr[tc.opener] {
					t.Errorf("flags %#x: opened by %s, want %s", flags, fl.opener(), tc.opener)
				}
				if !fl.flagged(bpf.MargayCtFlagsCT_MIDFLOW) {
					t.Errorf("flags %#x: not marked as a guess", flags)
				}
				// A SYN is judged for itself.
				w.publish(t, w.a, word(slotDeny, 9), word(slotDeny, 9))
				send(syn).want(t, bpf.MargayDropReasonDROP_POLICY)
			}
		})
	}
	w.eachFamily(t, "a RST is passed on and not tracked", func(t *testing.T, f family) {
		w.publish(t, w.a, deny, web)
		w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, rst).Bytes()).want(t, 0)
		w.noFlow(t)
		w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 81, rst).Bytes()).want(t, denied)
	})
	w.eachFamily(t, "this node's answer to a connection nobody knows opens nothing", func(t *testing.T, f family) {
		w.publish(t, w.a, deny, deny)
		w.toPod(t, w.podA, 0, tcp(f.out, f.a, 80, 1000, synack).Bytes()).want(t, 0)
		w.noFlow(t)
		w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, ack).Bytes()).want(t, denied)
	})
	w.eachFamily(t, "an answer from a Service opens nothing", func(t *testing.T, f family) {
		w.publish(t, w.a, deny, deny)
		w.toPod(t, w.podA, outside, tcp(f.service, f.a, 80, 1000, ack).Bytes()).want(t, 0)
		w.noFlow(t)
		w.toPod(t, w.podA, outside, tcp(f.service, f.a, 80, 1000, syn).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		w.toPod(t, w.podA, outside, udp(f.service, f.a, 80, 1000).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
	})
}

// TestStrictTCPWantsASYN: nothing in mid-flow passes, and what is known still does.
func TestStrictTCPWantsASYN(t *testing.T) {
	w := newWorld(t, bpf.Config{Strict: 1})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		for _, flags := range []uint8{ack, synack, fin, rst} {
			w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, flags).Bytes()).want(t, bpf.MargayDropReasonDROP_MIDFLOW)
			w.toPod(t, w.podA, outside, tcp(f.out, f.a, 80, 1000, flags).Bytes()).want(t, bpf.MargayDropReasonDROP_MIDFLOW)
			w.toPod(t, w.podA, outside, tcp(f.service, f.a, 80, 1000, flags).Bytes()).want(t, bpf.MargayDropReasonDROP_MIDFLOW)
		}
		w.noFlow(t)
		w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, syn).Bytes()).want(t, 0)
		w.toPod(t, w.podA, outside, tcp(f.out, f.a, 80, 1000, synack).Bytes()).want(t, 0)
	})
}

// TestAWrongGuessIsTurnedRound: the first side took the wrong end for the opener, which the second side knows better.
func TestAWrongGuessIsTurnedRound(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.policy(t, 10, rule(bpf.RuleAllow, 6, 0, 80))
	w.eachFamily(t, "", func(t *testing.T, f family) {
		// A opened to port 80 of B; the first packet seen is an answer, and B may open as well.
		w.publish(t, w.a, word(slotDeny, 2), word(10, 2))
		w.publish(t, w.b, word(10, 3), word(slotAllow, 3))
		back, there := tcp(f.b, f.a, 80, 1000, ack).Bytes(), tcp(f.a, f.b, 1000, 80, ack).Bytes()
		for range 3 {
			w.fromPod(t, w.podB, back).want(t, 0)
			w.toPod(t, w.podA, w.podB, back).want(t, 0)
			w.fromPod(t, w.podA, there).want(t, 0)
			w.toPod(t, w.podB, w.podA, there).want(t, 0)
		}
		if fl := w.flow(t); fl.opener().Addr() != f.a || fl.entry.Egress != 2 || fl.entry.Ingress != 3 || fl.entry.L4 != 80 {
			t.Errorf("flow %+v, want it opened by A", fl)
		}
	})
}

// TestAGuessIsNotTurnedForEver: no way round do both sides allow it, so it must not go on by each side seeing the way that
// suits it.
func TestAGuessIsNotTurnedForEver(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.publish(t, w.a, word(slotDeny, 2), word(slotAllow, 2))
		w.publish(t, w.b, word(slotDeny, 3), word(slotAllow, 3))
		got := 0
		for i := range 10 {
			from, to := w.podA, w.podB
			frame := tcp(f.a, f.b, 1000, 80, ack).Bytes()
			if i%2 == 1 {
				from, to, frame = to, from, tcp(f.b, f.a, 80, 1000, ack).Bytes()
			}
			if w.fromPod(t, from, frame).action == next && w.toPod(t, to, from, frame).action == next {
				got++
			}
		}
		if got > 1 {
			t.Errorf("%d of 10 packets got through", got)
		}
	})
}

// TestAnAnswerToTheNodeFromAnUnknownFlowIsJudgedLater: the node's address may be one that is translated.
func TestAnAnswerToTheNodeFromAnUnknownFlowIsJudgedLater(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	for _, f := range families {
		for _, dst := range []string{"node", "service"} {
			t.Run(fmt.Sprintf("%s/%s", dst, f.name), func(t *testing.T) {
				w.reset(t)
				w.publish(t, w.a, word(slotDeny, 1), word(slotDeny, 1))
				to := f.node
				if dst == "service" {
					to = f.service
				}
				for _, frame := range [][]byte{tcp(f.a, to, 80, 1000, ack).Bytes(), udp(f.a, to, 80, 1000).Bytes()} {
					r := w.fromPod(t, w.podA, frame)
					if r.action != next || r.mark != markSeen|markJudge {
						t.Errorf("action %d, mark %#x: want it judged after translation", r.action, r.mark)
					}
				}
				w.noFlow(t)
			})
		}
	}
}
