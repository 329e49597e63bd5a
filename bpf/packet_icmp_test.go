package bpf_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// unreachable is an ICMP error about a packet, or the first bytes of one.
func unreachable(src, dst netip.Addr, quote []byte) testutil.Packet {
	kind := uint8(3)
	if src.Is6() {
		kind = 1
	}
	return testutil.Packet{Src: src, Dst: dst, L4: testutil.ICMP{Type: kind, Code: 1, Quote: quote}}
}

// TestICMPErrorsFollowTheFlowTheyQuote: pod A has a flow to somebody outside and nothing else is allowed.
func TestICMPErrorsFollowTheFlowTheyQuote(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.fromPod(t, w.podA, udp(f.a, f.out, 1000, 53).Bytes()).want(t, 0)
		w.toPod(t, w.podA, outside, udp(f.out, f.a, 53, 1000).Bytes()).want(t, 0)
		w.publish(t, w.a, word(slotDeny, 1), word(slotDeny, 1))
		sent, received := testutil.Quoting(udp(f.a, f.out, 1000, 53)), testutil.Quoting(udp(f.out, f.a, 53, 1000))
		denied, bad := bpf.MargayDropReasonDROP_POLICY, bpf.MargayDropReasonDROP_BAD_HEADER
		in, out := bpf.MargayProgToPod, bpf.MargayProgFromPod
		tests := []struct {
			name    string
			program string
			p       testutil.Packet
			reason  bpf.DropReason
		}{
			{"from the receiver", in, unreachable(f.out, f.a, sent), 0},
			{"from a router on the way", in, unreachable(f.other, f.a, sent), 0},
			{"the pod's own, about what it received", out, unreachable(f.a, f.out, received), 0},
			{"about another port", in, unreachable(f.out, f.a, testutil.Quoting(udp(f.a, f.out, 1001, 53))), denied},
			{"about another protocol", in, unreachable(f.out, f.a, testutil.Quoting(tcp(f.a, f.out, 1000, 53, ack))), denied},
			{"about another flow, the pod's own", out, unreachable(f.a, f.out, testutil.Quoting(udp(f.out, f.a, 53, 1001))), denied},
			{"to somebody who did not send what it quotes", out, unreachable(f.a, f.other, received), bad},
			{"to the other pod, about what an outsider sent", out, unreachable(f.a, f.b, received), bad},
			{"about what the pod received, to the pod", in, unreachable(f.out, f.a, received), bad},
			{"about what the pod sent, from the pod", out, unreachable(f.a, f.out, sent), bad},
			{"about somebody else's flow, to the pod", in, unreachable(f.out, f.a, testutil.Quoting(udp(f.b, f.out, 1000, 53))), bad},
			{"about somebody else's flow, from the pod", out, unreachable(f.a, f.out, testutil.Quoting(udp(f.out, f.b, 53, 1000))), bad},
			{"quoting seven bytes of the transport header", in, unreachable(f.out, f.a, sent[:len(sent)-1]), bpf.MargayDropReasonDROP_TRUNCATED},
			{"quoting half an IP header", in, unreachable(f.out, f.a, sent[:10]), bpf.MargayDropReasonDROP_TRUNCATED},
			{"quoting nothing", in, unreachable(f.out, f.a, nil), bpf.MargayDropReasonDROP_TRUNCATED},
			{"quoting the other version", in, unreachable(f.out, f.a, append([]byte{sent[0] ^ 0x20}, sent[1:]...)), bad},
		}
		for _, tc := range tests {
			t.Run(tc.name, func(t *testing.T) {

				w.run(t, tc.program, skb{Ifindex: w.podA, IngressIfindex: outside}, tc.p.Bytes()).want(t, tc.reason)
				if n := len(w.flows(t)); n != 1 {
					t.Errorf("%d flows, want the one there was", n)
				}
			})
		}
	})
}

