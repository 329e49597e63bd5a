// Package hostile plays pods and tenants that mean harm: raw sockets against agents as processes. Each test is an attack
// that once worked, or one that never may.
//
// A test makes a scene, writes policies, sends packets that bear tokens, and asks witnesses where the tokens arrived:
//
//	s := newScene(t)
//	s.Policy("b", `{podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress]}`)
//	s.AwaitPolicies(s.b, 1, 0)
//	at := s.watch(s.b.Host)
//	ok := s.from(s.m, s.b, false, testutil.UDP{SrcPort: 1, DstPort: 53})
//	s.play(t, []attack{{what: "plain UDP", from: s.m, frames: bearing(s.m, ok), want: false}}, at)
package hostile

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
)

const (
	soon  = testcluster.Soon
	never = testcluster.Never
)

func TestMain(m *testing.M) { testcluster.Main(m) }

// scene is a cluster of two nodes: shop/a, shop/b and evil/m on the first, shop/c and evil/e on the second, and ext
// outside. Pods of the namespace evil have raw sockets and mean harm. Labels app are the pods' names.
type scene struct {
	*testcluster.Cluster
	n1, n2  *lab.Node
	a, b, m *lab.Pod
	c, e    *lab.Pod
	ext     *lab.External
	tokens  *tokens
}

// newScene makes the cluster; flags are those of both agents. No policy is there yet.
func newScene(t *testing.T, flags ...string) *scene {
	t.Helper()
	s := &scene{Cluster: testcluster.New(t, []string{"n1", "n2"}, flags...), tokens: newTokens()}
	s.Namespace("evil")
	s.n1, s.n2 = s.Node(0), s.Node(1)
	s.ext = s.External("ext")
	s.a, s.b, s.m = s.Pod(s.n1, "a"), s.Pod(s.n1, "b"), s.Pod(s.n1, "evil/m")
	s.c, s.e = s.Pod(s.n2, "c"), s.Pod(s.n2, "evil/e")
	return s
}

// from is a packet from a pod to another host's address of the family.
func (s *scene) from(p *lab.Pod, to interface{ Addr(v6 bool) netip.Addr }, v6 bool, l4 testutil.Layer4) testutil.Packet {
	return testutil.Packet{Src: p.Addr(v6), Dst: to.Addr(v6), L4: l4}
}

// families runs a test for IPv4 and for IPv6.
func families(t *testing.T, test func(t *testing.T, v6 bool)) {
	for _, v6 := range []bool{false, true} {
		name := "IPv4"
		if v6 {
			name = "IPv6"
		}
		t.Run(name, func(t *testing.T) { test(t, v6) })
	}
}

// service makes a Service of the namespace shop known to the agents, and translated on both nodes as kube-proxy does, of
// one protocol in lower case.
func (s *scene) service(name string, addr netip.AddrPort, protocol string, backends ...netip.AddrPort) {
	s.T.Helper()
	s.Write("service-"+name, fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s, namespace: shop}
spec: {clusterIP: %[2]q, clusterIPs: [%[2]q], ports: [{port: %[3]d, protocol: %[4]s}]}
`, name, addr.Addr(), addr.Port(), strings.ToUpper(protocol)))
	s.translate(addr, protocol, backends...)
}

// translate makes both nodes translate an address; the agents do not know of it.
func (s *scene) translate(addr netip.AddrPort, protocol string, backends ...netip.AddrPort) {
	s.T.Helper()
	testutil.RequireCommand(s.T, "iptables-restore")
	for _, n := range []*lab.Node{s.n1, s.n2} {
		if err := n.SetService(lab.Service{Addr: addr, Protocol: protocol, Backends: backends}); err != nil {
			s.T.Fatal(err)
		}
	}
}
