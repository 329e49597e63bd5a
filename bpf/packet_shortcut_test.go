package bpf_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// across checks that a frame went straight to pod B or A: as a router would have passed it on, apart from that nothing.
func (r result) across(t *testing.T, frame []byte, mac [6]byte) {
	t.Helper()
	if r.action != redirect || len(r.drops) != 0 {
		t.Errorf("action %d, drops %v; want it redirected", r.action, r.drops)
		return
	}
	want := bytes.Clone(frame)
	copy(want[6:12], frame[:6])
	copy(want[:6], mac[:])
	if want[14]>>4 == 4 {
		want[22]--
		header := want[14 : 14+int(want[14]&15)*4]
		if sum := checksum16(r.frame[14 : 14+len(header)]); sum != 0xffff {
			t.Errorf("IP header sums up to %#x", sum)
		}
		copy(header[10:12], r.frame[24:26])
	} else {
		want[21]--
	}
	if !bytes.Equal(r.frame, want) {
		t.Errorf("frame\n%x, want\n%x", r.frame, want)
	}
}

// TestShortcut: both sides are judged at the sender, from the first packet on, and nothing is left for the other hook.
func TestShortcut(t *testing.T) {
	w := newWorld(t, bpf.Config{NoShortcut: shortcut})
	w.eachFamily(t, "tcp", func(t *testing.T, f family) {
		w.publish(t, w.a, word(slotDeny, 1), word(slotAllow, 2))
		w.publish(t, w.b, word(slotAllow, 3), word(slotDeny, 4))
		there := func(flags uint8) {
			t.Helper()
			frame := tcp(f.a, f.b, 1000, 80, flags).Bytes()
			w.fromPod(t, w.podA, frame).across(t, frame, w.b.Mac)
		}
		back := func(flags uint8) {
			t.Helper()
			frame := tcp(f.b, f.a, 80, 1000, flags).Bytes()
			w.fromPod(t, w.podB, frame).across(t, frame, w.a.Mac)
		}
		there(syn)
		back(synack)
		there(ack)
		back(ack)
		fl := w.flow(t)
		if !fl.open || !fl.flagged(bpf.MargayCtFlagsCT_SHORTCUT) || fl.entry.Egress != 2 || fl.entry.Ingress != 3 ||
			fl.entry.OpenerIf != w.podA || fl.entry.ResponderIf != w.podB {
			t.Errorf("flow %+v", fl)
		}
		there(fin)
		back(fin)
		there(syn)
	})
	w.eachFamily(t, "udp, echo and others", func(t *testing.T, f family) {
		for _, p := range []testutil.Packet{udp(f.a, f.b, 1000, 53), icmp(f.a, f.b, f.echo, 7), {Src: f.a, Dst: f.b, L4: testutil.Raw(47)}} {
			for range 2 {
				w.fromPod(t, w.podA, p.Bytes()).across(t, p.Bytes(), w.b.Mac)
			}
		}
		w.fromPod(t, w.podB, icmp(f.b, f.a, f.reply, 7).Bytes()).across(t, icmp(f.b, f.a, f.reply, 7).Bytes(), w.a.Mac)
		w.fromPod(t, w.podB, udp(f.b, f.a, 53, 1000).Bytes()).across(t, udp(f.b, f.a, 53, 1000).Bytes(), w.a.Mac)
	})
}

