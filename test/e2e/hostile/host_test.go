package hostile

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
)

// D-24: a node that wants nothing from pods gets nothing from them: not by broadcast or multicast, nor in connections that
// were open before it said so. Answers to what it opened itself come through, and so does neighbour discovery.
func TestANodeThatWantsNothingGetsNothing(t *testing.T) {
	s := newScene(t, "--default-endpoint-to-host-action", "Drop")
	s.followed()
	s.hostWantsNothing(t)
}

// The same on a node whose kernel follows no connections.
func TestANodeWithoutConntrackThatWantsNothingGetsNothing(t *testing.T) {
	newScene(t, "--default-endpoint-to-host-action", "Drop").hostWantsNothing(t)
}

func (s *scene) hostWantsNothing(t *testing.T) {
	t.Helper()
	// Nodes of the lab have no segment. A packet to all machines of one is for the node, too.
	if _, err := s.n1.Run(t.Context(), "", "ip", "addr", "add", "10.77.0.1/24", "brd", "+", "dev", "eth0"); err != nil {
		t.Fatal(err)
	}
	at := s.watchLocal(s.n1)
	groups := map[bool][]string{
		false: {"255.255.255.255", "224.0.0.1", "10.77.0.255", s.n1.Addr4().String()},
		true:  {"ff02::1", s.n1.Addr6().String()},
	}
	families(t, func(t *testing.T, v6 bool) {
		sent := map[token]string{}
		for _, text := range groups[v6] {
			dst := netip.MustParseAddr(text)
			for what, l4 := range map[string]testutil.Layer4{
				"UDP": testutil.UDP{SrcPort: 1, DstPort: 5353}, "TCP": testutil.TCP{SrcPort: 1, DstPort: 80, Flags: testutil.SYN},
				"ACK": testutil.TCP{SrcPort: 1, DstPort: 80, Flags: testutil.ACK}, "SCTP": testutil.Raw(132),
			} {
				k := s.tokens.next()
				p := testutil.Packet{Src: s.m.Addr(v6), Dst: dst, L4: l4, Payload: k.bytes()}
				send(t, s.m, frame(s.m, p))
				sent[k] = what + " to " + text
			}
		}
		s.expectNone(t, sent, at)
		in := listen(t, s.a.Host, netip.AddrPortFrom(s.a.Addr(v6), 80))
		conn := dial(t, s.n1.Host, 0, netip.AddrPortFrom(s.a.Addr(v6), 80))
		pod := <-in
		for range 2 {
			if err := says(t, conn, pod, "hello", soon); err != nil {
				t.Errorf("the node to a pod: %v", err)
			}
			if err := says(t, pod, conn, "and back", soon); err != nil {
				t.Errorf("the pod's answer: %v", err)
			}
		}
		conn.Close()
		if got := traffic.Ping(s.n1.Host, s.b.Addr(v6), soon); got.Err != nil {
			t.Errorf("the node pings a pod: %v", got.Err)
		}
	})
}

// Connections that pods have opened to the node end when it wants them no more.
func TestConnectionsToTheNodeEndWithItsWish(t *testing.T) {
	s := newScene(t)
	s.followed()
	families(t, func(t *testing.T, v6 bool) {
		s.Write("felix", `apiVersion: projectcalico.org/v3
kind: FelixConfiguration
metadata: {name: default}
spec: {defaultEndpointToHostAction: Accept}
`)
		accepted := listen(t, s.n1.Host, netip.AddrPortFrom(s.n1.Addr(v6), 8000))
		var pod, node = dial(t, s.a.Host, 0, netip.AddrPortFrom(s.n1.Addr(v6), 8000)), <-accepted
		defer pod.Close()
		if err := says(t, pod, node, "hello", soon); err != nil {
			t.Fatal(err)
		}
		s.Write("felix", `apiVersion: projectcalico.org/v3
kind: FelixConfiguration
metadata: {name: default}
spec: {defaultEndpointToHostAction: Drop}
`)
		testutil.WaitFor(t, soon, "the connection to end", func() bool { return says(t, pod, node, "x", never) != nil })
		_ = says(t, node, pod, "speak", never)
		if err := says(t, pod, node, "secret", never); err == nil {
			t.Error("the node heard the pod after it had spoken itself")
		}
	})
}
