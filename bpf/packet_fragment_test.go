package bpf_test

import (
	"encoding/binary"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// fragments cuts a datagram of three fragments.
func fragments(p testutil.Packet, id uint32) [][]byte {
	p.ID, p.Payload = id, make([]byte, 100)
	return p.Fragments(40)
}

// TestLaterFragmentsFollowTheFirst is D-12, in both directions.
func TestLaterFragmentsFollowTheFirst(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.policy(t, 10, rule(bpf.RuleAllow, 17, 0, 53))
	none, denied, policy := bpf.MargayDropReasonDROP_FRAG_NO_FIRST, bpf.MargayDropReasonDROP_FRAG_DENIED, bpf.MargayDropReasonDROP_POLICY
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.publish(t, w.a, word(10, 2), word(10, 2))
		hooks := map[string]struct {
			run func(frame []byte) result
			dst func(port uint16) testutil.Packet
		}{
			"from": {func(b []byte) result { return w.fromPod(t, w.podA, b) }, func(port uint16) testutil.Packet { return udp(f.a, f.out, 1000, port) }},
			"to":   {func(b []byte) result { return w.toPod(t, w.podA, outside, b) }, func(port uint16) testutil.Packet { return udp(f.out, f.a, 1000, port) }},
		}
		for name, h := range hooks {
			t.Run(name, func(t *testing.T) {
				w.forget(t)
				allowed, refused := fragments(h.dst(53), 1), fragments(h.dst(54), 2)
				h.run(allowed[1]).want(t, none)
				h.run(allowed[0]).want(t, 0)
				h.run(allowed[1]).want(t, 0)
				h.run(allowed[2]).want(t, 0)
				h.run(refused[0]).want(t, policy)
				h.run(refused[1]).want(t, denied)
				h.run(refused[2]).want(t, denied)
				// Another datagram, another protocol, and another direction have nothing to do with it.
				h.run(fragments(h.dst(53), 3)[1]).want(t, none)
				if f.a.Is4() {
					other := h.dst(53)
					other.Protocol = 47
					h.run(fragments(other, 1)[1]).want(t, none)
				}
				// What a number is used for last counts.
				h.run(fragments(h.dst(54), 1)[0]).want(t, policy)
				h.run(allowed[1]).want(t, denied)
				h.run(allowed[0]).want(t, 0)
				h.run(fragments(h.dst(54), 1)[1]).want(t, 0)
			})
		}
		t.Run("the answer is a matter of its own", func(t *testing.T) {
			w.forget(t)
			w.fromPod(t, w.podA, fragments(udp(f.a, f.out, 1000, 53), 1)[0]).want(t, 0)
			w.toPod(t, w.podA, outside, fragments(udp(f.out, f.a, 53, 1000), 1)[1]).want(t, none)
			w.toPod(t, w.podA, outside, fragments(udp(f.out, f.a, 53, 1000), 1)[0]).want(t, 0)
			w.toPod(t, w.podA, outside, fragments(udp(f.out, f.a, 53, 1000), 1)[1]).want(t, 0)
		})
		t.Run("the same datagram from the pod says nothing about it to a pod", func(t *testing.T) {
			w.forget(t)
			all := fragments(udp(f.a, f.b, 1000, 53), 1)
			w.fromPod(t, w.podA, all[0]).want(t, 0)
			w.toPod(t, w.podB, w.podA, all[1]).want(t, none)
			w.toPod(t, w.podB, w.podA, all[0]).want(t, 0)
			w.toPod(t, w.podB, w.podA, all[1]).want(t, 0)
		})
		t.Run("spoofed", func(t *testing.T) {
			w.forget(t)
			all := fragments(udp(f.b, f.out, 1000, 53), 1)
			w.fromPod(t, w.podB, all[0]).want(t, 0)
			w.fromPod(t, w.podA, all[1]).want(t, bpf.MargayDropReasonDROP_SPOOFED)
		})
		t.Run("to a Service", func(t *testing.T) {
			w.forget(t)
			for _, frame := range fragments(udp(f.a, f.service, 1000, 53), 1) {
				r := w.fromPod(t, w.podA, frame)
				r.want(t, 0)
				if r.mark != markSeen|markJudge {
					t.Errorf("mark %#x: want it judged after translation", r.mark)
				}
			}
		})
	})
}

