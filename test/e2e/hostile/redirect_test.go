package hostile

import (
	"context"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
)

// What a node says of neighbours to a pod is no question that the pod may answer. The fuzzer found it: a node redirects a
// pod that sends to itself, and then the pod's own redirects reached the node past its egress policy.
func TestRedirectsOpenNothing(t *testing.T) {
	s := newScene(t)
	s.Policy("evil/m", `{podSelector: {matchLabels: {app: m}}, policyTypes: [Egress]}`)
	s.AwaitPolicies(s.m, 0, 1)
	at := s.watchLocal(s.n1)
	seen := s.Capture(s.m)
	gateway := netip.MustParseAddr("fe80::ecee:eeff:feee:eeee")
	redirect := testutil.ICMP{Type: 137, Quote: append(s.ext.Addr6().AsSlice(), s.m.Addr6().AsSlice()...)}
	toItself := s.from(s.m, s.m, true, testutil.UDP{SrcPort: 1, DstPort: 2})
	send(t, s.m, frame(s.m, toItself))
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	if _, err := seen.Wait(ctx, func(f []byte) bool {
		return len(f) > 54 && f[12] == 0x86 && f[20] == testutil.ProtoICMPv6 && f[54] == 137
	}); err != nil {
		t.Fatalf("the node does not redirect the pod, so nothing is proven: %v", err)
	}
	s.play(t, []attack{{
		what: "a redirect of the pod", from: s.m,
		frames: bearing(s.m, testutil.Packet{Src: s.m.Addr6(), Dst: gateway, TTL: 255, L4: redirect}),
	}}, at)
}