// TestShortcutDenials: the receiver's refusal is counted for the receiver, the sender's for the sender.
func TestShortcutDenials(t *testing.T) {
	w := newWorld(t, bpf.Config{NoShortcut: shortcut})
	allow, deny := word(slotAllow, 2), word(slotDeny, 2)
	key := func(ifindex uint32, reason bpf.DropReason, toPod uint16) bpf.DropKey {
		return bpf.DropKey{Ifindex: ifindex, Reason: uint16(reason), ToPod: toPod}
	}
	w.eachFamily(t, "", func(t *testing.T, f family) {
		frame := udp(f.a, f.b, 1000, 53).Bytes()
		expect := func(k bpf.DropKey) {
			t.Helper()
			r := w.fromPod(t, w.podA, frame)
			if c := r.drops[k]; r.action != drop || len(r.drops) != 1 || c.Packets != 1 || c.Bytes != uint64(len(frame)) {
				t.Errorf("action %d, drops %+v; want %+v", r.action, r.drops, k)
			}
		}
		w.publish(t, w.b, deny, allow)
		expect(key(w.podB, bpf.MargayDropReasonDROP_POLICY, 1))
		w.noFlow(t)
		w.publish(t, w.b, word(99, 2), allow)
		expect(key(w.podB, bpf.MargayDropReasonDROP_NO_TABLE, 1))
		w.publish(t, w.a, allow, deny)
		expect(key(w.podA, bpf.MargayDropReasonDROP_POLICY, 0))
		// Revoked by the receiver, then by the sender.
		w.publish(t, w.a, allow, allow)
		w.publish(t, w.b, allow, allow)
		w.fromPod(t, w.podA, frame).across(t, frame, w.b.Mac)
		w.publish(t, w.b, word(slotDeny, 3), allow)
		expect(key(w.podB, bpf.MargayDropReasonDROP_REVOKED, 1))
		w.forbidden(t)
		w.publish(t, w.b, allow, allow)
		w.fromPod(t, w.podA, frame).across(t, frame, w.b.Mac)
		w.publish(t, w.a, allow, word(slotDeny, 3))
		expect(key(w.podA, bpf.MargayDropReasonDROP_REVOKED, 0))
		w.forbidden(t)
	})
}

// TestARevokedShortcutFlowIsResetAcross: the RST for the receiver goes the way the packets went.
func TestARevokedShortcutFlowIsResetAcross(t *testing.T) {
	w := newWorld(t, bpf.Config{NoShortcut: shortcut})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.fromPod(t, w.podA, tcp(f.a, f.b, 1000, 80, syn).Bytes())
		w.fromPod(t, w.podB, tcp(f.b, f.a, 80, 1000, synack).Bytes())
		w.publish(t, w.b, word(slotDeny, 2), word(slotDeny, 2))
		r := w.fromPod(t, w.podA, tcp(f.a, f.b, 1000, 80, ack).Bytes())
		if r.action != redirect || r.reason() != bpf.MargayDropReasonDROP_REVOKED {
			t.Errorf("action %d, reason %s", r.action, bpf.Label(r.reason()))
		}
		if s := parseSegment(t, r.frame); s.flags != testutil.RST|testutil.ACK || s.seq != 1000 {
			t.Errorf("passed on %+v", s)
		}
		if [6]byte(r.frame[:6]) != w.b.Mac {
			t.Errorf("to %x", r.frame[:6])
		}
		if !w.flow(t).has(revoked) {
			t.Error("not revoked")
		}
	})
}

