package cluster

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

const (
	hostPort    = 8080  // of what the nodes themselves serve; on n2 a pod of the host's network does
	clusterPort = 30080 // NodePort of the Service far, of external traffic policy Cluster
	localPort   = 30081 // of the Service local, of policy Local, for the same pod
)

// hostObjects are Services of the pods near, on n1, far, on n2, and host, of the network of n2.
const hostObjects = `apiVersion: v1
kind: Service
metadata: {name: near, namespace: shop}
spec:
  ipFamilyPolicy: RequireDualStack
  selector: {app: near}
  ports: [{name: tcp, port: 80, targetPort: 90}, {name: udp, port: 80, targetPort: 90, protocol: UDP}]
---
apiVersion: v1
kind: Service
metadata: {name: far, namespace: shop}
spec:
  type: NodePort
  ipFamilyPolicy: RequireDualStack
  externalIPs: [198.51.100.1, "2001:db8:ee::1"]
  selector: {app: far}
  ports:
  - {name: tcp, port: 80, targetPort: 90, nodePort: 30080}
  - {name: udp, port: 80, targetPort: 90, nodePort: 30080, protocol: UDP}
---
apiVersion: v1
kind: Service
metadata: {name: local, namespace: shop}
spec:
  type: NodePort
  externalTrafficPolicy: Local
  ipFamilyPolicy: RequireDualStack
  externalIPs: [198.51.100.2, "2001:db8:ee::2"]
  selector: {app: far}
  ports:
  - {name: tcp, port: 80, targetPort: 90, nodePort: 30081}
  - {name: udp, port: 80, targetPort: 90, nodePort: 30081, protocol: UDP}
---
apiVersion: v1
kind: Service
metadata: {name: host, namespace: shop}
spec:
  ipFamilyPolicy: RequireDualStack
  selector: {app: host}
  ports: [{name: tcp, port: 80, targetPort: 8080}, {name: udp, port: 80, targetPort: 8080, protocol: UDP}]
`

// What begins or ends at a host, and what a host hands on, is judged as docs/semantics.md says: nodes and their own pods,
// other nodes, pods of the host's network, and outside hosts by way of NodePorts and external addresses, whose source is
// kept or not; in both of kube-proxy's modes and over both families.
func TestHosts(t *testing.T) {
	c := newCluster(t, options{})
	h := newHostStage(c)
	for _, mode := range []string{"iptables", "nftables"} {
		c.setProxies(mode)
		t.Run(mode, func(t *testing.T) {
			defer c.in(t)()
			h.ready()
			h.open(t)
			for _, p := range h.phases() {
				t.Run(p.name, func(t *testing.T) { h.play(t, p) })
			}
		})
	}
}

// hostStage is the cast: two nodes, their pods, and an outside host.
type hostStage struct {
	*cluster
	out               *lab.External
	n1, n2            *lab.Host
	client, near, far *lab.Pod // the client is on n1

	toNear, toFar, toHost []netip.Addr // cluster IPs
	external              []netip.Addr // addresses of the Service far, to which outside hosts have routes by way of n1
	externalLocal         []netip.Addr // of local, by way of n2
}

func newHostStage(c *cluster) *hostStage {
	c.t.Helper()
	h := &hostStage{
		cluster: c, out: c.external("out"), n1: c.nodes[0].Host, n2: c.nodes[1].Host,
		external:      []netip.Addr{netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8:ee::1")},
		externalLocal: []netip.Addr{netip.MustParseAddr("198.51.100.2"), netip.MustParseAddr("2001:db8:ee::2")},
	}
	for i := range h.external {
		bits := h.external[i].BitLen()
		c.must(h.out.RouteVia(netip.PrefixFrom(h.external[i], bits), c.nodes[0].Node))
		c.must(h.out.RouteVia(netip.PrefixFrom(h.externalLocal[i], bits), c.nodes[1].Node))
	}
	c.namespace("shop")
	h.client, h.near, h.far = c.pod("shop", "client", "n1"), c.pod("shop", "near", "n1"), c.pod("shop", "far", "n2")
	c.podOf("shop", "host", podSpec{node: "n2", ports: []uint16{hostPort}, hostNetwork: true})
	for _, host := range []*lab.Host{h.n1, h.out.Host} {
		for _, listen := range []func(*lab.Host, uint16) (*echo.Server, error){echo.ListenTCP, echo.ListenUDP} {
			_, err := listen(host, hostPort)
			c.must(err)
		}
	}
	tellSource(c, h.near.Host, 90)
	tellSource(c, h.far.Host, 90)
	c.apply(hostObjects)
	h.toNear, h.toFar, h.toHost = h.serviceAddrs("near"), h.serviceAddrs("far"), h.serviceAddrs("host")
	return h
}

func (h *hostStage) serviceAddrs(name string) []netip.Addr {
	h.t.Helper()
	s, err := h.cluster.client.CoreV1().Services("shop").Get(h.t.Context(), name, metav1.GetOptions{})
	h.must(err)
	return clusterIPs(s)
}

// ready waits until kube-proxies translate and agents know what they do.
func (h *hostStage) ready() {
	h.t.Helper()
	h.awaitKnown()
	for _, at := range [][]netip.Addr{h.toNear, h.toFar, h.toHost} {
		h.awaitReach(h.client.Host, at, 80, true)
		h.awaitReach(h.n2, at, 80, true)
	}
	for _, n := range []*lab.Host{h.n1, h.n2} {
		h.awaitReach(h.out.Host, n.Addrs(), clusterPort, true)
	}
	h.awaitReach(h.out.Host, h.n2.Addrs(), localPort, true)
	h.settle()
}

// tellSource starts servers that answer as those of the lab do, with the client's address for their name.
func tellSource(c *cluster, host *lab.Host, port uint16) {
	c.t.Helper()
	var listener net.Listener
	c.must(host.Do(func() (err error) { listener, err = net.Listen("tcp", fmt.Sprintf(":%d", port)); return err }))
	packets, err := traffic.ListenPackets(host, port)
	c.must(err)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			from := netip.MustParseAddrPort(conn.RemoteAddr().String())
			fmt.Fprintln(conn, from.Addr().Unmap()) // who does not read it says so
			conn.Close()
		}
	})
	running.Go(func() {
		b := make([]byte, 1500)
		for {
			n, from, err := packets.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			answer := fmt.Appendf(nil, "%s\n%s", from.Addr().Unmap(), b[:n])
			_, _ = packets.WriteToUDPAddrPort(answer, from) // who does not get it says so
		}
	})
	c.t.Cleanup(func() {
		listener.Close()
		packets.Close()
		running.Wait()
	})
}

