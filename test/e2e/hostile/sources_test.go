package hostile

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// lists writes the manifest of a pod that lists further sources.
func (s *scene) lists(p *lab.Pod, prefixes ...string) {
	s.T.Helper()
	namespace, name, _ := strings.Cut(p.Name(), "/")
	s.Write("pod-"+strings.TrimPrefix(namespace+"."+name, "shop."), fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, labels: {app: %s}, annotations: {cni.projectcalico.org/allowedSourcePrefixes: '["%s"]'}}
spec: {nodeName: %s, containers: [{name: main}]}
status: {podIPs: [{ip: %q}, {ip: %q}]}
`, name, namespace, name, strings.Join(prefixes, `", "`), p.Node().Name(), p.Addr4(), p.Addr6()))
	testutil.WaitFor(s.T, soon, p.Name()+" to have its further sources", func() bool {
		row := s.Row(p)
		return row != nil && row.Error == "" && len(row.Sources) == len(prefixes)
	})
}

// posing is an attack: UDP from a pod with another's source. The port is of a new flow each time.
func (s *scene) posing(what string, from *lab.Pod, src netip.Addr, to interface{ Addr(v6 bool) netip.Addr }, want bool) attack {
	p := s.from(from, to, src.Is6(), dns)
	p.Src = src
	return attack{what: fmt.Sprintf("%s, as %s", what, src), from: from, want: want, frames: bearing(from, p)}
}

// A tenant that lists every address can send from addresses outside of the cluster only: not as another pod of its node or of
// another node, not as a node, not as a Service.
func TestListedSourcesAreNobodysAddresses(t *testing.T) {
	s := newScene(t, "--workload-source-spoofing", "Any")
	services := []netip.Addr{netip.MustParseAddr("10.96.0.77"), netip.MustParseAddr("fd00:96::77")}
	s.Write("service-s", fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: s, namespace: shop}
spec: {clusterIP: %[1]q, clusterIPs: [%[1]q, %[2]q], ports: [{port: 80}]}
`, services[0], services[1]))
	for _, n := range []*lab.Node{s.n1, s.n2} {
		s.Write("node-"+n.Name(), fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s}\nstatus: {addresses: [{type: InternalIP, address: %q}, {type: InternalIP, address: %q}]}\n",
			n.Name(), n.Addr4(), n.Addr6()))
	}
	s.Policy("a", onlyFromB)
	s.Policy("c", `{podSelector: {matchLabels: {app: c}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {app: b}}}]}, {from: [{ipBlock: {cidr: 203.0.113.0/24}}]}]}`)
	s.AwaitPolicies(s.a, 1, 0)
	s.AwaitPolicies(s.c, 1, 0)
	s.lists(s.m, "0.0.0.0/0", "::/0")
	free := []netip.Addr{netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("2001:db8:113::9")}
	nowhere := s.watch(s.ext.Host)
	atA, atC := s.watch(s.a.Host), s.watch(s.c.Host)
	check := func(t *testing.T) {
		t.Helper()
		var toA, out []attack
		for i, v6 := range []bool{false, true} {
			for what, src := range map[string]netip.Addr{"a pod of the node": s.b.Addr(v6), "the victim": s.a.Addr(v6), "a pod of another node": s.e.Addr(v6),
				"the node": s.n1.Addr(v6), "another node": s.n2.Addr(v6), "a Service": services[i]} {
				toA = append(toA, s.posing(what+" to a pod", s.m, src, s.a, false))
				out = append(out, s.posing(what+" to the outside", s.m, src, s.ext, false))
			}
			toA = append(toA, s.posing("an address without an owner", s.m, free[i], s.a, false)) // policy admits b only
			out = append(out, s.posing("an address without an owner", s.m, free[i], s.ext, true), s.posing("itself", s.m, s.m.Addr(v6), s.ext, true))
		}
		s.play(t, toA, atA)
		s.play(t, out, nowhere)
		s.play(t, []attack{s.posing("an address that the policy of c admits", s.m, free[0], s.c, true), s.posing("one that it does not", s.m, free[1], s.c, false),
			s.posing("a pod that it admits", s.m, s.b.Addr4(), s.c, false)}, atC)
	}
	t.Run("at first", check)

	// A pod that comes later, on another node, and takes an address that could be listed.
	late := s.Pod(s.n2, "late")
	s.play(t, []attack{s.posing("a pod that has come", s.m, late.Addr4(), s.ext, false), s.posing("a pod that has come", s.m, late.Addr6(), s.ext, false)}, nowhere)

	s.Agent(0).Kill()
	t.Run("without an agent", check)
	s.Agent(0).Start()
	s.lists(s.m, "0.0.0.0/0", "::/0")
	t.Run("after a restart", check)
}

