package hostile

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
)

// A connection of a pod to its node that is denied does not come to life because the node speaks first, although neither table has it any
// more: the kernel's conntrack begins an entry with the node's packet, and that is no proof that the node has opened it. A pod has the
// kernel forget a connection by resets that the node's socket does not accept.
func TestTheNodeDoesNotOpenWhatTheKernelHasForgotten(t *testing.T) {
	s := newScene(t)
	s.followed()
	families(t, func(t *testing.T, v6 bool) {
		pod, node := s.toTheNode(t, v6)
		s.Agent(0).Kill() // or the connection is reset as soon as policy changes
		s.forgetFlows(0)
		s.Policy("a", `{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress]}`)
		s.Agent(0).Start()
		s.AwaitPolicies(s.a, 0, 1)
		s.forgetFlows(0)
		s.forgetConnections(0)
		s.heardNever(t, "by policy", pod, node)
		s.Remove("policy-a")
		s.AwaitPolicies(s.a, 0, 0)
	})
}

// Nor does it if the node takes no connections of pods.
func TestTheNodeTakesNothingThatTheKernelHasForgotten(t *testing.T) {
	s := newScene(t)
	s.followed()
	action := func(a string) {
		s.Write("felix", "apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata: {name: default}\nspec: {defaultEndpointToHostAction: "+a+"}\n")
	}
	families(t, func(t *testing.T, v6 bool) {
		action("Accept")
		listen(t, s.n1.Host, netip.AddrPortFrom(s.n1.Addr(v6), 8001))
		s.awaitDials(t, v6, true)
		pod, node := s.toTheNode(t, v6)
		s.forgetFlows(0)
		s.forgetConnections(0)
		_ = says(t, node, pod, "speak", never)
		action("Drop")
		s.awaitDials(t, v6, false)
		s.heardNever(t, "by Drop", pod, node)
	})
}

// Datagrams: what the node goes on to send in a flow that its pod has opened, and that is denied and on record no more, opens nothing.
func TestTheNodeDoesNotOpenByMoreDatagrams(t *testing.T) {
	s := newScene(t, "--timeout-udp", "2s")
	s.followed()
	families(t, func(t *testing.T, v6 bool) {
		at := netip.AddrPortFrom(s.n1.Addr(v6), 9000)
		server, err := traffic.ListenPackets(s.n1.Host, at.Port())
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		pod, err := traffic.OpenUDP(s.a.Host, at)
		if err != nil {
			t.Fatal(err)
		}
		defer pod.Close()
		var peer netip.AddrPort
		for range 3 { // both sides, so that the kernel keeps the flow
			if peer = hears(t, server, pod, "hello", soon); !peer.IsValid() {
				t.Fatal("the node does not hear the pod, which policy allows")
			}
			if _, err := server.WriteToUDPAddrPort([]byte("answer"), peer); err != nil {
				t.Fatal(err)
			}
		}
		s.Policy("a", `{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress]}`)
		s.AwaitPolicies(s.a, 0, 1)
		for end := time.Now().Add(12 * time.Second); time.Now().Before(end) && !t.Failed(); pause(100 * time.Millisecond) {
			if _, err := server.WriteToUDPAddrPort([]byte("more"), peer); err != nil {
				t.Fatal(err)
			}
			if until := time.Until(end); until > 4*time.Second && until < 11*time.Second {
				continue // the pod is silent, so that its flow expires
			}
			if hears(t, server, pod, "secret", 100*time.Millisecond).IsValid() {
				t.Errorf("the node hears the pod, whose policy denies it, %v before the end", time.Until(end))
			}
		}
		s.Remove("policy-a")
		s.AwaitPolicies(s.a, 0, 0)
	})
}

// toTheNode is a connection of a to its node, at both ends, over which a has spoken.
func (s *scene) toTheNode(t *testing.T, v6 bool) (pod, node *net.TCPConn) {
	t.Helper()
	at := netip.AddrPortFrom(s.n1.Addr(v6), 8000)
	accepted := listen(t, s.n1.Host, at)
	pod = dial(t, s.a.Host, 0, at)
	node = <-accepted
	t.Cleanup(func() { pod.Close(); node.Close() })
	if err := says(t, pod, node, "hello", soon); err != nil {
		t.Fatal(err)
	}
	return pod, node
}

// heardNever has the node speak, and checks that it does not hear the pod.
func (s *scene) heardNever(t *testing.T, why string, pod, node *net.TCPConn) {
	t.Helper()
	for i := range 3 {
		_ = says(t, node, pod, "speak", never) // to the pod it may come or not
		if err := says(t, pod, node, "secret", never); err == nil {
			t.Errorf("denied %s, line %d: the node hears the pod", why, i)
		}
	}
}

// awaitDials waits until b can connect to port 8001 of its node, or cannot.
func (s *scene) awaitDials(t *testing.T, v6, want bool) {
	t.Helper()
	testutil.WaitFor(t, soon, fmt.Sprintf("connections of pods to their node: %t", want), func() bool {
		c, err := traffic.OpenTCP(s.b.Host, netip.AddrPortFrom(s.n1.Addr(v6), 8001), never)
		if err == nil {
			c.Close()
		}
		return (err == nil) == want
	})
}

// hears returns from where a server hears what a pod says once; zero: it does not within the limit.
func hears(t *testing.T, server *net.UDPConn, pod net.Conn, what string, limit time.Duration) netip.AddrPort {
	t.Helper()
	if _, err := pod.Write([]byte(what)); err != nil {
		t.Logf("the pod sends %q: %v", what, err) // an error of the network about an earlier datagram
	}
	if err := server.SetReadDeadline(time.Now().Add(limit)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 64)
	for {
		n, from, err := server.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return netip.AddrPort{}
		}
		if string(buffer[:n]) == what {
			return from
		}
	}
}
