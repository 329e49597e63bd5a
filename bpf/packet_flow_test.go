package bpf_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

const (
	replied  = bpf.MargayCtStateCT_REPLIED
	open     = bpf.MargayCtStateCT_OPEN
	revoked  = bpf.MargayCtStateCT_REVOKED
	oneWay   = bpf.MargayCtStateCT_ONE_WAY
	reset    = bpf.MargayCtStateCT_RST
	finOpen  = bpf.MargayCtStateCT_FIN_OPENER
	finReply = bpf.MargayCtStateCT_FIN_REPLY
)

// step is one packet of a connection between pod A and somebody outside, and what is known after it.
type step struct {
	name   string
	out    bool // from the pod
	flags  uint8
	reason bpf.DropReason
	state  bpf.MargayCtState
	open   bool // in the open map
	opener string
}

// TestTCPStates runs whole connections.
func TestTCPStates(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	handshake := []step{
		{"SYN", true, syn, 0, 0, false, "a"},
		{"SYN again", true, syn, 0, 0, false, "a"},
		{"SYN-ACK", false, synack, 0, replied, false, "a"},
		{"SYN-ACK again", false, synack, 0, replied, false, "a"},
		{"ACK", true, ack, 0, replied | open, true, "a"},
		{"data", false, ack, 0, replied | open, true, "a"},
	}
	inbound := []step{
		{"SYN", false, syn, 0, 0, false, "out"},
		{"SYN-ACK", true, synack, 0, replied, false, "out"},
		{"ACK", false, ack, 0, replied | open, true, "out"},
	}
	closing := []step{
		{"FIN", true, fin, 0, replied | open | finOpen, true, "a"},
		{"ACK of the FIN", false, ack, 0, replied | open | finOpen, true, "a"},
		{"FIN of the other side", false, fin, 0, replied | open | finOpen | finReply, true, "a"},
		{"last ACK", true, ack, 0, replied | open | finOpen | finReply, true, "a"},
	}
	reopened := []step{
		{"SYN from the same port", true, syn, 0, 0, true, "a"},
		{"SYN-ACK", false, synack, 0, replied, true, "a"},
		{"ACK", true, ack, 0, replied | open, true, "a"},
	}
	swapped := []step{
		{"SYN from the other side", false, syn, 0, 0, true, "out"},
		{"SYN-ACK", true, synack, 0, replied, true, "out"},
		{"ACK", false, ack, 0, replied | open, true, "out"},
		{"FIN", false, fin, 0, replied | open | finOpen, true, "out"},
	}
	tests := []struct {
		name  string
		steps [][]step
	}{
		{"opened by the pod", [][]step{handshake}},
		{"opened from outside", [][]step{inbound}},
		{"closed and the port used again", [][]step{handshake, closing, reopened, closing, reopened}},
		{"closed and opened the other way", [][]step{handshake, closing, swapped}},
		{"reset", [][]step{handshake, {{"RST", false, rst, 0, replied | open | reset, true, "a"}}, reopened}},
		{"refused", [][]step{{
			{"SYN", true, syn, 0, 0, false, "a"},
			{"RST", false, rst | ack, 0, replied | reset, false, "a"},
			{"SYN", true, syn, 0, 0, false, "a"},
		}, handshake[1:]}},
		{"simultaneous open", [][]step{{
			{"SYN", true, syn, 0, 0, false, "a"},
			{"SYN crossing it", false, syn, 0, 0, false, "out"},
			{"SYN-ACK", true, synack, 0, replied, false, "out"},
			{"SYN-ACK of the other side", false, synack, 0, replied, false, "out"},
			{"ACK", false, ack, 0, replied | open, true, "out"},
		}}},
		{"closed before it was open", [][]step{{
			{"SYN", true, syn, 0, 0, false, "a"},
			{"SYN-ACK", false, synack, 0, replied, false, "a"},
			{"FIN for an ACK", true, fin, 0, replied | finOpen, false, "a"},
			{"ACK", true, ack, 0, replied | finOpen, false, "a"},
		}}},
	}
	for _, tc := range tests {
		w.eachFamily(t, tc.name, func(t *testing.T, f family) {
			for i, steps := range tc.steps {
				for _, s := range steps {
					w.tcpStep(t, f, s, fmt.Sprintf("part %d, %s", i+1, s.name))
				}
			}
		})
	}
}

