package hostile

import (
	"testing"

	"github.com/margay-project/margay/internal/testutil"
)

// Two pods of a node that deny each other by ingress policy exchange no datagram, although each may send to the other, and both work
// together: what one sends is no answer to a datagram that was never let in to it. The last fragment comes after the other pod has sent, so
// the datagram arrives when the latest record with these ends is that of the other pod.
func TestFragmentsAreNoAnswersToWhatWasNotLetIn(t *testing.T) {
	s := newScene(t)
	s.followed()
	s.Policy("a", `{podSelector: {matchLabels: {app: a}}, policyTypes: [Ingress]}`)
	s.Policy("evil/m", `{podSelector: {matchLabels: {app: m}}, policyTypes: [Ingress]}`)
	s.AwaitPolicies(s.a, 1, 0)
	s.AwaitPolicies(s.m, 1, 0)
	at := s.watch(s.a.Host)
	families(t, func(t *testing.T, v6 bool) {
		there := s.from(s.m, s.a, v6, testutil.UDP{SrcPort: 2000, DstPort: 1000})
		back := s.from(s.a, s.m, v6, testutil.UDP{SrcPort: 1000, DstPort: 2000})
		s.play(t, []attack{{what: "a datagram whose last fragment comes late", from: s.m, frames: func(k token) [][]byte {
			there.ID, back.ID = uint32(k), uint32(k)+1000
			mine, theirs := cut(s.m, there, 64)(k), cut(s.a, back, 64)(k)
			last := len(mine) - 1
			send(t, s.m, mine[:last]...)
			send(t, s.a, theirs[0])
			return [][]byte{mine[last]}
		}}}, at)
	})
}
