// Package linear writes the rules that an enforcer of the usual kind has for the same policy: a list for each policy, which a first
// packet walks. It follows the layout of Calico's iptables dataplane as its documents and its rules in a kernel show it. It is not
// Felix: none of its code runs, and the rest of its rules, for hosts for example, is left out.
package linear

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/netip"
	"strings"
)

// Rule allows one TCP port of a prefix, or of the members of a set.
type Rule struct {
	Net  netip.Prefix
	Set  string // of IP sets; empty: Net
	Port int
}

func (r Rule) match(end string) string {
	to := fmt.Sprintf("-m multiport --dports %d", r.Port)
	if r.Set != "" {
		return fmt.Sprintf("-p tcp -m set --match-set %s %s %s", r.Set, map[string]string{"s": "src", "d": "dst"}[end], to)
	}
	return fmt.Sprintf("-p tcp -%s %s %s", end, r.Net, to)
}

// Pod is one workload. Policies are those of each direction in their order; none: the direction is free.
type Pod struct {
	Iface           string
	Egress, Ingress [][]Rule
	// To and From are the last rule of each direction, for one port of TCP and UDP. The zero value: there is none.
	To, From netip.Prefix
	Port     int
}

// The bits of packet marks: a rule has allowed; a tier has nothing to say; the packet is from a workload.
const (
	accept = "0x10000/0x10000"
	passed = "0x20000/0x20000"
	either = "0x30000"
	local  = "0x40000/0x40000"
)

// text collects one table.
type text struct {
	table  string
	chains []string
	rules  strings.Builder
	n      int
}

func (t *text) chain(name string, rules ...string) {
	t.chains = append(t.chains, name)
	for _, r := range rules {
		t.add(name, r)
	}
}

// add appends a rule with a comment of 21 bytes, by which such rules are known again.
func (t *text) add(chain, rule string) {
	t.n++
	sum := sha256.Sum256(fmt.Append(nil, t.table, t.n))
	fmt.Fprintf(&t.rules, "-A %s -m comment --comment \"cali:%s\" %s\n", chain, base64.RawURLEncoding.EncodeToString(sum[:])[:16], rule)
}

func (t *text) String() string {
	var b strings.Builder
	b.WriteString("*" + t.table + "\n")
	for _, c := range t.chains {
		fmt.Fprintf(&b, ":%s - [0:0]\n", c)
	}
	return b.String() + t.rules.String() + "COMMIT\n"
}

// Rules are the node's rules as iptables-restore --noflush reads them.
func Rules(pods []Pod) string {
	raw, mangle, filter := &text{table: "raw"}, &text{table: "mangle"}, &text{table: "filter"}
	raw.chain("cali-PREROUTING",
		"-j MARK --set-xmark 0x0/0xf0000",
		"-i cali+ -j MARK --set-xmark "+local,
		"-m mark --mark "+local+" -j cali-rpf-skip",
		"-m mark --mark "+local+" -m rpfilter --validmark --invert -j DROP",
		"-m mark --mark "+accept+" -j ACCEPT")
	raw.chain("cali-rpf-skip")
	raw.add("PREROUTING", "-j cali-PREROUTING")
	mangle.chain("cali-PREROUTING", "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", "-m mark --mark "+accept+" -j ACCEPT")
	mangle.chain("cali-POSTROUTING", "-m mark --mark "+accept+" -j RETURN")
	mangle.add("PREROUTING", "-j cali-PREROUTING")
	mangle.add("POSTROUTING", "-j cali-POSTROUTING")
	forward(filter, pods)
	for _, p := range pods {
		endpoint(filter, "cali-fw-"+p.Iface, "-d", "cali-po-"+p.Iface, p.Egress, p.To, p.Port, true)
		endpoint(filter, "cali-tw-"+p.Iface, "-s", "cali-pi-"+p.Iface, p.Ingress, p.From, p.Port, false)
	}
	return raw.String() + mangle.String() + filter.String()
}