// open demands, without policy, that every way leads through, also those that policy will deny, and shows the source that
// it should.
func (h *hostStage) open(t *testing.T) {
	t.Helper()
	for _, w := range []struct {
		way
		source *lab.Host
	}{
		{way{h.client.Host, h.toFar, 80}, h.client.Host},
		{way{h.n1, h.toFar, 80}, h.n1},
		{way{h.n2, h.toFar, 80}, h.n2},
		{way{h.near.Host, h.toNear, 80}, h.n1}, // it would not take the answer from itself
		{way{h.out.Host, h.far.Addrs(), 90}, h.out.Host},
		{way{h.out.Host, h.n1.Addrs(), clusterPort}, h.n1},
		{way{h.out.Host, h.n2.Addrs(), clusterPort}, h.n2},
		{way{h.out.Host, h.external, 80}, h.n1},
		{way{h.out.Host, h.n2.Addrs(), localPort}, h.out.Host},
		{way{h.out.Host, h.externalLocal, 80}, h.out.Host},
		{way{h.client.Host, h.n1.Addrs(), clusterPort}, h.n1},
		{way{h.client.Host, h.n2.Addrs(), clusterPort}, h.n2},
		{way{h.client.Host, h.external, 80}, h.n1},
	} {
		for _, a := range w.at {
			dst, want := netip.AddrPortFrom(a, w.port), w.source.Addr(a.Is6()).String()
			for what, got := range map[string]echo.Attempt{
				"tcp": echo.DialTCP(w.from, dst, soon), "udp": echo.ExchangeUDP(w.from, dst, []byte("hello"), soon),
			} {
				if got.Server != want {
					t.Errorf("%s from %s to %s: %v (%v), from %q, want from %s", what, w.from.Name(), dst, got.Outcome, got.Err, got.Server, want)
				}
			}
		}
	}
	h.reachAt(h.out.Host, h.n1.Addrs(), localPort, false) // it has no such pod
	for _, p := range h.phases() {
		h.all(p.denied, true)
	}
}

// all tries all the ways at the same time.
func (h *hostStage) all(ways []way, want bool) {
	h.t.Helper()
	var tries sync.WaitGroup
	for _, w := range ways {
		tries.Go(func() { h.reachAt(w.from, w.at, w.port, want) })
	}
	tries.Wait()
}

// way is a way to somewhere: TCP and UDP, over both families.
type way struct {
	from *lab.Host
	at   []netip.Addr
	port uint16
}

// phase is what is allowed and denied while some policies are in force.
type phase struct {
	name            string
	policies        map[string]string // specs by name
	allowed, denied []way
}

