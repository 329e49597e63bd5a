package hostile

import (
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
)

// pour sends the n frames that make returns, as fast as the pod can.
func pour(t *testing.T, p *lab.Pod, n int, make func(i int) []byte) {
	t.Helper()
	pourBy(t, openSender(t, p), n, make)
}

// pourOffloaded is pour for frames behind a header of PACKET_VNET_HDR.
func pourOffloaded(t *testing.T, p *lab.Pod, n int, make func(i int) []byte) {
	t.Helper()
	sender := openSender(t, p)
	if err := sender.Offload(); err != nil {
		t.Fatal(err)
	}
	pourBy(t, sender, n, make)
}

func openSender(t *testing.T, p *lab.Pod) *traffic.FrameSender {
	t.Helper()
	sender, err := traffic.OpenFrameSender(p.Host, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	return sender
}

func pourBy(t *testing.T, sender *traffic.FrameSender, n int, make func(i int) []byte) {
	t.Helper()
	const some = 512 // what fits the queues on the way
	for from := 0; from < n; from += some {
		var frames [][]byte
		for i := from; i < min(from+some, n); i++ {
			frames = append(frames, make(i))
		}
		if err := sender.Send(frames); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAFloodLosesNoAnswerOfOthers: between an isolated pod's queries and their answers, another pod begins 200,000 flows.
// With one table of half-open flows for all pods the answers were dropped.
func TestAFloodLosesNoAnswerOfOthers(t *testing.T) {
	testcluster.NeedsBPF(t, "all pods share the kernel's table of connections")
	s := newScene(t)
	s.Policy("b", `{podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress]}`)
	s.AwaitPolicies(s.b, 1, 0)
	at := s.watch(s.b.Host)
	families(t, func(t *testing.T, v6 bool) {
		const queries = 100
		for i := range uint16(queries) {
			send(t, s.b, frame(s.b, s.from(s.b, s.ext, v6, testutil.UDP{SrcPort: 2000 + i, DstPort: 53})))
		}
		pour(t, s.m, 200_000, func(i int) []byte {
			return frame(s.m, s.from(s.m, s.ext, v6, testutil.UDP{SrcPort: uint16(i), DstPort: uint16(1000 + i>>16)}))
		})
		lost := 0
		for i := range uint16(queries) {
			k := s.tokens.next()
			answer := testutil.Packet{Src: s.ext.Addr(v6), Dst: s.b.Addr(v6), L4: testutil.UDP{SrcPort: 53, DstPort: 2000 + i}, Payload: k.bytes()}
			if err := traffic.SendRaw(s.ext.Host, answer.IP(), s.b.Addr(v6)); err != nil {
				t.Fatal(err)
			}
			if s.arrives(k, never, []*witness{at}) == nil {
				lost++
			}
		}
		if lost > 0 {
			t.Errorf("%d of %d answers are lost", lost, queries)
		}
	})
}
