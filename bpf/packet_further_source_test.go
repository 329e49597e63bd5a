package bpf_test

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// lists has pod A list a prefix as a further source.
func (w *world) lists(t *testing.T, p netip.Prefix) {
	t.Helper()
	k := bpf.SourceKey{Prefixlen: 64 + uint32(p.Bits()), Ifindex: w.podA, Family: 6}
	if p.Addr().Is4() {
		k.Family = 4
	}
	copy(k.Addr[:], p.Addr().AsSlice())
	w.put(t, bpf.MargayMapSources, k, uint32(1))
	t.Cleanup(func() { _ = w.Maps[bpf.MargayMapSources].Delete(k) })
	w.a.Flags |= bpf.EPSources
	w.publish(t, w.a, w.a.Ingress, w.a.Egress)
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func everything(f family) netip.Prefix {
	if f.a.Is4() {
		return netip.MustParsePrefix("0.0.0.0/0")
	}
	return netip.MustParsePrefix("::/0")
}

// TestFurtherSourcesLeaveAPod: exactly the addresses of the prefixes that it lists, as long as its entry says so, and none that
// is somebody's.
func TestFurtherSourcesLeaveAPod(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	spoofed := bpf.MargayDropReasonDROP_SPOOFED
	for _, f := range families {
		nearby, owned := f.out.Next(), f.other.Next()
		w.address(t, owned, bpf.AddrInfo{Flags: bpf.AddrOwned})
		prefix := netip.PrefixFrom(f.out, f.out.BitLen()-1).Masked() // with f.out and the one after it
		tests := []struct {
			name   string
			lists  netip.Prefix
			src    netip.Addr
			reason bpf.DropReason
		}{
			{"its own address", prefix, f.a, 0},
			{"a listed one", prefix, f.out, 0},
			{"the other one of the prefix", prefix, nearby, 0},
			{"one beside the prefix", prefix, nearby.Next(), spoofed},
			{"a single one", single(f.other), f.other, 0},
			{"beside the single one", single(f.other), owned.Next(), spoofed},
			{"an unknown one of everything", everything(f), f.other, 0},
			{"the other pod's", everything(f), f.b, spoofed},
			{"the other pod's, alone", single(f.b), f.b, spoofed},
			{"one owned elsewhere", single(owned), owned, spoofed},
			{"the node's", everything(f), f.node, spoofed},
			{"a link-local one", everything(f), f.linkLocal, spoofed},
		}
		if f.a.Is4() {
			for _, a := range []string{"0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"} {
				tests = append(tests, struct {
					name   string
					lists  netip.Prefix
					src    netip.Addr
					reason bpf.DropReason
				}{a, everything(f), netip.MustParseAddr(a), spoofed})
			}
		} else {
			for _, a := range []string{"::", "::1", "::5", "::ffff:192.0.2.10", "fe80::5", "febf::5", "ff02::5"} {
				tests = append(tests, struct {
					name   string
					lists  netip.Prefix
					src    netip.Addr
					reason bpf.DropReason
				}{a, everything(f), netip.MustParseAddr(a), spoofed})
			}
		}
		for _, tc := range tests {
			t.Run(tc.name+"/"+f.name, func(t *testing.T) {
				w.reset(t)
				w.lists(t, tc.lists)
				frame := udp(tc.src, f.other.Prev(), 1000, 53).Bytes()
				w.fromPod(t, w.podA, frame).want(t, tc.reason)
				w.fromPod(t, w.podA, frame).want(t, tc.reason)
				if tc.src != f.a && tc.src != f.b {
					w.fromPod(t, w.podB, frame).want(t, spoofed) // which lists nothing
				}
				w.a.Flags &^= bpf.EPSources
				w.publish(t, w.a, w.a.Ingress, w.a.Egress)
				if tc.src != f.a {
					w.fromPod(t, w.podA, frame).want(t, spoofed)
				}
			})
		}
		t.Run("the other family's/"+f.name, func(t *testing.T) {
			w.reset(t)
			other := v6
			if !f.a.Is4() {
				other = v4
			}
			w.lists(t, everything(other))
			w.fromPod(t, w.podA, udp(f.out, f.other, 1000, 53).Bytes()).want(t, spoofed)
		})
	}
}

// TestAFurtherSourceIsJudgedByThePodsPolicy, and its answers pass where they come back to the pod.
func TestAFurtherSourceIsJudgedByThePodsPolicy(t *testing.T) {
	w := newWorld(t, bpf.Config{NoShortcut: shortcut})
	w.eachFamily(t, "egress", func(t *testing.T, f family) {
		w.lists(t, single(f.out))
		w.publish(t, w.a, word(slotDeny, 2), word(slotDeny, 2))
		w.fromPod(t, w.podA, tcp(f.out, f.other, 1000, 80, syn).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		w.fromPod(t, w.podA, tcp(f.out, f.other, 1000, 80, ack).Bytes()).want(t, bpf.MargayDropReasonDROP_MIDFLOW)
		w.noFlow(t)
		w.publish(t, w.a, word(slotDeny, 3), word(slotAllow, 3))
		w.fromPod(t, w.podA, tcp(f.out, f.other, 1000, 80, syn).Bytes()).want(t, 0)
		w.toPod(t, w.podA, outside, tcp(f.other, f.out, 80, 1000, synack).Bytes()).want(t, 0)
		w.fromPod(t, w.podA, tcp(f.out, f.other, 1000, 80, ack).Bytes()).want(t, 0)
		w.toPod(t, w.podA, outside, tcp(f.other, f.out, 81, 1000, syn).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		// Revoked like any other.
		w.publish(t, w.a, word(slotDeny, 4), word(slotDeny, 4))
		w.fromPod(t, w.podA, tcp(f.out, f.other, 1000, 80, ack).Bytes())
		if fl := w.flow(t); fl.entry.State&uint8(bpf.MargayCtStateCT_REVOKED) == 0 {
			t.Errorf("flow %+v is not revoked", fl)
		}
	})
	w.eachFamily(t, "what was opened to it is answered", func(t *testing.T, f family) {
		w.lists(t, single(f.out))
		w.publish(t, w.a, word(slotAllow, 2), word(slotDeny, 2))
		w.toPod(t, w.podA, outside, tcp(f.other, f.out, 1000, 80, syn).Bytes()).want(t, 0)
		w.fromPod(t, w.podA, tcp(f.out, f.other, 80, 1000, synack).Bytes()).want(t, 0)
	})
	w.eachFamily(t, "to a pod of the node, by the stack", func(t *testing.T, f family) {
		w.lists(t, single(f.out))
		frame := udp(f.out, f.b, 1000, 53).Bytes()
		if r := w.fromPod(t, w.podA, frame); r.action != next {
			t.Errorf("action %d: the host's stack is to see what has a further source", r.action)
		}
		w.publish(t, w.b, word(slotDeny, 2), word(slotDeny, 2))
		w.toPod(t, w.podB, w.podA, frame).want(t, bpf.MargayDropReasonDROP_POLICY)
	})
}

// TestAFurtherSourceIsNoPartOfOthersFlows: a pod that may send from an address is not the end of the flows that others have
// with that address. Its packets are judged by its egress policy, and leave those flows as they are.
func TestAFurtherSourceIsNoPartOfOthersFlows(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "of another pod", func(t *testing.T, f family) {
		w.lists(t, single(f.out))
		w.publish(t, w.a, word(slotAllow, 2), word(slotDeny, 2))
		w.fromPod(t, w.podB, tcp(f.b, f.out, 1000, 80, syn).Bytes()).want(t, 0)
		before := w.flow(t)
		for _, flags := range []uint8{synack, ack, syn, rst} {
			w.fromPod(t, w.podA, tcp(f.out, f.b, 80, 1000, flags).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		}
		quote := tcp(f.b, f.out, 1000, 80, ack)
		w.fromPod(t, w.podA, unreachable(f.out, f.b, testutil.Quoting(quote)).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
		if after := w.flow(t); after.entry != before.entry {
			t.Errorf("flow %+v, before %+v", after.entry, before.entry)
		}
		w.publish(t, w.a, word(slotAllow, 3), word(slotAllow, 3))
		w.fromPod(t, w.podA, tcp(f.out, f.b, 80, 1000, syn).Bytes()).want(t, 0)
		if after := w.flow(t); after.entry != before.entry {
			t.Errorf("flow %+v, before %+v", after.entry, before.entry)
		}
	})
	w.eachFamily(t, "of another pod with itself", func(t *testing.T, f family) {
		// B reaches itself by an external address of a Service: judged before, and not asked about again.
		w.lists(t, single(f.out))
		w.publish(t, w.a, word(slotAllow, 2), word(slotDeny, 2))
		w.publish(t, w.b, word(slotDeny, 2), word(slotDeny, 2))
		w.toPod(t, w.podB, w.podB, tcp(f.out, f.b, 80, 1000, syn).Bytes()).want(t, 0)
		if fl := w.flow(t); !fl.flagged(bpf.MargayCtFlagsCT_SELF) {
			t.Fatalf("flow %+v", fl)
		}
		w.fromPod(t, w.podA, tcp(f.out, f.b, 80, 1000, ack).Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
	})
}

// TestAFurtherSourceIsNotThePodItself: D-16 is about the pod's own addresses. A further source may also be the address of a
// machine that policy keeps from the pod.
func TestAFurtherSourceIsNotThePodItself(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.lists(t, single(f.out))
		w.publish(t, w.a, word(slotDeny, 2), word(slotDeny, 2))
		denied := bpf.MargayDropReasonDROP_POLICY
		w.fromPod(t, w.podA, tcp(f.out, f.a, 1000, 80, syn).Bytes()).want(t, denied)
		w.toPod(t, w.podA, w.podA, tcp(f.out, f.a, 1000, 80, syn).Bytes()).want(t, denied)
		w.noFlow(t)
		w.toPod(t, w.podA, outside, tcp(f.out, f.a, 1000, 80, syn).Bytes()).want(t, denied)
		w.toPod(t, w.podA, w.podA, tcp(f.node, f.a, 1000, 80, syn).Bytes()).want(t, 0) // to itself, masqueraded
	})
}
