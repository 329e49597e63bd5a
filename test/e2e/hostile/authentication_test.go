package hostile

import (
	"testing"

	"github.com/margay-project/margay/internal/testutil"
)

// A policy that denies one port and allows everything else allows IPsec. What a pod sends behind an authentication header opens no
// flow to that port, which packets without the header could then be a part of.
func TestAnAuthenticationHeaderOpensNothing(t *testing.T) {
	s := newScene(t)
	s.Write("all-but-one", `apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: all-but-one, namespace: shop}
spec: {selector: app == 'b', types: [Ingress], ingress: [{action: Deny, protocol: TCP, destination: {ports: [22]}}, {action: Allow}]}
`)
	s.AwaitPolicies(s.b, 1, 0)
	at := s.watch(s.b.Host)
	denied := s.from(s.m, s.b, true, testutil.TCP{SrcPort: 1000, DstPort: 22, Flags: testutil.SYN})
	hidden, other := denied, denied
	hidden.Extensions = []testutil.Extension{{Header: 51, Body: make([]byte, 10)}}
	other.L4 = testutil.TCP{SrcPort: 1000, DstPort: 23, Flags: testutil.SYN}
	s.play(t, []attack{{what: "behind an authentication header", from: s.m, frames: bearing(s.m, hidden)}}, at)
	s.play(t, []attack{
		{what: "without it, of the same flow", from: s.m, frames: bearing(s.m, denied)},
		{what: "to another port", from: s.m, frames: bearing(s.m, other), want: true},
	}, at)
}
