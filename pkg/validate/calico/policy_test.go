package calico_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// Selectors that many tests see.
const (
	inShop  = `projectcalico.org/namespace == "shop"`
	inAny   = `has(projectcalico.org/namespace)`
	isKnown = selector.OfKnownNamespace
	account = `projectcalico.org/serviceaccount`
)

// Types, tier, order and what a policy applies to (semantics §2 to §4, §8).
func TestWhatAPolicyAppliesTo(t *testing.T) {
	for name, tt := range map[string]struct{ kind, spec, want string }{
		"nothing said":          {"NetworkPolicy", "", "tier default order last types [Ingress]: " + inShop + "\n"},
		"nothing said, global":  {"GlobalNetworkPolicy", "", "tier default order last types [Ingress]: all()\n"},
		"ingress rules":         {"NetworkPolicy", "ingress: [{action: Deny}]", "tier default order last types [Ingress]: " + inShop + "\nin[0] Deny\n"},
		"egress rules":          {"NetworkPolicy", "egress: [{action: Deny}]", "tier default order last types [Egress]: " + inShop + "\nout[0] Deny\n"},
		"both":                  {"NetworkPolicy", "ingress: [{action: Log}], egress: [{action: Pass}]", "tier default order last types [Ingress Egress]: " + inShop + "\nin[0] Log\nout[0] Pass\n"},
		"types and no rules":    {"NetworkPolicy", "types: [Egress]", "tier default order last types [Egress]: " + inShop + "\n"},
		"no types in the list":  {"NetworkPolicy", "types: [], egress: [{action: Deny}]", "tier default order last types [Egress]: " + inShop + "\nout[0] Deny\n"},
		"tier and order":        {"GlobalNetworkPolicy", "tier: sec, order: -1.5", "tier sec order -1.5 types [Ingress]: all()\n"},
		"order 0":               {"GlobalNetworkPolicy", "order: 0", "tier default order 0 types [Ingress]: all()\n"},
		"selector":              {"NetworkPolicy", "selector: 'app == \"db\" || b in {\"x\",\"y\"}'", "tier default order last types [Ingress]: " + inShop + ` && (app == "db" || b in {"x", "y"})` + "\n"},
		"spaces for a selector": {"NetworkPolicy", "selector: '  '", "tier default order last types [Ingress]: " + inShop + "\n"},
		"service accounts":      {"NetworkPolicy", "serviceAccountSelector: 'role == \"web\"'", "tier default order last types [Ingress]: " + inShop + ` && pcsa.role == "web"` + "\n"},
		"all service accounts":  {"GlobalNetworkPolicy", "serviceAccountSelector: all()", "tier default order last types [Ingress]: has(" + account + ")\n"},
		"namespaces":            {"GlobalNetworkPolicy", "selector: has(a), namespaceSelector: 'env != \"dev\"'", `tier default order last types [Ingress]: has(a) && pcns.env != "dev"` + "\n"},
		"all namespaces":        {"GlobalNetworkPolicy", "namespaceSelector: all()", "tier default order last types [Ingress]: " + inAny + "\n"},
		"no namespace":          {"GlobalNetworkPolicy", "namespaceSelector: '!all()'", "tier default order last types [Ingress]: !" + inAny + "\n"},
		"all() in a value":      {"GlobalNetworkPolicy", "namespaceSelector: 'a == \"all()\"'", `tier default order last types [Ingress]: pcns.a == "all()"` + "\n"},
		"global() in a value":   {"NetworkPolicy", "selector: 'a == \"global()\"'", "tier default order last types [Ingress]: " + inShop + ` && a == "global()"` + "\n"},
		"hints change nothing":  {"NetworkPolicy", "performanceHints: [AssumeNeededOnEveryNode]", "tier default order last types [Ingress]: " + inShop + "\n"},
		"applyOnForward":        {"GlobalNetworkPolicy", "applyOnForward: true", "tier default order last types [Ingress]: all()\n"},
		"staged":                {"StagedNetworkPolicy", "tier: sec, order: 1", "tier sec order 1 types [Ingress]: " + inShop + " staged Set\n"},
		"staged, learnt":        {"StagedGlobalNetworkPolicy", "stagedAction: Learn, egress: [{action: Deny}]", "tier default order last types [Egress]: all() staged Learn\nout[0] Deny\n"},
		"staged, ignored":       {"StagedGlobalNetworkPolicy", "stagedAction: Ignore, namespaceSelector: all()", "tier default order last types [Ingress]: " + inAny + " staged Ignore\n"},
		"staged deletion":       {"StagedNetworkPolicy", "stagedAction: Delete, tier: sec, types: [Ingress]", "tier default order last types []: " + inShop + " staged Delete\n"},
		"global deletion":       {"StagedGlobalNetworkPolicy", "stagedAction: Delete", "tier default order last types []: all() staged Delete\n"},
		"kubernetes deletion":   {"StagedKubernetesNetworkPolicy", "stagedAction: Delete", "tier default order last types []: " + inShop + " staged Delete\n"},
		"staged Kubernetes": {"StagedKubernetesNetworkPolicy", "podSelector: {matchLabels: {a: b}}, egress: [{ports: [{port: 80}]}], policyTypes: [Egress]",
			`tier default order 1000 types [Egress]: projectcalico.org/orchestrator == "k8s" && ` + inShop + ` && a == "b" staged Set` + "\nout[0] Allow tcp to ports [{80 80}][]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, group := range []string{"projectcalico.org/v3", "crd.projectcalico.org/v1"} {
				metadata := "name: a, namespace: shop"
				if tt.kind == "GlobalNetworkPolicy" || tt.kind == "StagedGlobalNetworkPolicy" {
					metadata = "name: a"
				}
				if diff := cmp.Diff(tt.want, policyText(policyOf(t, parse(t, group+" "+tt.kind, metadata, tt.spec)))); diff != "" {
					t.Errorf("%s (-want +got):\n%s", group, diff)
				}
			}
		})
	}
}

