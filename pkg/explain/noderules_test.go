package explain_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/explain"
)

// TestWhatTheNodeDropsBesidesPolicyIsDenied: pod shop/web is on the node n1, whose rules are known, and shop/db on n2.
func TestWhatTheNodeDropsBesidesPolicyIsDenied(t *testing.T) {
	s := state(t)
	drops := explain.NodeRules{Node: "n1", DropToHost: true, TunnelPorts: []uint16{4790}}
	accepts := explain.NodeRules{Node: "n1", AllowEncap: true, TunnelPorts: []uint16{4790}}
	for _, test := range []struct {
		rules                  explain.NodeRules
		src, dst, verdict, why string
	}{
		{drops, "shop/web", "192.168.0.1:22", explain.VerdictDeny, "host_action"},
		{drops, "shop/web", "[fd00:192::1]:22", explain.VerdictDeny, "host_action"},
		{drops, "shop/web", "192.168.0.1:30080", explain.VerdictAllow, "otherwise the node drops it"},
		{accepts, "shop/web", "192.168.0.1:30080", explain.VerdictAllow, "NodePort"},
		{drops, "shop/web", "node/n1", explain.VerdictDeny, "host_action"},
		{drops, "shop/web", "224.0.0.1:5353/udp", explain.VerdictDeny, "host_action"},
		{drops, "shop/web", "192.168.0.2:22", explain.VerdictAllow, ""},
		{drops, "shop/web", "169.254.169.254:80", explain.VerdictAllow, ""},
		{drops, "192.168.0.1", "shop/web:22", explain.VerdictAllow, ""},
		{accepts, "shop/web", "192.168.0.1:22", explain.VerdictAllow, ""},
		{drops, "shop/web", "203.0.113.1:4790/udp", explain.VerdictDeny, "encap"},
		{drops, "shop/web", "203.0.113.1/47", explain.VerdictDeny, "encap"},
		{drops, "shop/web", "203.0.113.1/udp", explain.VerdictAllow, "UDP to port 4790"},
		{drops, "shop/web", "203.0.113.1:4789/udp", explain.VerdictAllow, ""},
		{accepts, "shop/web", "203.0.113.1:4790/udp", explain.VerdictAllow, ""},
		{accepts, "shop/web", "203.0.113.1/udp", explain.VerdictAllow, ""},
		{accepts, "shop/web", "[fe80::7]:53/udp", explain.VerdictAllow, "alone on its link"},
		{drops, "shop/db", "203.0.113.1:4789/udp", explain.VerdictAllow, "unless"}, // the node of another agent
	} {
		r, err := explain.ParseRequest(test.src, test.dst)
		if err != nil {
			t.Fatal(err)
		}
		r.Rules = test.rules
		e, err := s.Explain(r)
		if err != nil {
			t.Fatal(err)
		}
		caveat := e.Caveat
		for _, p := range e.Ports {
			caveat += p.Caveat
		}
		if e.Verdict != test.verdict || !strings.Contains(caveat, test.why) || test.why == "" && e.Caveat != "" {
			t.Errorf("%s -> %s with %+v: %s, %q, want %s by %q", test.src, test.dst, test.rules, e.Verdict, caveat, test.verdict, test.why)
		}
	}
}

func TestDiscoveryOfAPodOnItsLinkAlwaysPasses(t *testing.T) {
	s := stateOf(t, shop+`
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed, namespace: shop}
spec: {podSelector: {}, policyTypes: [Ingress, Egress]}
`)
	for dst, verdict := range map[string]string{
		"fe80::1/icmpv6:135": explain.VerdictAllow, "ff02::2/icmpv6:133": explain.VerdictAllow, "ff02::16/icmpv6:143": explain.VerdictAllow,
		"fe80::1/icmpv6:128": explain.VerdictDeny, "ff05::2/icmpv6:133": explain.VerdictDeny, "fd00::2/icmpv6:135": explain.VerdictDeny,
		"ff02::1/icmpv6:134": explain.VerdictDeny,
	} {
		r, err := explain.ParseRequest("shop/web", dst)
		if err != nil {
			t.Fatal(err)
		}
		if e, err := s.Explain(r); err != nil || e.Verdict != verdict {
			t.Errorf("to %s: %v, %v, want %s", dst, e, err, verdict)
		}
	}
}

