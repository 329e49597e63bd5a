package pair

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/margay-project/margay/internal/policytest"
)

// The network: pods p0 to p3 on node0, p4 to p6 on node1, and Services, in both families. Everything that is not on node0
// is at the outside host. Addresses are those that internal/corpus draws policies about.

const (
	remotePods    = 3
	markNamespace = "margay-e2e"
)

var (
	nodeAddrs  = policytest.Addrs("192.168.0.1", "fd00:192::1")
	otherNode  = policytest.Addrs("192.168.0.2", "fd00:192::2")
	strangers  = policytest.Addrs("203.0.113.7", "203.0.113.6", "203.0.113.127", "203.0.113.128", "10.0.0.200", "11.0.0.1", "2001:db8::7", "2001:db8::6", "2001:db8:8000::1", "fd01::1", "fd00::ffff")
	serviceIPs = policytest.Addrs("10.96.0.10", "fd96::10")
)

func podName(i int) string      { return fmt.Sprintf("p%d", i) }
func podNamespace(i int) string { return []string{"n1", "n2"}[i%2] }

func podAddrs(i int) []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(i + 1)})}
}

// farAddrs are all addresses of the outside host.
func farAddrs() []netip.Addr {
	all := append(append([]netip.Addr(nil), otherNode...), strangers...)
	for i := range remotePods {
		all = append(all, podAddrs(localPods+i)...)
	}
	return all
}

// addrsOf are the addresses of a place, of one family.
func addrsOf(p place, v6 bool) (list []netip.Addr) {
	all := farAddrs()
	switch {
	case p == theNode:
		all = nodeAddrs
	case p != outside:
		all = podAddrs(int(p))
	}
	for _, a := range all {
		if a.Is6() == v6 {
			list = append(list, a)
		}
	}
	return list
}

// placeOf is who has the address; nowhere: nobody that sends and receives here.
func placeOf(a netip.Addr) place {
	for p := range place(places) {
		for _, own := range addrsOf(p, a.Is6()) {
			if own == a {
				return p
			}
		}
	}
	return nowhere
}

// front is a port of a Service, or a node's port of one.
type front struct {
	node       bool // at the node's address, else at the Service's
	port       uint16
	protocol   string
	to         place // index of the first address: a pod's or 203.0.113.7
	backend    uint16
	masquerade bool // the backend sees the node's address
}

var fronts = []front{
	{false, 1000, "tcp", 1, 80, false},
	{false, 1001, "udp", 1, 53, false},
	{false, 1002, "tcp", outside, 443, false},
	{false, 1003, "udp", 2, 8080, false},
	{false, 1004, "sctp", 3, 9000, false},
	{true, 30080, "tcp", 1, 80, true},
	{true, 30081, "tcp", 2, 8080, false},
	{true, 30082, "udp", 3, 53, true},
}

func family(v6 bool) int {
	if v6 {
		return 1
	}
	return 0
}

// at is the address and port that clients send to.
func (f front) at(v6 bool) netip.AddrPort {
	if f.node {
		return netip.AddrPortFrom(nodeAddrs[family(v6)], f.port)
	}
	return netip.AddrPortFrom(serviceIPs[family(v6)], f.port)
}

// leadsTo is the backend's.
func (f front) leadsTo(v6 bool) netip.AddrPort {
	return netip.AddrPortFrom(addrsOf(f.to, v6)[f.firstStranger()], f.backend)
}

// firstStranger is the index of the backend's address among those of its place: the other node's is the first of the
// outside host.
func (f front) firstStranger() int {
	if f.to == outside {
		return 1
	}
	return 0
}

// nodeRules are kube-proxy's rules for the fronts, and one that copies packets that conntrack finds invalid.
func nodeRules(v6 bool) string {
	var b strings.Builder
	b.WriteString("*nat\n")
	for _, f := range fronts {
		match := fmt.Sprintf("-A PREROUTING -d %s -p %s --dport %d", f.at(v6).Addr(), f.protocol, f.port)
		if f.masquerade {
			b.WriteString(match + " -j MARK --or-mark 0x4000\n")
		}
		if backend := f.leadsTo(v6); !f.masquerade { // a pod that reaches itself
			fmt.Fprintf(&b, "%s -s %s -j MARK --or-mark 0x4000\n", match, backend.Addr())
		}
		fmt.Fprintf(&b, "%s -j DNAT --to-destination %s\n", match, f.leadsTo(v6))
	}
	b.WriteString("-A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE\nCOMMIT\n*mangle\n")
	fmt.Fprintf(&b, "-A PREROUTING -m conntrack --ctstate INVALID -j NFLOG --nflog-group %d\nCOMMIT\n", invalidGroup)
	return b.String()
}

// objects are the manifests that stay: nodes, namespaces, the Service, and the pod that shows which policy is in force.
func objects() string {
	var b strings.Builder
	for i, addrs := range [][]netip.Addr{nodeAddrs, otherNode} {
		fmt.Fprintf(&b, "apiVersion: v1\nkind: Node\nmetadata: {name: node%d, labels: {a: x}}\nstatus: {addresses: [{type: InternalIP, address: %q}, {type: InternalIP, address: %q}]}\n---\n", i, addrs[0], addrs[1])
	}
	for i, name := range []string{"n1", "n2", markNamespace} {
		fmt.Fprintf(&b, "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {kubernetes.io/metadata.name: %s, a: %q}}\n---\n", name, name, []string{"x", "y", "z"}[i])
	}
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Service\nmetadata: {name: fronts, namespace: n1}\nspec: {clusterIP: %[1]q, clusterIPs: [%[1]q, %[2]q], ports: [{port: 1000}]}\n---\n", serviceIPs[0], serviceIPs[1])
	return b.String()
}