// TestWhatNeedsTheStackTakesIt: the flow stays allowed, and the other hook lets it in without asking again.
func TestWhatNeedsTheStackTakesIt(t *testing.T) {
	w := newWorld(t, bpf.Config{NoShortcut: shortcut})
	ordinary := func(t *testing.T, p testutil.Packet) {
		t.Helper()
		for range 2 {
			r := w.fromPod(t, w.podA, p.Bytes())
			r.want(t, 0)
			if r.mark != markSeen || !bytes.Equal(r.frame, p.Bytes()) {
				t.Errorf("mark %#x, frame\n%x, want it as it was\n%x", r.mark, r.frame, p.Bytes())
			}
			w.toPod(t, w.podB, w.podA, p.Bytes()).want(t, 0)
		}
	}
	w.eachFamily(t, "time to live", func(t *testing.T, f family) {
		p := udp(f.a, f.b, 1000, 53)
		p.TTL = 1
		ordinary(t, p)
		p.TTL = 2
		w.fromPod(t, w.podA, p.Bytes()).across(t, p.Bytes(), w.b.Mac)
		frame := p.Bytes()
		if f.a.Is4() {
			frame[22] = 0
		} else {
			frame[21] = 0
		}
		w.fromPod(t, w.podA, frame).want(t, 0)
	})
	w.eachFamily(t, "size", func(t *testing.T, f family) {
		p := udp(f.a, f.b, 1000, 53)
		header := len(p.IP())
		p.Payload = make([]byte, 1500-header)
		w.fromPod(t, w.podA, p.Bytes()).across(t, p.Bytes(), w.b.Mac)
		p.Payload = make([]byte, 1501-header)
		ordinary(t, p)
	})
	w.eachFamily(t, "segments of a large packet", func(t *testing.T, f family) {
		p := tcp(f.a, f.b, 1000, 80, syn)
		w.fromPod(t, w.podA, p.Bytes()).across(t, p.Bytes(), w.b.Mac)
		p = tcp(f.a, f.b, 1000, 80, ack)
		header := len(p.IP())
		p.Payload = make([]byte, 3000)
		fits := w.run(t, bpf.MargayProgFromPod, skb{Ifindex: w.podA, GsoSize: uint32(1500 - header), GsoSegs: 3}, p.Bytes())
		fits.across(t, p.Bytes(), w.b.Mac)
		w.run(t, bpf.MargayProgFromPod, skb{Ifindex: w.podA, GsoSize: uint32(1501 - header), GsoSegs: 3}, p.Bytes()).want(t, 0)
	})
	w.eachFamily(t, "fragments", func(t *testing.T, f family) {
		w.fromPod(t, w.podA, udp(f.a, f.b, 1000, 53).Bytes()).across(t, udp(f.a, f.b, 1000, 53).Bytes(), w.b.Mac)
		for _, frame := range fragments(udp(f.a, f.b, 1000, 53), 1) {
			w.fromPod(t, w.podA, frame).want(t, 0)
			w.toPod(t, w.podB, w.podA, frame).want(t, 0)
		}
	})
	w.eachFamily(t, "the peer's place unknown", func(t *testing.T, f family) {
		peer := w.b.PeerIfindex
		w.b.PeerIfindex = 0
		w.publish(t, w.b, w.b.Ingress, w.b.Egress)
		ordinary(t, udp(f.a, f.b, 1000, 53))
		w.b.PeerIfindex = peer
	})
	w.eachFamily(t, "ends of a connection that the stack knows", func(t *testing.T, f family) {
		w.toPod(t, w.podB, w.podA, tcp(f.a, f.b, 1000, 80, syn).Bytes()).want(t, 0) // the kernel has translated it
		w.fromPod(t, w.podB, tcp(f.b, f.a, 80, 1000, synack).Bytes()).want(t, 0)
		w.fromPod(t, w.podA, tcp(f.a, f.b, 1000, 80, syn).Bytes()).want(t, 0)
		other := tcp(f.a, f.b, 1001, 80, syn).Bytes()
		w.fromPod(t, w.podA, other).across(t, other, w.b.Mac)
		w.fromPod(t, w.podA, other).across(t, other, w.b.Mac)
	})
	w.eachFamily(t, "peer not ready", func(t *testing.T, f family) {
		first := udp(f.a, f.b, 1000, 53).Bytes()
		w.fromPod(t, w.podA, first).across(t, first, w.b.Mac)
		w.b.Flags = 0
		w.publish(t, w.b, w.b.Ingress, w.b.Egress)
		for _, sport := range []uint16{1000, 1001} {
			frame := udp(f.a, f.b, sport, 53).Bytes()
			w.fromPod(t, w.podA, frame).want(t, 0)
			w.toPod(t, w.podB, w.podA, frame).want(t, bpf.MargayDropReasonDROP_NO_ENDPOINT)
		}
	})
	w.eachFamily(t, "the address is another pod's now", func(t *testing.T, f family) {
		first := udp(f.a, f.b, 1000, 53).Bytes()
		w.fromPod(t, w.podA, first).across(t, first, w.b.Mac)
		own4, own6 := w.b.Addr4, w.b.Addr6
		w.b.Addr4, w.b.Addr6 = [4]byte{1}, [16]byte{1}
		w.publish(t, w.b, w.b.Ingress, w.b.Egress)
		w.fromPod(t, w.podA, first).want(t, 0)
		w.b.Addr4, w.b.Addr6 = own4, own6
	})
}