// However policy divides the ports of the node, what it allows of them the node drops.
func TestEveryPortOfTheNodeIsDropped(t *testing.T) {
	s := stateOf(t, shop+`
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: outgoing, namespace: shop}
spec:
  podSelector: {}
  policyTypes: [Egress]
  egress: [{ports: [{port: 29000, endPort: 31000}, {port: 31002, endPort: 65535}]}]
`)
	r, err := explain.ParseRequest("shop/web", "node/n1/tcp")
	if err != nil {
		t.Fatal(err)
	}
	r.Rules = explain.NodeRules{Node: "n1", DropToHost: true}
	e, err := s.Explain(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range e.Ports {
		if p.Verdict != explain.VerdictDeny || p.Egress.Verdict == explain.VerdictAllow != strings.Contains(p.Caveat, "host_action") {
			t.Errorf("ports %+v", p)
		}
	}
	if !strings.Contains(e.Caveat, "NodePort") {
		t.Errorf("of NodePorts explain says %q", e.Caveat)
	}
}

func TestOnlyItsOwnNodeDropsWhatAPodSendsToIt(t *testing.T) {
	s := state(t)
	for dst, drops := range map[string]bool{"192.168.0.1:30080": true, "192.168.0.2:30080": false} {
		r, err := explain.ParseRequest("shop/web", dst)
		if err != nil {
			t.Fatal(err)
		}
		r.Rules = explain.NodeRules{Node: "n1", DropToHost: true}
		e, err := s.Explain(r)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(e.Caveat, "NodePort") || strings.Contains(e.Caveat, "the node drops it") != drops {
			t.Errorf("%s: %s", dst, e.Caveat)
		}
	}
}

// An answer about every port says what becomes of each of them besides policy, and of the protocols of tunnels, which it does not list.
func TestAnAnswerAboutEveryPortKnowsTheNode(t *testing.T) {
	s := state(t)
	drops, accepts := explain.NodeRules{Node: "n1", TunnelPorts: []uint16{4789, 8472}}, explain.NodeRules{Node: "n1", AllowEncap: true, TunnelPorts: []uint16{4789}}
	for _, test := range []struct {
		name, src, dst, verdict string
		rules                   explain.NodeRules
		denied                  string // ports that no side denies
		caveat                  string // the start of it
	}{
		{"tunnels", "shop/web", "203.0.113.1", explain.VerdictAllow, drops, "",
			"the node drops tunnels from pods before policy (drop reason encap): protocol 4, 41, 47, and UDP to port 4789, 8472"},
		{"tunnels, of one protocol", "shop/web", "203.0.113.1/tcp", explain.VerdictAllow, drops, "", ""},
		{"tunnels of a node whose rules are not known", "shop/db", "203.0.113.1", explain.VerdictAllow, drops, "",
			"the node drops tunnels from pods before policy, unless it runs with --allow-encap-from-workloads: protocol 4, 41, 47, and UDP to port 4789, 6081, 8472"},
		{"tunnels that policy does not allow", "shop/web", "shop/db", explain.VerdictMixed, drops, "", ""},
		{"no tunnels are dropped", "shop/web", "203.0.113.1", explain.VerdictAllow, accepts, "", ""},
		{"a pod to itself", "shop/web", "shop/web", explain.VerdictAllow, drops, "", ""},
		{"from outside", "203.0.113.1", "shop/web", explain.VerdictAllow, drops, "", ""},
		{"a link-local address", "shop/web", "fe80::7", explain.VerdictAllow, accepts, "",
			"a pod is alone on its link: its node drops packets to link-local addresses that are not the node's (drop reason no_endpoint)"},
		{"another node", "shop/web", "node/n2", explain.VerdictAllow, accepts, "",
			"of a port from 30000 to 32767 that is the NodePort of a Service policy judges the backend: ask about svc/NAME"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := explain.ParseRequest(test.src, test.dst)
			if err != nil {
				t.Fatal(err)
			}
			r.Rules = test.rules
			e, err := s.Explain(r)
			if err != nil {
				t.Fatal(err)
			}
			var denied []string
			for _, p := range e.Ports {
				if p.Caveat != "" {
					denied = append(denied, fmt.Sprintf("%s %d-%d", p.Protocol, p.From, p.To))
				}
			}
			if got := strings.Join(denied, ", "); e.Verdict != test.verdict || got != test.denied || e.Caveat != test.caveat {
				t.Errorf("%s, ports dropped besides policy %q, but %q\nwant %s, %q, %q", e.Verdict, got, e.Caveat, test.verdict, test.denied, test.caveat)
			}
		})
	}
	r, err := explain.ParseRequest("203.0.113.1", "node/n1")
	if err != nil {
		t.Fatal(err)
	}
	if e, err := s.Explain(r); err == nil || !strings.Contains(err.Error(), "unless the port is the NodePort of a Service: then ask about svc/NAME") {
		t.Errorf("from outside to a node: %+v, %v", e, err)
	}
}