// blocks are peers for all addresses of a host.
func blocks(h *lab.Host) string {
	var all []string
	for _, a := range h.Addrs() {
		all = append(all, fmt.Sprintf("{ipBlock: {cidr: %q}}", netip.PrefixFrom(a, a.BitLen())))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

func ingress(app, from string) string {
	return fmt.Sprintf("{podSelector: {matchLabels: {app: %s}}, policyTypes: [Ingress], ingress: [{from: %s}]}", app, from)
}

func egress(app, to string) string {
	return fmt.Sprintf("{podSelector: {matchLabels: {app: %s}}, policyTypes: [Egress], egress: [{to: %s}]}", app, to)
}

func (h *hostStage) phases() []phase {
	client, near, out := h.client.Host, h.near.Host, h.out.Host
	n1, n2 := h.n1.Addrs(), h.n2.Addrs()
	return []phase{{
		name:     "ingress from the outside host", // a source that was rewritten is judged as rewritten (§1)
		policies: map[string]string{"far": ingress("far", blocks(out))},
		allowed: []way{
			{out, h.far.Addrs(), 90}, {out, n2, localPort}, {out, h.externalLocal, 80},
			{h.n2, h.far.Addrs(), 90}, {h.n2, h.toFar, 80}, // its own node (§15)
		},
		denied: []way{
			{out, n1, clusterPort}, {out, n2, clusterPort}, {out, h.external, 80},
			{h.n1, h.far.Addrs(), 90}, {h.n1, h.toFar, 80}, {client, h.toFar, 80},
		},
	}, {
		name:     "ingress from the other node",
		policies: map[string]string{"far": ingress("far", blocks(h.n1))},
		allowed:  []way{{out, n1, clusterPort}, {out, h.external, 80}, {h.n1, h.far.Addrs(), 90}, {h.n1, h.toFar, 80}, {h.n2, h.toFar, 80}},
		denied:   []way{{out, n2, clusterPort}, {out, n2, localPort}, {out, h.externalLocal, 80}, {out, h.far.Addrs(), 90}, {client, h.toFar, 80}},
	}, {
		name:     "ingress from the own node", // which hands on what is not its own
		policies: map[string]string{"far": ingress("far", blocks(h.n2))},
		allowed:  []way{{out, n2, clusterPort}, {h.n2, h.toFar, 80}},
		denied:   []way{{out, n1, clusterPort}, {out, n2, localPort}, {h.n1, h.toFar, 80}},
	}, {
		name: "pod selectors on both sides",
		policies: map[string]string{
			"far":    ingress("far", "[{podSelector: {matchLabels: {app: client}}}]"),
			"client": egress("client", "[{podSelector: {matchLabels: {app: far}}}]"),
		},
		allowed: []way{{client, h.far.Addrs(), 90}, {client, h.toFar, 80}},
		// The last two come from n1 when they arrive.
		denied: []way{{near, h.toFar, 80}, {client, h.toNear, 80}, {client, h.external, 80}, {client, n1, clusterPort}},
	}, {
		name:     "egress to pods", // judged on the backend if this node translates (D-17)
		policies: map[string]string{"client": egress("client", "[{podSelector: {matchLabels: {app: far}}}]")},
		allowed:  []way{{client, h.toFar, 80}, {client, h.external, 80}, {client, n1, clusterPort}},
		denied: []way{
			{client, h.toNear, 80}, {client, n2, clusterPort}, {client, n1, hostPort}, {client, n2, hostPort}, {client, h.toHost, 80},
			{client, out.Addrs(), hostPort},
		},
	}, {
		name:     "egress to the other node", // with pods of its network, which no selector means (§7)
		policies: map[string]string{"client": egress("client", blocks(h.n2))},
		allowed:  []way{{client, n2, hostPort}, {client, h.toHost, 80}, {client, n2, clusterPort}},
		denied:   []way{{client, n1, hostPort}, {client, h.toFar, 80}, {client, h.external, 80}, {client, n1, clusterPort}},
	}, {
		name:     "egress to pods of the host's network by selector",
		policies: map[string]string{"client": egress("client", "[{namespaceSelector: {}}]")},
		allowed:  []way{{client, h.toFar, 80}, {client, h.toNear, 80}},
		denied:   []way{{client, h.toHost, 80}, {client, n2, hostPort}, {client, n1, hostPort}},
	}, {
		name:     "ingress from pods of the host's network by selector",
		policies: map[string]string{"near": ingress("near", "[{namespaceSelector: {}}]")},
		allowed:  []way{{client, h.toNear, 80}, {h.far.Host, near.Addrs(), 90}, {h.n1, near.Addrs(), 90}},
		denied:   []way{{h.n2, near.Addrs(), 90}, {h.n2, h.toNear, 80}, {out, near.Addrs(), 90}},
	}, {
		name:     "nothing allowed", // but what is always allowed: its own node (§15), itself (D-16)
		policies: map[string]string{"all": "{podSelector: {}, policyTypes: [Ingress, Egress]}"},
		allowed:  []way{{h.n1, near.Addrs(), 90}, {h.n1, h.toNear, 80}, {h.n2, h.toFar, 80}, {near, h.toNear, 80}},
		denied: []way{
			{h.n2, near.Addrs(), 90}, {h.n2, h.toNear, 80}, {client, h.toNear, 80}, {near, n1, hostPort}, {near, n2, hostPort},
			{out, n1, clusterPort}, {out, n2, clusterPort}, {out, n2, localPort}, {near, n1, clusterPort},
		},
	}}
}

// play puts the policies in force, and demands that all ways are as the phase says.
func (h *hostStage) play(t *testing.T, p phase) {
	defer h.in(t)()
	for name, spec := range p.policies {
		h.policy("shop", name, spec)
	}
	h.settle()
	h.all(p.allowed, true)
	if t.Failed() {
		h.evidence(slices.Concat(h.toNear, h.toFar, h.toHost), h.near.Host, h.far.Host)
	}
	h.all(p.denied, false)
	for name := range p.policies {
		h.deletePolicy("shop", name)
	}
}
