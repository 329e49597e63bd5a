package hostile

import (
	"fmt"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

// A conntrack helper expects a flow that another one announces, and the kernel gives it the mark of that one. It is a flow of its own for
// policy: one that may begin is judged, and one that has begun ends with the policy that allowed it.
func TestWhatAHelperExpectsIsJudged(t *testing.T) {
	s := newScene(t)
	if !testcluster.IPTables() {
		s.followed()
	}
	for _, p := range []*lab.Pod{s.m, s.b} {
		muteStack(t, p)
	}
	for _, command := range []string{"iptables-restore", "ip6tables-restore"} {
		rules := "*raw\n-A PREROUTING -p udp --dport 69 -j CT --helper tftp\nCOMMIT\n"
		if out, err := s.n1.Run(t.Context(), rules, command, "--noflush", "--wait"); err != nil {
			testutil.Missing(t, fmt.Sprintf("the kernel has no helper for TFTP: %v: %s", err, out))
		}
	}
	atB, atM := s.watch(s.b.Host), s.watch(s.m.Host)
	const denied = `{podSelector: {matchLabels: {app: m}}, policyTypes: [Ingress]}`
	s.Policy("evil/m", denied)
	s.AwaitPolicies(s.m, 1, 0)
	families(t, func(t *testing.T, v6 bool) {
		sport := map[bool]uint16{false: 1000, true: 1001}[v6]
		ask := func() {
			request := s.from(s.m, s.b, v6, testutil.UDP{SrcPort: sport, DstPort: 69})
			s.play(t, []attack{{what: "the request", from: s.m, want: true, frames: func(k token) [][]byte {
				request.Payload = append([]byte{0, 1}, k.bytes()...) // a request to read
				return [][]byte{frame(s.m, request)}
			}}}, atB)
		}
		data := func(from uint16) testutil.Packet {
			return s.from(s.b, s.m, v6, testutil.UDP{SrcPort: from, DstPort: sport})
		}
		ask()
		s.play(t, []attack{{what: "data that ingress policy denies", from: s.b, frames: bearing(s.b, data(2000), data(2000))}}, atM)
		s.Remove("policy-evil.m")
		s.AwaitPolicies(s.m, 0, 0)
		ask()
		s.play(t, []attack{{what: "data", from: s.b, want: true, frames: bearing(s.b, data(2001))}}, atM)
		s.play(t, []attack{{what: "an acknowledgement", from: s.m, want: true,
			frames: bearing(s.m, s.from(s.m, s.b, v6, testutil.UDP{SrcPort: sport, DstPort: 2001}))}}, atB)
		s.Policy("evil/m", denied)
		s.AwaitPolicies(s.m, 1, 0)
		s.play(t, []attack{{what: "data after the change", from: s.b, frames: bearing(s.b, data(2001), data(2001))}}, atM)
	})
}
