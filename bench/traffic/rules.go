//go:build linux

package traffic

import (
	"fmt"
	"net/netip"
	"strings"
)

// nets is the number of different prefixes, or sets of pods, the rules speak of.
const nets = 300

// shape is the policy of a configuration: n rules for egress of the client and as many for ingress of the server.
type shape struct {
	rules  int
	sets   bool // rules speak of pods by their labels, and not of prefixes
	oneEnd bool // the client's egress is free
}

// rule allows one TCP port of one prefix.
type rule struct {
	net    netip.Prefix
	number int // of the prefix
	port   int
}

// ruleList is n rules of which none fits the traffic that is measured; that is left to one more rule at the end.
func ruleList(n int) []rule {
	list := make([]rule, n)
	for i := range list {
		k := i % nets
		list[i] = rule{netip.PrefixFrom(netip.AddrFrom4([4]byte{20, byte(k >> 8), byte(k), 0}), 24), k, 1000 + i/nets}
	}
	return list
}

// policyRules is how many rules one NetworkPolicy gets; their names are in the order of evaluation.
const policyRules = 500

// policies are NetworkPolicies of that shape, and the pods.
func policies(of shape, client, server netip.Addr, clientNode, serverNode string) string {
	var b strings.Builder
	b.WriteString("---\napiVersion: v1\nkind: Namespace\nmetadata: {name: bench}\n")
	for _, side := range []struct{ pod, direction, peers, peer string }{
		{"client", "egress", "to", server.String()},
		{"server", "ingress", "from", client.String()},
	} {
		if of.oneEnd && side.pod == "client" {
			continue
		}
		list := ruleList(of.rules - 1)
		for i := 0; i == 0 || len(list) > 0; i++ {
			part := list[:min(policyRules, len(list))]
			list = list[len(part):]
			fmt.Fprintf(&b, `---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: %s-%03d, namespace: bench}
spec:
  podSelector: {matchLabels: {app: %s}}
  policyTypes: [%s]
  %s:
`, side.pod, i, side.pod, strings.ToUpper(side.direction[:1])+side.direction[1:], side.direction)
			for _, r := range part {
				fmt.Fprintf(&b, "  - {%s: [%s], ports: [{port: %d}]}\n", side.peers, r.peer(of.sets), r.port)
			}
			if len(list) == 0 {
				fmt.Fprintf(&b, "  - {%s: [{ipBlock: {cidr: %s/32}}], ports: [{port: %d}, {protocol: UDP, port: %[3]d}]}\n",
					side.peers, side.peer, servedPort)
			}
		}
	}
	pod(&b, "client", clientNode, "client", client)
	pod(&b, "server", serverNode, "server", server)
	for k := 0; of.sets && k < min(of.rules-1, nets); k++ {
		pod(&b, setName(k), "elsewhere", setName(k), ruleList(k + 1)[k].net.Addr().Next())
	}
	return b.String()
}

// peer is what the rule says of the other end.
func (r rule) peer(set bool) string {
	if set {
		return fmt.Sprintf("{podSelector: {matchLabels: {app: %s}}}", setName(r.number))
	}
	return fmt.Sprintf("{ipBlock: {cidr: %s}}", r.net)
}

func pod(b *strings.Builder, name, node, app string, addr netip.Addr) {
	fmt.Fprintf(b, `---
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: bench, labels: {app: %s}}
spec: {nodeName: %s, containers: [{name: main, image: bench}]}
status: {podIPs: [{ip: %s}]}
`, name, app, node, addr)
}

// handWritten is the same as an iptables-restore file of the shape that policy engines write: what is established first, then
// a chain for each side that the packet walks through, default drop. With sets every rule asks an ipset, which sets
// makes, instead of a prefix.
func handWritten(n int, clientIface, serverIface string, client, server netip.Addr, sets bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, `*filter
:FORWARD ACCEPT [0:0]
:from-client - [0:0]
:to-server - [0:0]
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -m conntrack --ctstate INVALID -j DROP
-A FORWARD -i %s -j from-client
-A FORWARD -o %s -j to-server
`, clientIface, serverIface)
	for _, side := range []struct{ chain, flag, word, peer string }{
		{"from-client", "-d", "dst", server.String()}, {"to-server", "-s", "src", client.String()},
	} {
		for i, r := range ruleList(n - 1) {
			match := side.flag + " " + r.net.String()
			if sets {
				match = fmt.Sprintf("-m set --match-set %s %s", setName(i%nets), side.word)
			}
			fmt.Fprintf(&b, "-A %s %s -p tcp -m tcp --dport %d -j RETURN\n", side.chain, match, r.port)
		}
		for _, proto := range []string{"tcp", "udp"} {
			fmt.Fprintf(&b, "-A %s %s %s -p %s -m %[4]s --dport %d -j RETURN\n", side.chain, side.flag, side.peer, proto, servedPort)
		}
		fmt.Fprintf(&b, "-A %s -j DROP\n", side.chain)
	}
	return b.String() + "COMMIT\n"
}

func setName(k int) string { return fmt.Sprintf("bench-%d", k) }

// sets is an ipset-restore file of the sets that chains asks.
func sets(n int) string {
	var b strings.Builder
	for k, r := range ruleList(min(n-1, nets)) {
		fmt.Fprintf(&b, "create %s hash:net family inet\nadd %[1]s %s\n", setName(k), r.net)
	}
	return b.String()
}
