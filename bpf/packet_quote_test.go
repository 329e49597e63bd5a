package bpf_test

import (
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// behind is a frame of the first n bytes of a packet's transport, a first fragment if there are more to come, with bytes behind the end of
// the packet that the kernel cuts off.
func behind(p testutil.Packet, n int, more bool, tail []byte) []byte {
	kind := uint8(testutil.ProtoICMP)
	if p.Src.Is6() {
		kind = testutil.ProtoICMPv6
	}
	whole := p.Bytes()
	header := 14 + 20
	if p.Src.Is6() {
		header = 14 + 40
	}
	p.Payload, p.L4, p.Protocol, p.MoreFragments, p.ID = whole[header:header+n], nil, kind, more, 7
	return append(p.Bytes(), tail...)
}

// TestWhatIsBehindAnErrorIsNotQuoted: the kernel cuts off what a frame has behind its packet. An error about one flow there could be one
// about another flow when it arrives: the rest of its fragments has the quote.
func TestWhatIsBehindAnErrorIsNotQuoted(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.fromPod(t, w.podA, udp(f.a, f.out, 1000, 53).Bytes()).want(t, 0)
		w.toPod(t, w.podA, outside, udp(f.out, f.a, 53, 1000).Bytes()).want(t, 0)
		sent, received := testutil.Quoting(udp(f.a, f.out, 1000, 53)), testutil.Quoting(udp(f.out, f.a, 53, 1000))
		for _, more := range []bool{false, true} {
			for n := 8; n < 8+len(sent); n += 8 {
				p := unreachable(f.a, f.out, received)
				w.fromPod(t, w.podA, behind(p, n, more, received[n-8:])).want(t, bpf.MargayDropReasonDROP_TRUNCATED)
				p = unreachable(f.out, f.a, sent)
				w.toPod(t, w.podA, outside, behind(p, n, more, sent[n-8:])).want(t, bpf.MargayDropReasonDROP_TRUNCATED)
			}
			p := unreachable(f.a, f.out, received)
			p.Payload = make([]byte, 16)
			w.fromPod(t, w.podA, behind(p, (8+len(received)+7)/8*8, more, []byte{1})).want(t, 0)
		}
	})
}