// TestTTLAndChecksum goes through all values that a header checksum can have.
func TestTTLAndChecksum(t *testing.T) {
	w := newWorld(t, bpf.Config{NoShortcut: shortcut})
	frame := udp(v4.a, v4.b, 1000, 53).Bytes()
	for _, ttl := range []byte{2, 64, 128, 255} {
		for _, high := range []int{0, 1, 0x7f, 0x80, 0xfd, 0xfe, 0xff} {
			for low := 0; low < 256; low += 5 {
				// The identification makes the checksum whatever it should be.
				want := uint16(high<<8 | low)
				frame[22] = ttl
				binary.BigEndian.PutUint16(frame[18:], 0)
				binary.BigEndian.PutUint16(frame[24:], want)
				id := ^checksum16(frame[14:34])
				binary.BigEndian.PutUint16(frame[18:], id)
				if checksum16(frame[14:34]) != 0xffff {
					t.Fatalf("the test's own packet is wrong: %x", frame)
				}
				w.fromPod(t, w.podA, frame).across(t, frame, w.b.Mac)
				if t.Failed() {
					t.Fatalf("checksum %#x, TTL %d", want, ttl)
				}
			}
		}
	}
}

// TestShortcutFlowsWithOptionsAndHeaders: what only the general parser takes goes across too.
func TestShortcutFlowsWithOptionsAndHeaders(t *testing.T) {
	w := newWorld(t, bpf.Config{NoShortcut: shortcut})
	p := udp(v4.a, v4.b, 1000, 53)
	p.Options = []byte{1, 1, 1, 1}
	w.fromPod(t, w.podA, p.Bytes()).across(t, p.Bytes(), w.b.Mac)
	p = udp(v6.a, v6.b, 1000, 53)
	p.Extensions = ext(60, 3)
	w.fromPod(t, w.podA, p.Bytes()).across(t, p.Bytes(), w.b.Mac)
}

// TestErrorsAboutShortcutFlowsGoAcross: the host stack does not know the flow, and may drop what it cannot place.
func TestErrorsAboutShortcutFlowsGoAcross(t *testing.T) {
	w := newWorld(t, bpf.Config{NoShortcut: shortcut})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		there, back := udp(f.a, f.b, 1000, 53), udp(f.b, f.a, 53, 1000)
		w.publish(t, w.a, word(slotNoICMP, 2), word(slotNoICMP, 2))
		w.publish(t, w.b, word(slotNoICMP, 2), word(slotNoICMP, 2))
		w.fromPod(t, w.podA, there.Bytes()).across(t, there.Bytes(), w.b.Mac)
		refused, late := unreachable(f.b, f.a, testutil.Quoting(there)), unreachable(f.a, f.b, testutil.Quoting(back))
		w.fromPod(t, w.podB, refused.Bytes()).across(t, refused.Bytes(), w.a.Mac)
		w.fromPod(t, w.podA, late.Bytes()).across(t, late.Bytes(), w.b.Mac)
		// A peer that must be asked again gets it at its own hook.
		w.publish(t, w.a, word(slotNoICMP, 3), word(slotNoICMP, 3))
		w.fromPod(t, w.podB, refused.Bytes()).want(t, 0)
		w.toPod(t, w.podA, w.podB, refused.Bytes()).want(t, 0)
		w.fromPod(t, w.podB, refused.Bytes()).across(t, refused.Bytes(), w.a.Mac)
		w.publish(t, w.a, word(slotDeny, 4), word(slotDeny, 4))
		w.fromPod(t, w.podB, refused.Bytes()).want(t, 0)
		w.toPod(t, w.podA, w.podB, refused.Bytes()).want(t, bpf.MargayDropReasonDROP_POLICY)
	})
}

