package hostile

import (
	"fmt"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
)

// TestEchoRequestsOfAnotherCodeAreJudged: a policy that denies echo requests of code 0 and allows everything else allows those of other codes.
// They open no way to the ones that it denies and that have the same identifier.
func TestEchoRequestsOfAnotherCodeAreJudged(t *testing.T) {
	s := newScene(t)
	rules := ""
	for protocol, kind := range map[string]int{"ICMP": 8, "ICMPv6": 128} {
		rules += fmt.Sprintf("{action: Deny, protocol: %s, icmp: {type: %d, code: 0}}, ", protocol, kind)
	}
	s.Write("no-echo", fmt.Sprintf(`apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: no-echo, namespace: shop}
spec: {selector: app == 'b', types: [Ingress], ingress: [%s{action: Allow}]}
`, rules))
	s.AwaitPolicies(s.b, 1, 0)
	at := s.watch(s.b.Host)
	families(t, func(t *testing.T, v6 bool) {
		ping := func(code uint8) func(token) [][]byte {
			request := testutil.ICMP{Type: 8, Code: code, ID: 7}
			if v6 {
				request.Type = 128
			}
			return bearing(s.m, s.from(s.m, s.b, v6, request))
		}
		s.play(t, []attack{{what: "a request of code 1", from: s.m, frames: ping(1), want: true}}, at)
		s.play(t, []attack{{what: "a request of code 0", from: s.m, frames: ping(0)}}, at)
	})
}