// TestICMPErrorsOfEveryKind: all types that quote are errors, no other. Of ICMPv6 these are all below 128, assigned or not
// (RFC 4443, 2.1): the kernel's conntrack calls any of them related to the flow in the quote.
func TestICMPErrorsOfEveryKind(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.fromPod(t, w.podA, udp(f.a, f.out, 1000, 53).Bytes()).want(t, 0)
		w.publish(t, w.a, word(slotDeny, 1), word(slotAllow, 1))
		quote := testutil.Quoting(udp(f.a, f.out, 1000, 53))
		for kind := range 256 {
			p := testutil.Packet{Src: f.out, Dst: f.a, L4: testutil.ICMP{Type: uint8(kind), Quote: quote}}
			want := bpf.MargayDropReasonDROP_POLICY
			if f.name == "v6" && kind < 128 || f.name == "v4" && slices.Contains([]int{3, 4, 5, 11, 12}, kind) {
				want = 0
			}
			r := w.toPod(t, w.podA, outside, p.Bytes())
			if r.reason() != want {
				t.Errorf("type %d: %s, want %s", kind, bpf.Label(r.reason()), bpf.Label(want))
			}
		}
	})
}

// TestICMPErrorsAboutUnknownFlowsAreJudged as the messages they are.
func TestICMPErrorsAboutUnknownFlowsAreJudged(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		p := unreachable(f.out, f.a, testutil.Quoting(udp(f.a, f.out, 1000, 53)))
		w.toPod(t, w.podA, outside, p.Bytes()).want(t, 0)
		w.noFlow(t)
		w.publish(t, w.a, word(slotNoICMP, 2), word(slotNoICMP, 2))
		w.toPod(t, w.podA, outside, p.Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		w.toPod(t, w.podA, 0, p.Bytes()).want(t, 0) // the node's own
		w.noFlow(t)
	})
}

// TestICMPErrorsOfFlowsWithoutPermission: an outdated stamp, a revoked flow and a side that never allowed give none.
func TestICMPErrorsOfFlowsWithoutPermission(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "outdated", func(t *testing.T, f family) {
		w.fromPod(t, w.podA, udp(f.a, f.out, 1000, 53).Bytes()).want(t, 0)
		w.publish(t, w.a, word(slotDeny, 1), word(slotDeny, 2))
		p := unreachable(f.out, f.a, testutil.Quoting(udp(f.a, f.out, 1000, 53)))
		w.toPod(t, w.podA, outside, p.Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
	})
	w.eachFamily(t, "denied by the receiver", func(t *testing.T, f family) {
		w.publish(t, w.b, word(slotDeny, 2), word(slotDeny, 2))
		w.fromPod(t, w.podA, udp(f.a, f.b, 1000, 53).Bytes()).want(t, 0)
		p := unreachable(f.b, f.a, testutil.Quoting(udp(f.a, f.b, 1000, 53)))
		w.fromPod(t, w.podB, p.Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
	})
	w.eachFamily(t, "revoked by the other side", func(t *testing.T, f family) {
		w.fromPod(t, w.podA, tcp(f.a, f.b, 1000, 80, syn).Bytes()).want(t, 0)
		w.toPod(t, w.podB, w.podA, tcp(f.a, f.b, 1000, 80, syn).Bytes()).want(t, 0)
		w.publish(t, w.a, word(slotNoICMP, 1), word(slotNoICMP, 1))
		p := unreachable(f.other, f.a, testutil.Quoting(tcp(f.a, f.b, 1000, 80, syn)))
		w.toPod(t, w.podA, outside, p.Bytes()).want(t, 0)
		w.publish(t, w.b, word(slotDeny, 2), word(slotDeny, 2))
		w.toPod(t, w.podB, w.podA, tcp(f.a, f.b, 1000, 80, ack).Bytes())
		w.toPod(t, w.podA, outside, p.Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
	})
	w.eachFamily(t, "of the node's flows", func(t *testing.T, f family) {
		w.publish(t, w.a, word(slotDeny, 2), word(slotDeny, 2))
		w.toPod(t, w.podA, 0, udp(f.node, f.a, 1000, 53).Bytes()).want(t, 0)
		p := unreachable(f.a, f.node, testutil.Quoting(udp(f.node, f.a, 1000, 53)))
		w.fromPod(t, w.podA, p.Bytes()).want(t, 0)
	})
}

// TestICMPErrorsAboutLaterFragments cannot be: they have no ports, and nobody sends errors about them.
func TestICMPErrorsAboutLaterFragments(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		p := udp(f.a, f.out, 1000, 53)
		p.FragmentOffset, p.Payload = 8, make([]byte, 32)
		w.toPod(t, w.podA, outside, unreachable(f.out, f.a, testutil.Quoting(p)).Bytes()).want(t, bpf.MargayDropReasonDROP_BAD_HEADER)
	})
}

