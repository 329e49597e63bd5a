package bpf_test

import (
	"fmt"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// grace lets answers in mid-flow be believed without the kernel's word, or ends that.
func (w *world) grace(t *testing.T, on bool) {
	t.Helper()
	var g bpf.Grace
	if on {
		g.Until = 1<<64 - 1
	}
	w.put(t, bpf.MargayMapMidflowGrace, uint32(0), g)
}

// TestTCPInMidFlow: packets of connections nobody knows of, as after a restart without maps. Here the kernel's conntrack
// has no word for any of them: who they are from is taken for the opener, and that they are answers is believed in a grace
// period only. What the pod sends is put off, since the kernel's word comes after that hook.
func TestTCPInMidFlow(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.policy(t, 10, rule(bpf.RuleAllow, 6, setOut, 80)) // as opener: to port 80; as responder: on port 80
	const putOff = "put off"
	allow, deny, web := word(slotAllow, 2), word(slotDeny, 2), word(10, 2)
	tests := []struct {
		name            string
		ingress, egress uint64
		out             bool
		sport, dport    uint16
		want, inGrace   string // who has opened it, putOff, or empty: it is dropped
	}{
		{"the pod as opener", deny, web, true, 1000, 80, "a", "a"},
		{"the pod as opener, an answer", deny, web, false, 80, 1000, "", "a"},
		{"the pod as responder", web, deny, false, 1000, 80, "out", "out"},
		{"the pod as responder, an answer", web, deny, true, 80, 1000, putOff, "out"},
		{"to a port it may not open", deny, web, true, 1000, 81, putOff, putOff},
		{"from a port it may not have opened", deny, web, false, 81, 1000, "", ""},
		{"to the pod, neither way", deny, deny, false, 1000, 80, "", ""},
		{"from the pod, neither way", deny, deny, true, 1000, 80, putOff, putOff},
		{"both ways: the sender is taken for the opener", allow, allow, false, 80, 1000, "out", "out"},
	}
	check := func(t *testing.T, f family, send func(uint8) result, flags uint8, want string) {
		t.Helper()
		r := send(flags)
		switch want {
		case "":
			r.want(t, bpf.MargayDropReasonDROP_MIDFLOW)
			w.noFlow(t)
			return
		case putOff:
			if r.want(t, 0); r.mark != markSeen|markJudge {
				t.Errorf("flags %#x: mark %#x, want it judged after translation", flags, r.mark)
			}
			w.noFlow(t)
			return
		}
		r.want(t, 0)
		fl := w.flow(t)
		if addr := map[string]bool{"a": fl.opener().Addr() == f.a, "out": fl.opener().Addr() == f.out}; !addr[want] {
			t.Errorf("flags %#x: opened by %s, want %s", flags, fl.opener(), want)
		}
		if !fl.flagged(bpf.MargayCtFlagsCT_MIDFLOW) || r.mark != 0 && r.mark != markSeen {
			t.Errorf("flags %#x: not marked as a guess, or judged again: %+v, mark %#x", flags, fl, r.mark)
		}
		// A SYN is judged for itself.
		w.publish(t, w.a, word(slotDeny, 9), word(slotDeny, 9))
		send(syn).want(t, bpf.MargayDropReasonDROP_POLICY)
	}
	for _, tc := range tests {
		w.eachFamily(t, tc.name, func(t *testing.T, f family) {
			send := func(flags uint8) result {
				if tc.out {
					return w.fromPod(t, w.podA, tcp(f.a, f.out, tc.sport, tc.dport, flags).Bytes())
				}
				return w.toPod(t, w.podA, outside, tcp(f.out, f.a, tc.sport, tc.dport, flags).Bytes())
			}
			for _, flags := range []uint8{ack, synack, fin, testutil.FIN, 0xff &^ syn &^ rst} {
				for _, grace := range []bool{false, true} {
					w.reset(t)
					w.grace(t, grace)
					w.publish(t, w.a, tc.ingress, tc.egress)
					want := tc.want
					if grace {
						want = tc.inGrace
					}
					check(t, f, send, flags, want)
				}
			}
			w.grace(t, false)
		})
	}
	w.eachFamily(t, "a RST is passed on and not tracked", func(t *testing.T, f family) {
		w.publish(t, w.a, deny, web)
		w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, rst).Bytes()).want(t, 0)
		w.noFlow(t)
		w.toPod(t, w.podA, outside, tcp(f.out, f.a, 81, 1000, rst).Bytes()).want(t, bpf.MargayDropReasonDROP_MIDFLOW)
	})
	w.eachFamily(t, "what this node sends opens nothing unless it is a SYN", func(t *testing.T, f family) {
		for _, flags := range []uint8{ack, synack, fin, rst} {
			w.reset(t)
			w.publish(t, w.a, deny, deny)
			w.toPod(t, w.podA, 0, tcp(f.node, f.a, 80, 1000, flags).Bytes()).want(t, 0)
			w.noFlow(t)
			// Who opened, the kernel's conntrack says at LOCAL_IN.
			r := w.fromPod(t, w.podA, tcp(f.a, f.node, 1000, 80, ack).Bytes())
			if r.want(t, 0); r.mark != markSeen|markJudge {
				t.Errorf("mark %#x, want it judged at LOCAL_IN", r.mark)
			}
			w.noFlow(t)
		}
		w.toPod(t, w.podA, 0, tcp(f.node, f.a, 80, 1000, syn).Bytes()).want(t, 0)
		if !w.flow(t).flagged(bpf.MargayCtFlagsCT_FROM_HOST) {
			t.Error("a SYN of the node has not opened a flow of the node")
		}
	})
	w.eachFamily(t, "a source that is a Service's address is judged as any other", func(t *testing.T, f family) {
		w.publish(t, w.a, deny, deny)
		w.toPod(t, w.podA, outside, tcp(f.service, f.a, 80, 1000, ack).Bytes()).want(t, bpf.MargayDropReasonDROP_MIDFLOW)
		w.noFlow(t)
		w.toPod(t, w.podA, outside, tcp(f.service, f.a, 80, 1000, syn).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		w.toPod(t, w.podA, outside, udp(f.service, f.a, 80, 1000).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
	})
}

// TestStrictTCPWantsASYN: nothing in mid-flow passes, and what is known still does.
func TestStrictTCPWantsASYN(t *testing.T) {
	w := newWorld(t, bpf.Config{StrictMidFlow: 1})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		for _, flags := range []uint8{ack, synack, fin, rst} {
			w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, flags).Bytes()).want(t, bpf.MargayDropReasonDROP_MIDFLOW)
			w.toPod(t, w.podA, outside, tcp(f.out, f.a, 80, 1000, flags).Bytes()).want(t, bpf.MargayDropReasonDROP_MIDFLOW)
			w.toPod(t, w.podA, outside, tcp(f.service, f.a, 80, 1000, flags).Bytes()).want(t, bpf.MargayDropReasonDROP_MIDFLOW)
			w.fromPod(t, w.podA, tcp(f.a, f.service, 1000, 80, flags).Bytes()).want(t, bpf.MargayDropReasonDROP_MIDFLOW)
			w.fromPod(t, w.podA, tcp(f.a, f.node, 1000, 80, flags).Bytes()).want(t, bpf.MargayDropReasonDROP_MIDFLOW)
		}
		w.noFlow(t)
		w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, syn).Bytes()).want(t, 0)
		w.toPod(t, w.podA, outside, tcp(f.out, f.a, 80, 1000, synack).Bytes()).want(t, 0)
	})
}