// TestOldFirstFragmentsDoNotCount: after 30 seconds the number may be another datagram's.
func TestOldFirstFragmentsDoNotCount(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	all := fragments(udp(v4.a, v4.out, 1000, 53), 1)
	w.fromPod(t, w.podA, all[0]).want(t, 0)
	w.ageDatagram(t, 29)
	w.fromPod(t, w.podA, all[1]).want(t, 0)
	w.ageDatagram(t, 2)
	w.fromPod(t, w.podA, all[1]).want(t, bpf.MargayDropReasonDROP_FRAG_NO_FIRST)
}

// ageDatagram makes the only datagram on record so many seconds older.
func (w *world) ageDatagram(t *testing.T, seconds uint32) {
	t.Helper()
	var number uint32
	var set bpf.MargayFragSet
	it := w.Maps[bpf.MargayMapFrags].Iterate()
	for it.Next(&number, &set) && set.Turn == 0 {
	}
	if set.Turn != 1 {
		t.Fatal("the first fragment is not recorded", it.Err())
	}
	set.Of[0].Seen -= 250 * seconds / 16
	w.put(t, bpf.MargayMapFrags, number, set)
}

// TestFragmentsMadeToGetRoundPolicy: first fragments too short to be judged, later ones that would write over what was
// judged, and fragments of fragments.
func TestFragmentsMadeToGetRoundPolicy(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	bad, short := bpf.MargayDropReasonDROP_BAD_HEADER, bpf.MargayDropReasonDROP_TRUNCATED
	w.eachFamily(t, "tiny", func(t *testing.T, f family) {
		stream, echo := tcp(f.a, f.out, 1000, 80, syn), icmp(f.a, f.out, f.echo, 7)
		stream.ID, echo.ID = 1, 2
		w.fromPod(t, w.podA, stream.Fragments(8)[0]).want(t, short)
		w.fromPod(t, w.podA, stream.Fragments(16)[0]).want(t, bad)
		echo.Payload = make([]byte, 16)
		w.fromPod(t, w.podA, echo.Fragments(8)[0]).want(t, 0)
		w.noFirst(t, stream.Fragments(16)[1])
	})
	w.eachFamily(t, "over the TCP flags", func(t *testing.T, f family) {
		p := tcp(f.a, f.out, 1000, 80, ack)
		p.ID, p.Payload = 1, make([]byte, 100)
		w.fromPod(t, w.podA, p.Fragments(40)[0]).want(t, 0)
		over := p
		over.L4, over.Protocol, over.FragmentOffset = nil, 6, 8
		w.fromPod(t, w.podA, over.Bytes()).want(t, bad)
		w.fromPod(t, w.podA, p.Fragments(40)[1]).want(t, 0)
	})
	w.eachFamily(t, "beyond 64 KB", func(t *testing.T, f family) {
		p := udp(f.a, f.out, 1000, 53)
		p.ID, p.Payload = 1, make([]byte, 100)
		w.fromPod(t, w.podA, p.Fragments(40)[0]).want(t, 0)
		p.L4, p.Protocol, p.FragmentOffset = nil, 17, 65528
		w.fromPod(t, w.podA, p.Bytes()).want(t, 0) // the receiver's to refuse: it is no new datagram
	})
	t.Run("fragment in a fragment", func(t *testing.T) {
		w.reset(t)
		for _, inner := range []uint16{0, 1, 8, 9} {
			body := binary.BigEndian.AppendUint16(nil, inner)
			body = binary.BigEndian.AppendUint32(body, 5)
			for _, more := range []bool{true, false} {
				p := udp(v6.a, v6.out, 1000, 53)
				p.Extensions = []testutil.Extension{{Header: 44, Body: body}}
				p.ID, p.MoreFragments, p.Fragmented = 5, more, true
				frame := p.Bytes()
				// The builder puts its own fragment header last, so the other one is the outer one.
				if inner < 8 {
					w.fromPod(t, w.podA, frame).want(t, bad)
				}
				frame[54+2], frame[54+3], frame[62+2], frame[62+3] = frame[62+2], frame[62+3], frame[54+2], frame[54+3]
				w.fromPod(t, w.podA, frame).want(t, bad)
			}
		}
		w.noFlow(t)
	})
}

// noFirst checks that a fragment has no first one.
func (w *world) noFirst(t *testing.T, frame []byte) {
	t.Helper()
	w.fromPod(t, w.podA, frame).want(t, bpf.MargayDropReasonDROP_FRAG_NO_FIRST)
}
