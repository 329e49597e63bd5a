package hostile

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
)

// attack is some packets of one pod that bear one token, and whether it may arrive.
type attack struct {
	what   string
	from   *lab.Pod
	frames func(k token) [][]byte // Ethernet frames; see packet and raw
	want   bool                   // some of it has to arrive; otherwise none of it may
}

// frame is the Ethernet frame of a packet from a pod to its node.
func frame(p *lab.Pod, packet testutil.Packet) []byte {
	packet.SrcMAC, packet.DstMAC = p.MAC(), lab.HostMAC
	return packet.Bytes()
}

// bearing makes the frames of packets whose payload begins with the token.
func bearing(from *lab.Pod, packets ...testutil.Packet) func(token) [][]byte {
	return func(k token) (frames [][]byte) {
		for _, p := range packets {
			p.Payload = append(k.bytes(), p.Payload...)
			frames = append(frames, frame(from, p))
		}
		return frames
	}
}

// cut makes the frames of fragments, of so many bytes of transport each. The payload repeats the token, so that each
// fragment of 32 bytes or more bears it.
func cut(from *lab.Pod, p testutil.Packet, size int) func(token) [][]byte {
	return func(k token) [][]byte {
		p.SrcMAC, p.DstMAC = from.MAC(), lab.HostMAC
		p.Payload = bytes.Repeat(k.bytes(), 8)
		return p.Fragments(size)
	}
}

// tagged is a frame with VLAN tags, the outermost first.
func tagged(frame []byte, tags ...uint32) []byte {
	out := bytes.Clone(frame[:12])
	for _, tag := range tags { // EtherType and TCI
		out = binary.BigEndian.AppendUint32(out, tag)
	}
	return append(out, frame[12:]...)
}

// send sends the frames of a pod, in order.
func send(t *testing.T, p *lab.Pod, frames ...[]byte) {
	t.Helper()
	for _, f := range frames {
		if err := traffic.SendFrame(p.Host, "eth0", f); err != nil {
			t.Fatal(err)
		}
	}
}

// play sends all attacks, and demands of each that some of the witnesses sees it, or none does. What may not arrive has a
// moment to, after everything has been sent and what has to arrive has.
func (s *scene) play(t *testing.T, attacks []attack, at ...*witness) {
	t.Helper()
	bears := make([]token, len(attacks))
	for i, a := range attacks {
		bears[i] = s.tokens.next()
		send(t, a.from, a.frames(bears[i])...)
	}
	for i, a := range attacks {
		if a.want && s.arrives(bears[i], soon, at) == nil {
			t.Errorf("%s: did not arrive", a.what)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), never)
	defer cancel()
	for i, a := range attacks {
		if a.want {
			continue
		}
		if w := s.tokens.await(ctx, bears[i], at); w != nil {
			t.Errorf("%s: arrived at %s: %x", a.what, w.name, w.saw(bears[i]))
		}
	}
}

// arrives waits so long for a token, and returns the witness that sees it; nil: none does.
func (s *scene) arrives(k token, limit time.Duration, at []*witness) *witness {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return s.tokens.await(ctx, k, at)
}

// disguised are packets with the transport that policy denies, as they are sent by those who hope that it is not found.
func (s *scene) disguised(from *lab.Pod, to *lab.Host, v6 bool, l4 testutil.Layer4) []attack {
	plain := s.from(from, to, v6, l4)
	one := func(what string, change func(*testutil.Packet)) attack {
		p := plain
		change(&p)
		return attack{what: what, from: from, frames: bearing(from, p)}
	}
	tag := func(what string, tags ...uint32) attack {
		return attack{what: what, from: from, frames: func(k token) [][]byte {
			return [][]byte{tagged(bearing(from, plain)(k)[0], tags...)}
		}}
	}
	list := []attack{
		one("as it is", func(*testutil.Packet) {}),
		{what: "in fragments", from: from, frames: cut(from, plain, 48)},
		tag("with a VLAN tag", 0x8100_0005),
		tag("with a VLAN tag of priority only", 0x8100_2000),
		tag("with two VLAN tags", 0x88a8_0005, 0x8100_0006),
	}
	if !v6 {
		return append(list,
			one("with a record route option", func(p *testutil.Packet) { p.Options = []byte{7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0} }),
			one("with options of padding", func(p *testutil.Packet) { p.Options = bytes.Repeat([]byte{1}, 40) }),
		)
	}
	ext := func(what string, headers ...testutil.Extension) attack {
		return one(what, func(p *testutil.Packet) { p.Extensions = headers })
	}
	padded := testutil.Extension{Header: unix.IPPROTO_DSTOPTS, Body: []byte{1, 4, 0, 0, 0, 0}}
	segments := append([]byte{0, 1, 0, 0, 0, 0}, to.Addr6().AsSlice()...)
	return append(list,
		ext("behind destination options", padded),
		ext("behind hop-by-hop options", testutil.Extension{Header: unix.IPPROTO_HOPOPTS, Body: padded.Body}),
		ext("behind seven headers", padded, padded, padded, padded, padded, padded, padded),
		ext("behind a routing header with segments left", testutil.Extension{Header: unix.IPPROTO_ROUTING, Body: segments}),
		one("in an atomic fragment", func(p *testutil.Packet) { p.Fragmented = true }),
		one("in nested fragments", func(p *testutil.Packet) {
			p.Fragmented, p.Extensions = true, []testutil.Extension{{Header: testutil.ProtoFragment, Body: make([]byte, 6)}}
		}),
	)
}