// tcpStep sends the packet of a step between port 1000 of pod A and port 80 outside.
func (w *world) tcpStep(t *testing.T, f family, s step, name string) {
	t.Helper()
	var r result
	if s.out {
		r = w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, s.flags).Bytes())
	} else {
		r = w.toPod(t, w.podA, outside, tcp(f.out, f.a, 80, 1000, s.flags).Bytes())
	}
	if want := map[bool]int{true: next, false: drop}[s.reason == 0]; r.action != want || r.reason() != s.reason {
		t.Fatalf("%s: action %d, reason %s; want action %d, reason %s", name, r.action, bpf.Label(r.reason()), want, bpf.Label(s.reason))
	}
	got := w.flow(t)
	opener := map[string]netip.AddrPort{"a": netip.AddrPortFrom(f.a, 1000), "out": netip.AddrPortFrom(f.out, 80)}[s.opener]
	if got.entry.State != uint8(s.state) || got.open != s.open || got.opener() != opener {
		t.Fatalf("%s: state %d, open %v, opened by %s; want %d, %v, %s", name, got.entry.State, got.open, got.opener(), s.state, s.open, opener)
	}
}

// TestASYNOnAClosedFlowIsJudgedAgain: a port used again does not inherit what the last connection was allowed.
func TestASYNOnAClosedFlowIsJudgedAgain(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.policy(t, 10, rule(bpf.RuleAllow, 6, setOut, 80))
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.publish(t, w.a, word(slotDeny, 1), word(10, 1))
		for _, s := range []step{{out: true, flags: syn}, {flags: synack}, {out: true, flags: ack}, {flags: fin}, {out: true, flags: fin}} {
			if s.out {
				w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, s.flags).Bytes()).want(t, 0)
			} else {
				w.toPod(t, w.podA, outside, tcp(f.out, f.a, 80, 1000, s.flags).Bytes()).want(t, 0)
			}
		}
		w.toPod(t, w.podA, outside, tcp(f.out, f.a, 80, 1000, syn).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 80, syn).Bytes()).want(t, 0)
		// Nor on an open one.
		w.toPod(t, w.podA, outside, tcp(f.out, f.a, 80, 1000, syn).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
	})
}