// A pod that may send from the address of a machine outside is not the other end of the flows that others have with that
// machine, and what it sends there past its own egress policy does not arrive.
func TestAListedSourceIsNoAnswer(t *testing.T) {
	s := newScene(t, "--workload-source-spoofing", "Any")
	s.lists(s.m, "0.0.0.0/0", "::/0")
	s.Policy("evil/m", `{podSelector: {}, policyTypes: [Egress]}`)
	s.Policy("a", `{podSelector: {matchLabels: {app: a}}, policyTypes: [Ingress]}`)
	s.AwaitPolicies(s.a, 1, 0)
	s.AwaitPolicies(s.m, 0, 1)
	s.Serve(s.ext.Host, 53)
	atA := s.watch(s.a.Host)
	families(t, func(t *testing.T, v6 bool) {
		// a has a flow with the machine; m answers in its name.
		query := netip.AddrPortFrom(s.a.Addr(v6), 5300)
		if got := echo.ExchangeUDPFrom(s.a.Host, query, netip.AddrPortFrom(s.ext.Addr(v6), 53), []byte("query"), soon); got.Outcome != echo.Connected {
			t.Fatalf("a has no answer itself: %s, %v", got.Outcome, got.Err)
		}
		answer := testutil.Packet{Src: s.ext.Addr(v6), Dst: s.a.Addr(v6), L4: testutil.UDP{SrcPort: 53, DstPort: 5300}}
		s.play(t, []attack{{what: "an answer in the machine's name", from: s.m, frames: bearing(s.m, answer)}}, atA)
		if got := echo.ExchangeUDPFrom(s.n1.Host, netip.AddrPortFrom(s.n1.Addr(v6), 5301), netip.AddrPortFrom(s.ext.Addr(v6), 53), []byte("query"), soon); got.Outcome != echo.Connected {
			t.Fatalf("the node has no answer: %s, %v", got.Outcome, got.Err)
		}
		answer.Dst, answer.L4 = s.n1.Addr(v6), testutil.UDP{SrcPort: 53, DstPort: 5301}
		before := s.Agent(0).Drops(s.m)["midflow"] + s.Agent(0).Drops(s.m)["policy"]
		s.play(t, []attack{{what: "an answer to the node", from: s.m, frames: bearing(s.m, answer)}}, s.watch(s.ext.Host))
		if now := s.Agent(0).Drops(s.m)["midflow"] + s.Agent(0).Drops(s.m)["policy"]; now == before {
			t.Error("an answer to the node in the machine's name is not dropped")
		}
	})
}

// Two pods of a node may send from one address. What one of them sends to a Service with the ends of the other's flow is judged by its own policy,
// and leaves the record of that flow alone.
func TestAListedSourceOfTwoPodsIsNoPartOfTheOthersFlow(t *testing.T) {
	testcluster.NeedsBPF(t, "it reads BPF maps")
	s := newScene(t, "--workload-source-spoofing", "Any")
	s.lists(s.m, "203.0.113.0/24", "2001:db8:113::/48")
	s.lists(s.a, "203.0.113.0/24", "2001:db8:113::/48")
	s.Policy("evil/m", `{podSelector: {}, policyTypes: [Egress]}`)
	s.AwaitPolicies(s.m, 0, 1)
	atC := s.watch(s.c.Host)
	families(t, func(t *testing.T, v6 bool) {
		shared, front := netip.MustParseAddr("203.0.113.9"), netip.AddrPortFrom(netip.MustParseAddr("10.96.0.22"), 53)
		if v6 {
			shared, front = netip.MustParseAddr("2001:db8:113::9"), netip.AddrPortFrom(netip.MustParseAddr("fd96::22"), 53)
		}
		s.service(fmt.Sprintf("shared-%t", v6), front, "udp", netip.AddrPortFrom(s.c.Addr(v6), 53))
		s.awaitTranslated(front.Addr())
		query := testutil.Packet{Src: shared, Dst: front.Addr(), L4: testutil.UDP{SrcPort: 5300, DstPort: front.Port()}}
		s.play(t, []attack{{what: "the flow of a", from: s.a, frames: bearing(s.a, query), want: true}}, atC)
		before := s.flowFrom(t, shared)
		s.play(t, []attack{{what: "the same from a pod that may send nothing", from: s.m, frames: bearing(s.m, query)}}, atC)
		after := s.flowFrom(t, shared)
		if after.Seen = before.Seen; after != before || after.Egress == 0 {
			t.Errorf("the record is\n%+v, and was\n%+v", after, before)
		}
	})
}

// flowFrom is the record of the only flow with an address.
func (s *scene) flowFrom(t *testing.T, addr netip.Addr) (entry bpf.CtEntry) {
	t.Helper()
	found := 0
	for f, err := range s.Agent(0).Maps().Flows.All() {
		if err != nil {
			t.Fatal(err)
		}
		if f.A.Addr() == addr || f.B.Addr() == addr {
			entry, found = f.Entry, found+1
		}
	}
	if found != 1 {
		t.Fatalf("%d flows with %s are on record, want one", found, addr)
	}
	return entry
}