// TestAFlowBeginsAcrossOnlyIfBothEndsCanSendSo: with one half of a connection across and the other in the stack, rules of the node about
// packets that conntrack finds invalid would drop that half.
func TestAFlowBeginsAcrossOnlyIfBothEndsCanSendSo(t *testing.T) {
	w := newWorld(t, bpf.Config{NoShortcut: shortcut})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.reset(t)
		peer := w.a.PeerIfindex
		w.a.PeerIfindex = 0
		w.publish(t, w.a, word(slotAllow, 1), word(slotAllow, 2))
		frame := tcp(f.a, f.b, 1000, 80, syn).Bytes()
		w.fromPod(t, w.podA, frame).want(t, 0)
		w.a.PeerIfindex = peer
		w.publish(t, w.a, word(slotAllow, 1), word(slotAllow, 2))
		w.fromPod(t, w.podB, tcp(f.b, f.a, 80, 1000, synack).Bytes()).want(t, 0)
		w.fromPod(t, w.podA, tcp(f.a, f.b, 1000, 80, ack).Bytes()).want(t, 0)
		if w.flow(t).flagged(bpf.MargayCtFlagsCT_SHORTCUT) {
			t.Error("the flow has the flag")
		}
		frame = tcp(f.a, f.b, 1001, 80, syn).Bytes()
		w.fromPod(t, w.podA, frame).across(t, frame, w.b.Mac)
	})
}

// TestTheShortcutEndsForFlowsThatBegin: with EndShortcut, those that take it go on to take it, in both directions.
func TestTheShortcutEndsForFlowsThatBegin(t *testing.T) {
	w := newWorld(t, bpf.Config{NoShortcut: shortcut, EndShortcut: 1})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.reset(t)
		w.publish(t, w.a, word(slotDeny, 1), word(slotAllow, 2))
		w.publish(t, w.b, word(slotAllow, 3), word(slotDeny, 4))
		e := bpf.CtEntry{Flags: uint8(bpf.MargayCtFlagsCT_SHORTCUT), State: uint8(replied | open), Egress: 2, Ingress: 3, OpenerIf: w.podA, ResponderIf: w.podB, L4: 80}
		if f.a.Is4() {
			w.put(t, bpf.MargayMapCt4, bpf.Ct4Key{A: f.a.As4(), B: f.b.As4(), Pa: 1000, Pb: 80, Proto: 6}, e)
		} else {
			w.put(t, bpf.MargayMapCt6, bpf.Ct6Key{A: f.a.As16(), B: f.b.As16(), Pa: 1000, Pb: 80, Proto: 6}, e)
		}
		there, back := tcp(f.a, f.b, 1000, 80, ack).Bytes(), tcp(f.b, f.a, 80, 1000, ack).Bytes()
		w.fromPod(t, w.podA, there).across(t, there, w.b.Mac)
		w.fromPod(t, w.podB, back).across(t, back, w.a.Mac)
		w.forget(t)
		w.fromPod(t, w.podA, tcp(f.a, f.b, 1000, 80, syn).Bytes()).want(t, 0)
		w.toPod(t, w.podB, w.podA, tcp(f.a, f.b, 1000, 80, syn).Bytes()).want(t, 0)
		w.fromPod(t, w.podB, tcp(f.b, f.a, 80, 1000, synack).Bytes()).want(t, 0)
		if w.flow(t).flagged(bpf.MargayCtFlagsCT_SHORTCUT) {
			t.Error("the flow has the flag")
		}
	})
}