// TestDatagramFlows: whoever opens is judged, answers pass, and an answered flow is kept apart from a flood.
func TestDatagramFlows(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	for _, layer4 := range []struct {
		name   string
		packet func(src, dst netip.Addr, sport, dport uint16) testutil.Packet
	}{
		{"udp", udp},
		{"sctp", func(src, dst netip.Addr, sport, dport uint16) testutil.Packet {
			return testutil.Packet{Src: src, Dst: dst, L4: testutil.SCTP{SrcPort: sport, DstPort: dport}}
		}},
		{"udplite", func(src, dst netip.Addr, sport, dport uint16) testutil.Packet {
			return testutil.Packet{Src: src, Dst: dst, L4: testutil.UDP{SrcPort: sport, DstPort: dport, Lite: true}}
		}},
		{"gre", func(src, dst netip.Addr, _, _ uint16) testutil.Packet {
			return testutil.Packet{Src: src, Dst: dst, L4: testutil.Raw(47)}
		}},
	} {
		w.eachFamily(t, layer4.name, func(t *testing.T, f family) {
			w.publish(t, w.a, word(slotDeny, 1), word(slotAllow, 1))
			request, answer := layer4.packet(f.a, f.out, 1000, 53).Bytes(), layer4.packet(f.out, f.a, 53, 1000).Bytes()
			w.toPod(t, w.podA, outside, answer).want(t, bpf.MargayDropReasonDROP_POLICY)
			w.noFlow(t)
			w.fromPod(t, w.podA, request).want(t, 0)
			w.fromPod(t, w.podA, request).want(t, 0)
			if fl := w.flow(t); fl.open || fl.entry.State != 0 {
				t.Errorf("before the answer: %+v", fl)
			}
			w.toPod(t, w.podA, outside, answer).want(t, 0)
			if fl := w.flow(t); fl.open || !fl.has(replied) || fl.opener().Addr() != f.a {
				t.Errorf("after the answer: %+v", fl)
			}
			w.fromPod(t, w.podA, request).want(t, 0)
			if fl := w.flow(t); !fl.open || !fl.has(replied|open) {
				t.Errorf("carried on: %+v", fl)
			}
			w.toPod(t, w.podA, outside, answer).want(t, 0)
			if layer4.name == "udp" || layer4.name == "sctp" {
				w.toPod(t, w.podA, outside, layer4.packet(f.out, f.a, 53, 1001).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
				w.toPod(t, w.podA, outside, layer4.packet(f.out, f.a, 54, 1000).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
			}
			w.toPod(t, w.podA, outside, layer4.packet(f.other, f.a, 53, 1000).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		})
	}
}

// TestEcho: requests and replies of one identifier are a flow, in each direction one of its own.
func TestEcho(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	for _, id := range []uint16{0, 1, 7, 0x7fff, 0x8000, 0xffff} {
		w.eachFamily(t, fmt.Sprintf("identifier %d", id), func(t *testing.T, f family) {
			w.publish(t, w.a, word(slotDeny, 1), word(slotAllow, 1))
			denied := bpf.MargayDropReasonDROP_POLICY
			w.toPod(t, w.podA, outside, icmp(f.out, f.a, f.reply, id).Bytes()).want(t, denied)
			w.fromPod(t, w.podA, icmp(f.a, f.out, f.echo, id).Bytes()).want(t, 0)
			if fl := w.flow(t); fl.open || fl.opener().Addr() != f.a {
				t.Errorf("after the request: %+v", fl)
			}
			for _, other := range []uint16{0, 1, id + 1, id - 1, ^id, id ^ 0x8000} {
				w.toPod(t, w.podA, outside, icmp(f.out, f.a, f.echo, other).Bytes()).want(t, denied)
				if other != id {
					w.toPod(t, w.podA, outside, icmp(f.out, f.a, f.reply, other).Bytes()).want(t, denied)
				}
			}
			w.toPod(t, w.podA, outside, icmp(f.out, f.a, f.reply, id).Bytes()).want(t, 0)
			if fl := w.flow(t); fl.open || !fl.has(replied) {
				t.Errorf("after the reply: %+v", fl)
			}
			w.toPod(t, w.podA, outside, icmp(f.out, f.a, f.echo, id).Bytes()).want(t, denied)
			// The answered side may ping too, if policy lets it; then there are two flows.
			w.publish(t, w.a, word(slotAllow, 2), word(slotAllow, 1))
			w.toPod(t, w.podA, outside, icmp(f.out, f.a, f.echo, id).Bytes()).want(t, 0)
			if n := len(w.flows(t)); n != 2 {
				t.Errorf("%d flows, want 2", n)
			}
		})
	}
}

// TestAnUnaskedReplyOpensNothing: it is judged as a message.
func TestAnUnaskedReplyOpensNothing(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.fromPod(t, w.podA, icmp(f.a, f.out, f.reply, 7).Bytes()).want(t, 0)
		w.toPod(t, w.podA, outside, icmp(f.out, f.a, f.reply, 7).Bytes()).want(t, 0)
		w.noFlow(t)
		w.publish(t, w.a, word(slotNoICMP, 2), word(slotNoICMP, 2))
		w.fromPod(t, w.podA, icmp(f.a, f.out, f.reply, 7).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		w.fromPod(t, w.podA, icmp(f.a, f.out, f.echo, 7).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
	})
}

// TestOtherICMPIsJudgedByTypeAndCode: a message that is no echo and no error stands for itself.
func TestOtherICMPIsJudgedByTypeAndCode(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.policy(t, 10, rule(bpf.RuleAllow, f.icmp, 0, 13<<8, 139<<8))
		w.publish(t, w.a, word(slotDeny, 1), word(10, 1))
		kind := map[string]uint8{"v4": 13, "v6": 139}[f.name] // timestamp request, node information query
		w.fromPod(t, w.podA, icmp(f.a, f.out, kind, 7).Bytes()).want(t, 0)
		w.fromPod(t, w.podA, icmp(f.a, f.out, kind+2, 7).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		w.toPod(t, w.podA, outside, icmp(f.out, f.a, kind+1, 7).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		// The other end's own message of the type is no answer.
		w.toPod(t, w.podA, outside, icmp(f.out, f.a, kind, 7).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		w.noFlow(t)
	})
}

// TestWhatTheNodeSendsPasses: no ingress policy for this node's own packets, and their answers pass egress policy.
func TestWhatTheNodeSendsPasses(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.publish(t, w.a, word(slotDeny, 1), word(slotDeny, 1))
		for _, src := range []netip.Addr{f.node, f.other} { // an address does not make the node, where it comes from does
			w.forget(t)
			w.toPod(t, w.podA, outside, udp(src, f.a, 500, 80).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
			w.noFlow(t)
			w.toPod(t, w.podA, 0, udp(src, f.a, 500, 80).Bytes()).want(t, 0)
			if !w.flow(t).flagged(bpf.MargayCtFlagsCT_FROM_HOST) {
				t.Error("the flow is not known as the node's")
			}
			r := w.fromPod(t, w.podA, udp(f.a, src, 80, 500).Bytes())
			r.want(t, 0)
			if r.mark != markSeen {
				t.Errorf("answer with mark %#x, want it seen and nothing more", r.mark)
			}
			w.forget(t)
			w.toPod(t, w.podA, 0, tcp(src, f.a, 500, 80, syn).Bytes()).want(t, 0)
			w.fromPod(t, w.podA, tcp(f.a, src, 80, 500, synack).Bytes()).want(t, 0)
			w.toPod(t, w.podA, 0, tcp(src, f.a, 500, 80, ack).Bytes()).want(t, 0)
			if fl := w.flow(t); !fl.open {
				t.Errorf("after the handshake: %+v", fl)
			}
		}
	})
}

// TestAPodMayTalkToItself is D-16: what comes back to the veth it left by.
func TestAPodMayTalkToItself(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.publish(t, w.a, word(slotDeny, 1), word(slotDeny, 1))
		w.fromPod(t, w.podA, tcp(f.a, f.a, 1000, 80, syn).Bytes()).want(t, 0)
		w.toPod(t, w.podA, w.podA, tcp(f.a, f.a, 1000, 80, syn).Bytes()).want(t, 0)
		w.fromPod(t, w.podA, tcp(f.a, f.a, 80, 1000, synack).Bytes()).want(t, 0)
		w.forget(t)
		// Masqueraded by kube-proxy the source is the node.
		w.toPod(t, w.podA, w.podA, tcp(f.node, f.a, 40000, 80, syn).Bytes()).want(t, 0)
		if !w.flow(t).flagged(bpf.MargayCtFlagsCT_SELF) {
			t.Error("the flow is not known as the pod's with itself")
		}
		w.fromPod(t, w.podA, tcp(f.a, f.node, 80, 40000, synack).Bytes()).want(t, 0)
		w.forget(t)
		w.toPod(t, w.podA, w.podB, tcp(f.b, f.a, 1000, 80, syn).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
	})
}

// TestDatagramsOfAPodToItselfMayMove: kube-proxy may send the next one of the flow to another backend, and the node's
// address that stood for the pod may stand for the node again. So only what needs no translation passes without a look.
func TestDatagramsOfAPodToItselfMayMove(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.publish(t, w.a, word(slotDeny, 1), word(slotDeny, 1))
		later := func(p testutil.Packet, want uint32) {
			t.Helper()
			r := w.fromPod(t, w.podA, p.Bytes())
			r.want(t, 0)
			if r.mark != want {
				t.Errorf("mark %#x, want %#x", r.mark, want)
			}
		}
		w.toPod(t, w.podA, w.podA, udp(f.node, f.a, 40000, 53).Bytes()).want(t, 0)
		later(udp(f.a, f.node, 53, 40000), markSeen|markJudge)
		later(udp(f.a, f.a, 53, 40000), markSeen)
		w.putServiceFlow(t, f, bpf.CtEntry{Flags: uint8(bpf.MargayCtFlagsCT_SELF), Egress: 1})
		later(udp(f.a, f.service, 1000, 53), markSeen|markJudge)
		w.putServiceFlow(t, f, bpf.CtEntry{Flags: uint8(bpf.MargayCtFlagsCT_SELF | bpf.MargayCtFlagsCT_CONFIRMED), Egress: 1})
		later(udp(f.a, f.service, 1000, 53), markJudge)
	})
}