// Fields of rules (semantics §7).
func TestRules(t *testing.T) {
	for name, tt := range map[string]struct{ rule, want string }{
		"anything":              {"action: Allow", "Allow"},
		"protocol":              {"action: Allow, protocol: TCP", "Allow tcp"},
		"in any case":           {"action: Allow, protocol: udplite, notProtocol: IcmPv6", "Allow udplite !icmpv6"},
		"by number":             {"action: Allow, protocol: 47, notProtocol: 255", "Allow 47 !255"},
		"number in quotes":      {"action: Allow, protocol: '6'", "Allow tcp"},
		"version":               {"action: Deny, ipVersion: 6", "Deny IPv6"},
		"icmp":                  {"action: Allow, protocol: ICMP, icmp: {type: 8, code: 0}", "Allow icmp icmp 8/0"},
		"icmp type alone":       {"action: Allow, protocol: 58, icmp: {type: 254}", "Allow icmpv6 icmp 254"},
		"icmp that says naught": {"action: Allow, protocol: ICMP, icmp: {}, notICMP: {}", "Allow icmp"},
		"not icmp":              {"action: Allow, notICMP: {type: 0, code: 255}", "Allow !icmp 0/255"},
		"ports":                 {"action: Allow, protocol: UDP, destination: {ports: [53, '1000:2000', '443', '1000:2001']}", "Allow udp to ports [{53 53} {443 443} {1000 2001}][]"},
		"named ports":           {"action: Allow, destination: {ports: [http, dns, http]}", "Allow to ports [][dns http]"},
		"both kinds":            {"action: Allow, protocol: SCTP, source: {ports: [9, http], notPorts: ['0:1', x]}", "Allow sctp from ports [{9 9}][http] !ports [{0 1}][x]"},
		"nets":                  {"action: Allow, source: {nets: [10.0.0.0/8, 192.0.2.7/32], notNets: [10.1.0.0/16]}", "Allow from nets [10.0.0.0/8 192.0.2.7/32] !nets [10.1.0.0/16]"},
		"IPv6 nets":             {"action: Allow, destination: {nets: ['2001:db8::/32', '::/0']}", "Allow to nets [2001:db8::/32 ::/0]"},
		"name":                  {"action: Allow, metadata: {annotations: {name: allow-dns, owner: me}}", `Allow "allow-dns"`},
		"http never matches":    {"action: Allow, http: {methods: [GET], paths: [{exact: /a}, {prefix: /b}]}", "Allow unmatchable"},
	} {
		t.Run(name, func(t *testing.T) {
			p := policyOf(t, parse(t, "GlobalNetworkPolicy", "name: a", "ingress: [{"+tt.rule+"}]"))
			if diff := cmp.Diff("in[0] "+tt.want+"\n", rulesText(p.Ingress, nil)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Who is on a side: selectors, namespaces, service accounts and services of a namespaced and a global policy.
func TestSelectorsOfASide(t *testing.T) {
	for name, tt := range map[string]struct{ source, namespaced, global string }{
		"selector":               {"selector: has(a)", "{" + inShop + " && has(a)}", "{has(a)}"},
		"all":                    {"selector: all()", "{" + inShop + "}", "{all()}"},
		"notSelector":            {"notSelector: has(a)", "{" + inShop + " && !has(a)}", "!{has(a)}"},
		"both":                   {"selector: has(a), notSelector: has(b)", "{" + inShop + " && has(a) && !has(b)}", "{has(a) && !has(b)}"},
		"namespaces":             {"namespaceSelector: 'env == \"p\"'", `{pcns.env == "p"}`, `{pcns.env == "p"}`},
		"namespaces, selector":   {"namespaceSelector: 'env == \"p\" || all()', selector: has(a)", "{(pcns.env == \"p\" || " + inAny + ") && " + isKnown + " && has(a)}", "{(pcns.env == \"p\" || " + inAny + ") && " + isKnown + " && has(a)}"},
		"namespaces by what not": {"namespaceSelector: 'env != \"p\"'", `{pcns.env != "p" && ` + isKnown + "}", `{pcns.env != "p" && ` + isKnown + "}"},
		"all namespaces":         {"namespaceSelector: all()", "{" + inAny + "}", "{" + inAny + "}"},
		"global":                 {"namespaceSelector: ' global() ', selector: has(a)", "{!" + inAny + " && has(a)}", "{!" + inAny + " && has(a)}"},
		"namespaces, not":        {"namespaceSelector: all(), notSelector: has(b)", "{" + inAny + " && !has(b)}", "{" + inAny + " && !has(b)}"},
		"account":                {"serviceAccounts: {names: [web]}", "{" + inShop + " && " + account + ` == "web"}`, "{" + account + ` == "web"}`},
		"accounts":               {"serviceAccounts: {names: [web, db]}", "{" + inShop + " && " + account + ` in {"db", "web"}}`, "{" + account + ` in {"db", "web"}}`},
		"accounts by label":      {"serviceAccounts: {selector: 'r == \"x\"'}", "{" + inShop + ` && pcsa.r == "x"}`, `{pcsa.r == "x"}`},
		"every account":          {"serviceAccounts: {selector: all()}", "{" + inShop + " && has(" + account + ")}", "{has(" + account + ")}"},
		"account and label":      {"serviceAccounts: {names: [web], selector: has(r)}, namespaceSelector: all()", "{" + inAny + " && " + account + ` == "web" && has(pcsa.r)}`, "{" + inAny + " && " + account + ` == "web" && has(pcsa.r)}`},
		"no account":             {"serviceAccounts: {}", "", ""},
		"spaces":                 {"selector: ' '", "{" + inShop + "}", "{all()}"},
		"spaces, not":            {"notSelector: ' '", "{" + inShop + " && !all()}", "!{all()}"},
		"spaces for namespaces":  {"namespaceSelector: \" \\t\"", "{" + inAny + "}", "{" + inAny + "}"},
		"spaces for accounts":    {"serviceAccounts: {selector: ' '}", "{" + inShop + " && has(" + account + ")}", "{has(" + account + ")}"},
		"nothing":                {"selector: '', notSelector: '', namespaceSelector: '', serviceAccounts: {selector: ''}", "", ""},
		"nets and selector":      {"nets: [10.0.0.0/8], selector: has(a)", "nets [10.0.0.0/8] {" + inShop + " && has(a)}", "nets [10.0.0.0/8] {has(a)}"},
		"nets alone":             {"nets: [10.0.0.0/8]", "nets [10.0.0.0/8]", "nets [10.0.0.0/8]"},
		"service":                {"services: {name: db, namespace: other}", "service other/db", "service other/db"},
		"service, own namespace": {"services: {name: db}", "service shop/db", ""},
	} {
		t.Run(name, func(t *testing.T) {
			text := func(kind, metadata string) string {
				p := policyOf(t, parse(t, kind, metadata, "ingress: [{action: Allow, source: {"+tt.source+"}}]"))
				return entityText(p.Ingress[0].Source)
			}
			if diff := cmp.Diff(tt.namespaced, text("NetworkPolicy", "name: a, namespace: shop")); diff != "" {
				t.Errorf("namespaced (-want +got):\n%s", diff)
			}
			if name == "service, own namespace" {
				return // rejected in a global policy
			}
			if diff := cmp.Diff(tt.global, text("GlobalNetworkPolicy", "name: a")); diff != "" {
				t.Errorf("global (-want +got):\n%s", diff)
			}
		})
	}
}

// A Namespace that is not known yet may have the label that a rule excludes: all but a Deny would be too wide, and a Deny too narrow.
func TestOnlyDenyRulesMatchPodsOfUnknownNamespacesByLabelsThatAreAbsent(t *testing.T) {
	for action, want := range map[string]string{
		"Allow": `{pcns.env != "p" && ` + isKnown + "}", "Pass": `{pcns.env != "p" && ` + isKnown + "}", "Log": `{pcns.env != "p" && ` + isKnown + "}",
		"Deny": `{pcns.env != "p"}`,
	} {
		p := policyOf(t, parse(t, "GlobalNetworkPolicy", "name: a", "ingress: [{action: "+action+", source: {namespaceSelector: 'env != \"p\"'}}]"))
		if got := entityText(p.Ingress[0].Source); got != want {
			t.Errorf("%s is from %s, want %s", action, got, want)
		}
	}
}

// A policy that is about host endpoints alone is no policy of pods, whatever it was before.
func TestPoliciesOfHostEndpointsAreNoPoliciesOfPods(t *testing.T) {
	for _, spec := range []string{"doNotTrack: true, applyOnForward: true", "preDNAT: true, applyOnForward: true"} {
		d := parse(t, "GlobalNetworkPolicy", "name: a", spec)
		if len(d.Updates) != 1 || !d.OK || d.Updates[0] != (model.Update)(model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "a"}}) {
			t.Errorf("%s: %+v\n%s", spec, d.Updates, problemText(d))
		}
		if len(d.Problems) != 1 {
			t.Errorf("%s: %q", spec, problemText(d))
		}
	}
}
