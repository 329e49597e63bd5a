package bpf_test

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// TestEchoRequestsOfAnotherCodeAreJudged: policy is about type and code. An echo request of a code that policy allows does not open the way to
// those of others, although they have its identifier.
func TestEchoRequestsOfAnotherCodeAreJudged(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	const noPing = 10
	denied := bpf.MargayDropReasonDROP_POLICY
	w.eachFamily(t, "", func(t *testing.T, f family) {
		w.policy(t, noPing, rule(bpf.RuleDeny, f.icmp, 0, uint16(f.echo)<<8), rule(bpf.RuleAllow, 0, 0))
		w.publish(t, w.a, word(noPing, 2), word(noPing, 3))
		ping := func(src, dst netip.Addr, kind, code uint8) []byte {
			return testutil.Packet{Src: src, Dst: dst, L4: testutil.ICMP{Type: kind, Code: code, ID: 7}}.Bytes()
		}
		w.fromPod(t, w.podA, ping(f.a, f.out, f.echo, 1)).want(t, 0)
		w.fromPod(t, w.podA, ping(f.a, f.out, f.echo, 0)).want(t, denied)
		w.fromPod(t, w.podA, ping(f.a, f.out, f.echo, 1)).want(t, 0)
		w.toPod(t, w.podA, outside, ping(f.out, f.a, f.reply, 1)).want(t, 0)
		w.fromPod(t, w.podA, ping(f.a, f.out, f.echo, 0)).want(t, denied)
		w.toPod(t, w.podA, outside, ping(f.other, f.a, f.echo, 1)).want(t, 0)
		w.toPod(t, w.podA, outside, ping(f.other, f.a, f.echo, 0)).want(t, denied)
		w.fromPod(t, w.podA, ping(f.a, f.other, f.reply, 1)).want(t, 0)
	})
}