// forward leads packets to the chains of their interfaces.
func forward(t *text, pods []Pod) {
	t.chain("cali-FORWARD",
		"-j MARK --set-xmark 0x0/0xe0000",
		"-m mark --mark 0x0/0x10000 -j cali-from-hep-forward",
		"-i cali+ -j cali-from-wl-dispatch",
		"-o cali+ -j cali-to-wl-dispatch",
		"-j cali-to-hep-forward",
		"-j cali-cidr-block")
	t.chain("cali-from-hep-forward")
	t.chain("cali-to-hep-forward")
	t.chain("cali-cidr-block")
	t.chain("cali-from-wl-dispatch")
	t.chain("cali-to-wl-dispatch")
	for _, p := range pods {
		t.add("cali-from-wl-dispatch", "-i "+p.Iface+" -g cali-fw-"+p.Iface)
		t.add("cali-to-wl-dispatch", "-o "+p.Iface+" -g cali-tw-"+p.Iface)
	}
	t.add("cali-from-wl-dispatch", "-j DROP")
	t.add("cali-to-wl-dispatch", "-j DROP")
	t.chain("cali-profile", "-j MARK --set-xmark "+accept, "-m mark --mark "+accept+" -j RETURN")
	t.add("FORWARD", "-j cali-FORWARD")
	t.add("FORWARD", "-m mark --mark "+accept+" -j ACCEPT")
	t.add("FORWARD", "-j MARK --set-xmark "+accept)
}

// endpoint is the chain of one direction of a pod, with the policies as one group: after five of them it looks whether one has
// decided.
func endpoint(t *text, name, end, prefix string, policies [][]Rule, last netip.Prefix, port int, from bool) {
	t.chain(name,
		"-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
		"-m conntrack --ctstate INVALID -j DROP",
		"-j MARK --set-xmark 0x0/0x10000")
	if from {
		t.add(name, "-p udp -m multiport --dports 4789 -j DROP")
		t.add(name, "-p 4 -j DROP")
	}
	if len(policies) > 0 {
		group := strings.Replace(prefix, "cali-p", "cali-g", 1)
		t.add(name, "-j MARK --set-xmark 0x0/0x20000")
		t.add(name, "-m mark --mark 0x0/0x20000 -j "+group)
		t.add(name, "-m mark --mark "+accept+" -j RETURN")
		t.add(name, "-m mark --mark 0x0/0x20000 -j DROP")
		t.chain(group)
		for i, rules := range policies {
			one := fmt.Sprintf("%s-%d", prefix, i)
			if i > 0 && i%5 == 0 {
				t.add(group, "-m mark ! --mark 0x0/"+either+" -j RETURN")
			}
			jump := "-j " + one
			if i%5 != 0 {
				jump = "-m mark --mark 0x0/" + either + " " + jump
			}
			t.add(group, jump)
			policy(t, one, end, rules)
			if i == len(policies)-1 {
				t.last(one, end, last, port)
			}
		}
	}
	t.add(name, "-j cali-profile")
	t.add(name, "-m mark --mark "+accept+" -j RETURN")
	t.add(name, "-j DROP")
}

// allow is one rule of policy: it sets a bit, and a second rule returns if the bit is set.
func allow(t *text, chain, match string) {
	t.add(chain, match+" -j MARK --set-xmark "+accept)
	t.add(chain, "-m mark --mark "+accept+" -j RETURN")
}

// Change is a transaction that replaces the rules of one ingress policy.
func Change(p Pod, number int) string {
	t := &text{table: "filter"}
	name := fmt.Sprintf("cali-pi-%s-%d", p.Iface, number)
	policy(t, name, "-s", p.Ingress[number])
	if number == len(p.Ingress)-1 {
		t.last(name, "-s", p.From, p.Port)
	}
	return t.String()
}

// policy is the chain of one policy.
func policy(t *text, name, end string, rules []Rule) {
	t.chain(name)
	for _, r := range rules {
		allow(t, name, r.match(end[1:]))
	}
}

// last are the rules at the end of the last policy.
func (t *text) last(policy, end string, net netip.Prefix, port int) {
	if !net.IsValid() {
		return
	}
	for _, protocol := range []string{"tcp", "udp"} {
		allow(t, policy, fmt.Sprintf("-p %s %s %s -m multiport --dports %d", protocol, end, net, port))
	}
}
