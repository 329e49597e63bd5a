package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// gateway is a pod that also has addresses that are not the network's to give, on its loopback, which its node and the host
// outside route to it. For those it asks for no neighbours: it may speak ARP and discovery for its own addresses only.
type gateway struct {
	*cluster
	pod    *lab.Pod
	peer   *lab.Pod // another of its node
	ext    *lab.External
	behind []netip.Addr // of both families
}

func newGateway(t *testing.T, flags ...string) *gateway {
	t.Helper()
	g := &gateway{cluster: newCluster(t, oneNode, flags...), behind: []netip.Addr{netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("2001:db8:113::7")}}
	n := g.Node(0)
	g.pod, g.peer, g.ext = g.Pod(n, "gateway"), g.Pod(n, "peer"), g.External("ext")
	for _, h := range []*lab.Host{g.peer.Host, g.ext.Host} {
		g.Serve(h, 80)
	}
	g.Serve(g.pod.Host, 80)
	g.announceOwn()
	for _, a := range g.behind {
		p := netip.PrefixFrom(a, a.BitLen())
		g.ip(g.pod.Host, "addr", "add", p.String(), "dev", "lo", "nodad")
		g.ip(n.Host, "route", "add", p.String(), "via", g.pod.Addr(a.Is6()).String(), "dev", g.pod.Iface(), "onlink")
		if err := g.ext.RouteVia(p, n); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

// announceOwn makes the gateway ask for neighbours by its own address only.
func (g *gateway) announceOwn() {
	g.T.Helper()
	if _, err := g.pod.Run(context.Background(), "", "sysctl", "-qw", "net.ipv4.conf.all.arp_announce=2"); err != nil {
		g.T.Fatal(err)
	}
}

func (g *gateway) ip(h *lab.Host, args ...string) {
	g.T.Helper()
	if _, err := h.Run(context.Background(), "", "ip", args...); err != nil {
		g.T.Fatal(err)
	}
}

// list writes the gateway's pod with an annotation of further sources, and waits until the agent has it.
func (g *gateway) list(prefixes ...string) {
	g.T.Helper()
	for i, p := range prefixes {
		prefixes[i] = fmt.Sprintf("%q", p)
	}
	name := strings.TrimPrefix(g.pod.Name(), "shop/")
	g.Write("pod-"+name, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: shop, labels: {app: %[1]s}, annotations: {cni.projectcalico.org/allowedSourcePrefixes: '[%[2]s]'}}
spec: {nodeName: %[3]s, containers: [{name: main}]}
status: {podIPs: [{ip: %[4]q}, {ip: %[5]q}]}
`, name, strings.Join(prefixes, ", "), g.Node(0).Name(), g.pod.Addr4(), g.pod.Addr6()))
	g.await(prefixes...)
}

func (g *gateway) await(quoted ...string) {
	g.T.Helper()
	testutil.WaitFor(g.T, soon, fmt.Sprintf("the gateway's further sources to be %v", quoted), func() bool {
		row := g.Row(g.pod)
		var have []string
		for i := 0; row != nil && i < len(row.Sources); i++ {
			have = append(have, fmt.Sprintf("%q", row.Sources[i]))
		}
		return row != nil && row.Error == "" && slices.Equal(have, quoted)
	})
}

// speaks demands that the gateway's connections from the addresses behind it stand, or do not, to the other pod and outside.
func (g *gateway) speaks(when string, want bool) {
	g.T.Helper()
	for _, to := range []*lab.Host{g.peer.Host, g.ext.Host} {
		for _, a := range g.behind {
			from, dst := netip.AddrPortFrom(a, 0), netip.AddrPortFrom(to.Addr(a.Is6()), 80)
			limit := soon
			if !want {
				limit = never
			}
			if got := echo.DialTCPFrom(g.pod.Host, from, dst, limit); (got.Outcome == echo.Connected) != want {
				g.T.Errorf("%s: TCP from %s to %s: %s, %v", when, a, to.Name(), got.Outcome, got.Err)
			}
			if got := echo.ExchangeUDPFrom(g.pod.Host, from, dst, []byte("from behind"), limit); (got.Outcome == echo.Connected) != want {
				g.T.Errorf("%s: UDP from %s to %s: %s, %v", when, a, to.Name(), got.Outcome, got.Err)
			}
		}
	}
	for _, v6 := range []bool{false, true} {
		if got := echo.DialTCP(g.pod.Host, netip.AddrPortFrom(g.ext.Addr(v6), 80), soon); got.Outcome != echo.Connected {
			g.T.Errorf("%s: from its own address: %s", when, got.Outcome)
		}
	}
}

// shown demands that `margay show flows` has the gateway's flows from the addresses behind it; with iptables by its name.
func (g *gateway) shown() {
	g.T.Helper()
	agent, name := g.Agent(0), ""
	if testcluster.IPTables() {
		name = "shop/gateway"
	}
	for _, a := range g.behind {
		from, to := netip.AddrPortFrom(a, 4100), netip.AddrPortFrom(g.ext.Addr(a.Is6()), 80)
		testutil.WaitFor(g.T, soon, "the flow from "+a.String()+" to be shown", func() bool {
			echo.ExchangeUDPFrom(g.pod.Host, from, to, []byte("x"), soon)
			out, err := g.Node(0).Run(context.Background(), "", testcluster.Build(g.T), "show", "flows", "-o", "json", "--socket", agent.Socket, "--bpffs", agent.BPFFS)
			var rows []struct{ Opener, OpenerName, Responder, Egress, Ingress string }
			if err == nil {
				err = json.Unmarshal([]byte(out), &rows)
			}
			if err != nil {
				g.T.Fatalf("margay show flows: %v\n%s", err, out)
			}
			for _, r := range rows {
				if r.Opener == from.String() && r.Responder == to.String() && r.OpenerName == name && r.Egress != "-" && r.Ingress == "-" {
					return true
				}
			}
			return false
		})
	}
}

// A pod sends from the prefixes that it lists where the setting allows that, as long as it lists them, with or without an
// agent; its egress policy binds it there as well.
func TestFurtherSources(t *testing.T) {
	g := newGateway(t, "--workload-source-spoofing", "Any")
	g.speaks("nothing is listed", false)
	g.list("203.0.113.0/24", "2001:db8:113::/48")
	g.speaks("listed", true)
	for _, a := range g.behind { // and what is opened to them arrives
		if got := echo.DialTCP(g.ext.Host, netip.AddrPortFrom(a, 80), soon); got.Outcome != echo.Connected {
			t.Errorf("from outside to %s: %s, %v", a, got.Outcome, got.Err)
		}
	}

	g.shown()

	g.Agent(0).Kill()
	g.speaks("without an agent", true)
	g.Agent(0).Start()
	g.await(`"203.0.113.0/24"`, `"2001:db8:113::/48"`)
	g.speaks("after a restart", true)

	g.Policy("gateway", `{podSelector: {matchLabels: {app: gateway}}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}, {ipBlock: {cidr: `+
		g.ext.Addr4().String()+`/32}}, {ipBlock: {cidr: `+g.ext.Addr6().String()+`/128}}], ports: [{port: 81}]}]}`)
	g.AwaitPolicies(g.pod, 0, 1)
	for _, a := range g.behind {
		if got := echo.DialTCPFrom(g.pod.Host, netip.AddrPortFrom(a, 0), netip.AddrPortFrom(g.peer.Addr(a.Is6()), 80), never); got.Outcome == echo.Connected {
			t.Errorf("egress policy does not bind what is sent from %s", a)
		}
	}
	g.Remove("policy-gateway")
	g.AwaitPolicies(g.pod, 0, 0)

	g.list("203.0.113.0/29", "2001:db8:113::/64")
	g.speaks("other prefixes around the addresses", true)
	g.list("203.0.113.0/30", "2001:db8:113:1::/64")
	g.speaks("other prefixes beside them", false)
	g.list("203.0.113.7/32", "2001:db8:113::7/128")
	g.speaks("single addresses", true)
	g.list()
	g.speaks("nothing any more", false)
}

// A live connection from a further source ends when the source is listed no more.
func TestALiveConnectionFromAFurtherSourceIsRevoked(t *testing.T) {
	g := newGateway(t, "--workload-source-spoofing", "Any")
	g.list("203.0.113.0/24", "2001:db8:113::/48")
	drops := func() uint64 { return g.Agent(0).Drops(g.pod)["spoofed"] }
	sent := func() { // a datagram of a flow that stands
		for _, a := range g.behind {
			echo.ExchangeUDPFrom(g.pod.Host, netip.AddrPortFrom(a, 4000), netip.AddrPortFrom(g.ext.Addr(a.Is6()), 80), []byte("x"), never)
		}
	}
	sent()
	before := drops()
	g.list()
	if sent(); drops() < before+2 {
		t.Errorf("%d packets are dropped as spoofed, want 2 more than %d", drops(), before)
	}
}

// Where existing connections are kept, that of a further source ends when its pod lists the source no more: another pod that lists it, and
// that the node routes it to then, does not inherit the connection.
func TestKeptFlowsOfAFurtherSourceAreNotInherited(t *testing.T) {
	g := newGateway(t, "--workload-source-spoofing", "Any", "--existing-connections", "keep")
	g.list("203.0.113.0/24", "2001:db8:113::/48")
	speaks := func(p *lab.Pod, a netip.Addr, limit time.Duration) bool {
		return echo.ExchangeUDPFrom(p.Host, netip.AddrPortFrom(a, 4000), netip.AddrPortFrom(g.ext.Addr(a.Is6()), 80), []byte("x"), limit).Outcome == echo.Connected
	}
	for _, a := range g.behind {
		testutil.WaitFor(t, soon, "the connection from "+a.String(), func() bool { return speaks(g.pod, a, soon) })
	}
	g.Policy("peer", `{podSelector: {matchLabels: {app: peer}}, policyTypes: [Ingress, Egress]}`)
	g.AwaitPolicies(g.peer, 1, 1)
	for _, a := range g.behind {
		if !speaks(g.pod, a, soon) {
			t.Errorf("the connection from %s has ended before the change", a)
		}
	}
	g.list()
	heir := *g
	heir.pod = g.peer
	heir.announceOwn()
	for _, a := range g.behind {
		p := netip.PrefixFrom(a, a.BitLen())
		g.ip(heir.pod.Host, "addr", "add", p.String(), "dev", "lo", "nodad")
		g.ip(g.Node(0).Host, "route", "replace", p.String(), "via", heir.pod.Addr(a.Is6()).String(), "dev", heir.pod.Iface(), "onlink")
	}
	heir.list("203.0.113.0/24", "2001:db8:113::/48")
	for _, a := range g.behind {
		if speaks(heir.pod, a, never) {
			t.Errorf("another pod continues the connection from %s", a)
		}
	}
}

// Without the setting the annotation means nothing, and the pod's author is shown why.
func TestFurtherSourcesAreIgnoredByDefault(t *testing.T) {
	g := newGateway(t)
	g.Write("pod-gateway", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: gateway, namespace: shop, labels: {app: gateway}, annotations: {cni.projectcalico.org/allowedSourcePrefixes: '["0.0.0.0/0"]'}}
spec: {nodeName: %s, containers: [{name: main}]}
status: {podIPs: [{ip: %q}, {ip: %q}]}
`, g.Node(0).Name(), g.pod.Addr4(), g.pod.Addr6()))
	testutil.WaitFor(t, soon, "the annotation to be reported", func() bool {
		answer, err := g.Agent(0).Ask("problems")
		return err == nil && slices.ContainsFunc(answer.Problems, func(p inspect.ProblemRow) bool {
			return strings.Contains(p.Reason, "workload-source-spoofing is Disabled")
		})
	})
	g.speaks("with the annotation", false)
}