// TestAWrongGuessIsTurnedRound: the first side took the wrong end for the opener, which the second side knows better. That
// the packet at hand is only an answer it does not believe, but of the true opener's next one it knows.
func TestAWrongGuessIsTurnedRound(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.policy(t, 10, rule(bpf.RuleAllow, 6, 0, 80))
	w.eachFamily(t, "", func(t *testing.T, f family) {
		for _, grace := range []bool{false, true} {
			// A opened to port 80 of B; the first packet seen is an answer, and B may open as well.
			w.reset(t)
			w.grace(t, grace)
			w.publish(t, w.a, word(slotDeny, 2), word(10, 2))
			w.publish(t, w.b, word(10, 3), word(slotAllow, 3))
			back, there := tcp(f.b, f.a, 80, 1000, ack).Bytes(), tcp(f.a, f.b, 1000, 80, ack).Bytes()
			for i := range 3 {
				w.fromPod(t, w.podB, back).want(t, 0)
				if i == 0 && !grace {
					w.toPod(t, w.podA, w.podB, back).want(t, bpf.MargayDropReasonDROP_POLICY)
				} else {
					w.toPod(t, w.podA, w.podB, back).want(t, 0)
				}
				w.fromPod(t, w.podA, there).want(t, 0)
				w.toPod(t, w.podB, w.podA, there).want(t, 0)
			}
			if fl := w.flow(t); fl.opener().Addr() != f.a || fl.entry.Egress != 2 || fl.entry.Ingress != 3 || fl.entry.L4 != 80 {
				t.Errorf("grace %v: flow %+v, want it opened by A", grace, fl)
			}
		}
		w.grace(t, false)
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