// TestICMPErrorsAboutEveryProtocol: quoted ends are read as those of the packet itself are.
func TestICMPErrorsAboutEveryProtocol(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	for _, f := range families {
		about := map[string]testutil.Packet{
			"tcp":  tcp(f.a, f.out, 1000, 80, syn),
			"sctp": {Src: f.a, Dst: f.out, L4: testutil.SCTP{SrcPort: 1, DstPort: 2}},
			"echo": icmp(f.a, f.out, f.echo, 7),
			"gre":  {Src: f.a, Dst: f.out, L4: testutil.Raw(47), Payload: make([]byte, 8)},
		}
		if f.a.Is4() {
			p := udp(f.a, f.out, 1000, 53)
			p.Options = []byte{1, 1, 1, 1, 1, 1, 1, 1}
			about["udp with IPv4 options"] = p
		} else {
			for name, change := range map[string]func(p *testutil.Packet){
				"udp, a first fragment":       func(p *testutil.Packet) { p.MoreFragments, p.ID = true, 7 },
				"udp with extension headers":  func(p *testutil.Packet) { p.Extensions = append(ext(0, 1), ext(60, 1)...) },
				"udp with a routing header":   func(p *testutil.Packet) { p.Extensions = ext(43, 1) },
				"udp with all of it together": func(p *testutil.Packet) { p.Extensions, p.MoreFragments = append(ext(0, 1), ext(60, 1)...), true },
			} {
				p := udp(f.a, f.out, 1000, 53)
				change(&p)
				about[name] = p
			}
		}
		for name, p := range about {
			t.Run(fmt.Sprintf("%s/%s", name, f.name), func(t *testing.T) {
				w.reset(t)
				w.fromPod(t, w.podA, p.Bytes()).want(t, 0)
				w.publish(t, w.a, word(slotDeny, 1), word(slotAllow, 1))
				w.toPod(t, w.podA, outside, unreachable(f.other, f.a, testutil.Quoting(p)).Bytes()).want(t, 0)
			})
		}
	}
}

// TestOnlyEchoRequestsOfTheNodeHaveAnswers: any other message of the node has none, and a pod's of the same type is its own.
func TestOnlyEchoRequestsOfTheNodeHaveAnswers(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.publish(t, w.a, word(slotDeny, 1), word(slotDeny, 1))
		redirect := uint8(137)
		if f.a.Is4() {
			redirect = 13 // redirects of IPv4 are errors; a timestamp request
		}
		w.toPod(t, w.podA, 0, icmp(f.out, f.a, redirect, 0).Bytes()).want(t, 0)
		w.noFlow(t)
		w.fromPod(t, w.podA, icmp(f.a, f.out, redirect, 0).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		w.toPod(t, w.podA, 0, icmp(f.out, f.a, f.echo, 7).Bytes()).want(t, 0)
		w.fromPod(t, w.podA, icmp(f.a, f.out, f.reply, 7).Bytes()).want(t, 0)
	})
}