// putServiceFlow records what judge leaves for a flow of UDP from port 1000 of pod A to port 53 of the Service.
func (w *world) putServiceFlow(t *testing.T, f family, e bpf.CtEntry) {
	t.Helper()
	if f.a.Is4() {
		e.Flags |= uint8(bpf.MargayCtFlagsCT_OPENER_B)
		w.put(t, bpf.MargayMapCt4, bpf.Ct4Key{A: f.service.As4(), B: f.a.As4(), Pa: 53, Pb: 1000, Proto: 17}, e)
		return
	}
	w.put(t, bpf.MargayMapCt6, bpf.Ct6Key{A: f.a.As16(), B: f.service.As16(), Pa: 1000, Pb: 53, Proto: 17}, e)
}

// TestBothSidesOfALocalFlowAreJudged, with both hooks and no shortcut.
func TestBothSidesOfALocalFlowAreJudged(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "allowed", func(t *testing.T, f family) {
		w.publish(t, w.a, word(slotDeny, 1), word(slotAllow, 2))
		w.publish(t, w.b, word(slotAllow, 3), word(slotDeny, 4))
		there := func(flags uint8) {
			t.Helper()
			w.fromPod(t, w.podA, tcp(f.a, f.b, 1000, 80, flags).Bytes()).want(t, 0)
			w.toPod(t, w.podB, w.podA, tcp(f.a, f.b, 1000, 80, flags).Bytes()).want(t, 0)
		}
		there(syn)
		w.fromPod(t, w.podB, tcp(f.b, f.a, 80, 1000, synack).Bytes()).want(t, 0)
		w.toPod(t, w.podA, w.podB, tcp(f.b, f.a, 80, 1000, synack).Bytes()).want(t, 0)
		there(ack)
		if fl := w.flow(t); !fl.open || fl.entry.Egress != 2 || fl.entry.Ingress != 3 {
			t.Errorf("flow %+v, want stamps 2 and 3", fl)
		}
	})
	w.eachFamily(t, "denied at the receiver", func(t *testing.T, f family) {
		w.publish(t, w.b, word(slotDeny, 3), word(slotAllow, 4))
		w.fromPod(t, w.podA, tcp(f.a, f.b, 1000, 80, syn).Bytes()).want(t, 0)
		w.toPod(t, w.podB, w.podA, tcp(f.a, f.b, 1000, 80, syn).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		for _, flags := range []uint8{ack, synack, rst, fin} {
			w.toPod(t, w.podB, w.podA, tcp(f.a, f.b, 1000, 80, flags).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		}
	})
	w.eachFamily(t, "denied one way, allowed the other", func(t *testing.T, f family) {
		// What A tried in vain must not stand in the way of what B may do with the same ends.
		w.publish(t, w.b, word(slotDeny, 3), word(slotAllow, 4))
		for range 2 {
			w.fromPod(t, w.podA, udp(f.a, f.b, 123, 123).Bytes()).want(t, 0)
			w.toPod(t, w.podB, w.podA, udp(f.a, f.b, 123, 123).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		}
		w.fromPod(t, w.podB, udp(f.b, f.a, 123, 123).Bytes()).want(t, 0)
		w.toPod(t, w.podA, w.podB, udp(f.b, f.a, 123, 123).Bytes()).want(t, 0)
		if fl := w.flow(t); fl.opener().Addr() != f.b || fl.entry.Egress != 4 || fl.entry.Ingress != 1 {
			t.Errorf("flow %+v, want it opened by B", fl)
		}
		w.fromPod(t, w.podA, udp(f.a, f.b, 123, 123).Bytes()).want(t, 0)
		w.toPod(t, w.podB, w.podA, udp(f.a, f.b, 123, 123).Bytes()).want(t, 0)
	})
}
