package hostile

import (
	"bytes"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

// halves are the first and the last fragment of a datagram to port 53.
func halves(from, to *lab.Host, v6 bool, id uint32) [][]byte {
	p := testutil.Packet{Src: from.Addr(v6), Dst: to.Addr(v6), ID: id, L4: testutil.UDP{SrcPort: 1000, DstPort: 53},
		Payload: bytes.Repeat([]byte("x"), 40)}
	fragments := p.Fragments(32)
	for i := range fragments {
		fragments[i] = fragments[i][14:] // from the IP header on
	}
	return fragments
}

// TestAFloodOfFirstFragmentsLosesNoDatagramOfOthers: between the first fragments of others' datagrams and the last ones, a
// pod sends 200,000 first fragments, half of them to one of the others, whose policy denies them. With one table of first
// fragments for all pods every datagram was lost.
func TestAFloodOfFirstFragmentsLosesNoDatagramOfOthers(t *testing.T) {
	s := newScene(t)
	s.Policy("a", `{podSelector: {matchLabels: {app: a}}, policyTypes: [Ingress], ingress: [{from: [{ipBlock: {cidr: `+s.ext.Addr4().String()+`/32}}, {ipBlock: {cidr: `+s.ext.Addr6().String()+`/128}}]}]}`)
	s.AwaitPolicies(s.a, 1, 0)
	const each = 50
	ways := []struct {
		what     string
		from, to *lab.Host
		send     func(packet []byte, to *lab.Host, v6 bool) error
	}{
		{"from a pod to the outside", s.a.Host, s.ext.Host, func(packet []byte, _ *lab.Host, _ bool) error { return s.a.SendIP(packet) }},
		{"from a pod to another of its node", s.a.Host, s.b.Host, func(packet []byte, _ *lab.Host, _ bool) error { return s.a.SendIP(packet) }},
		{"from the outside to a pod", s.ext.Host, s.a.Host, func(packet []byte, to *lab.Host, v6 bool) error { return s.ext.SendRaw(packet, to.Addr(v6)) }},
	}
	var servers []*lab.Server
	for _, w := range ways {
		server, err := w.to.ListenUDP(53)
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, server)
	}
	families(t, func(t *testing.T, v6 bool) {
		var before []uint64
		send := func(part int) {
			for _, w := range ways {
				for i := range uint32(each) {
					if err := w.send(halves(w.from, w.to, v6, 1000+i)[part], w.to, v6); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		for _, server := range servers {
			before = append(before, server.Received())
		}
		send(0)
		pour(t, s.m, 200_000, func(i int) []byte {
			p := s.from(s.m, []*lab.Pod{s.a, s.c}[i%2], v6, testutil.UDP{SrcPort: 1, DstPort: 53})
			p.ID, p.Payload, p.SrcMAC, p.DstMAC = uint32(i/2), make([]byte, 40), s.m.MAC(), lab.HostMAC
			return p.Fragments(32)[0]
		})
		send(1)
		for i, w := range ways {
			testutil.WaitFor(t, soon, "datagrams "+w.what, func() bool { return servers[i].Received() == before[i]+each })
		}
	})
}
