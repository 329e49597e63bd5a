package hostile

import (
	"bytes"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

// Fragments that a pod without egress sends in the name of another one become no part of a datagram of that one. With iptables they do: the
// kernel puts datagrams together before any rule sees who has sent which part (docs/security.md).
func TestFragmentsOfTwoPodsAreNoDatagram(t *testing.T) {
	s := newScene(t)
	s.followed()
	s.Policy("evil/m", `{podSelector: {matchLabels: {app: m}}, policyTypes: [Egress]}`)
	s.AwaitPolicies(s.m, 0, 1)
	at := s.watch(s.ext.Host)
	families(t, func(t *testing.T, v6 bool) {
		for _, sender := range []*lab.Pod{s.b, s.m} {
			p := s.from(s.b, s.ext, v6, testutil.UDP{SrcPort: 1000, DstPort: 53})
			of := func(from *lab.Pod, k token, i int) []byte {
				p.SrcMAC, p.DstMAC, p.ID = from.MAC(), lab.HostMAC, uint32(k)
				p.Payload = bytes.Join([][]byte{make([]byte, 392), k.bytes(), make([]byte, 500)}, nil)
				return p.Fragments(400)[i]
			}
			s.play(t, []attack{{what: "the middle from " + sender.Name(), from: s.b, want: sender == s.b || testcluster.IPTables(), frames: func(k token) [][]byte {
				send(t, s.b, of(s.b, k, 0))
				send(t, sender, of(sender, k, 1))
				return [][]byte{of(s.b, k, 2)}
			}}}, at)
		}
	})
}
