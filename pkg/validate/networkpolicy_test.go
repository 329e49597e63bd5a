package validate_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
	. "github.com/margay-project/margay/pkg/validate"
)

// policyText is a NetworkPolicy shop/db with this spec, which begins at line 3.
func policyText(spec string) string {
	return "{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy,\n metadata: {name: db, namespace: shop}, spec: {\n" +
		strings.TrimPrefix(spec, "\n") + "}}\n"
}

func policyOf(t *testing.T, d Document) *model.Policy {
	t.Helper()
	if len(d.Updates) != 1 {
		t.Fatalf("no policy:\n%s", problemText(d))
	}
	u, ok := d.Updates[0].(model.PolicyUpdate)
	if !ok || u.Policy == nil {
		t.Fatalf("got %+v, want a policy", d.Updates[0])
	}
	return u.Policy
}

// ruleText is one line that says all of a rule.
func ruleText(dir string, r model.Rule) string {
	proto := "any"
	if r.Protocol != nil {
		proto = fmt.Sprint(*r.Protocol)
	}
	return strings.TrimSpace(fmt.Sprintf("%s[%d] %v proto %s src(%s) dst(%s)", dir, r.Index, r.Action, proto,
		entityText(r.Source), entityText(r.Destination)))
}

func entityText(e model.Entity) string {
	var parts []string
	add := func(name string, empty bool, v any) {
		if !empty {
			parts = append(parts, fmt.Sprintf("%s=%v", name, v))
		}
	}
	add("nets", e.Nets == nil, e.Nets)
	add("notNets", e.NotNets == nil, e.NotNets)
	add("sel", e.Selector == nil, e.Selector)
	add("ports", e.Ports == nil, e.Ports)
	add("named", e.NamedPorts == nil, e.NamedPorts)
	add("MORE", e.NotSelector == nil && e.NotPorts == nil && e.NotNamedPorts == nil && e.Service == nil, "")
	return strings.Join(parts, " ")
}

func rulesText(p *model.Policy) []string {
	var out []string
	for _, r := range p.Ingress {
		out = append(out, ruleText("in", r))
	}
	for _, r := range p.Egress {
		out = append(out, ruleText("out", r))
	}
	return out
}

const (
	k8s    = `projectcalico.org/orchestrator == "k8s"`
	inShop = k8s + ` && projectcalico.org/namespace == "shop"`
)

func TestNetworkPolicyHeader(t *testing.T) {
	u := parseUpdate(t, policyText(`podSelector: {matchLabels: {role: db}}`)).(model.PolicyUpdate)
	wantKey := model.PolicyKey{Kind: model.KindKubernetesNetworkPolicy, Namespace: "shop", Name: "db"}
	if u.Key != wantKey {
		t.Errorf("key %v, want %v", u.Key, wantKey)
	}
	p := u.Policy
	if p.Tier != "default" || p.Order != 1000 || p.Staged {
		t.Errorf("tier %q, order %v, staged %v", p.Tier, p.Order, p.Staged)
	}
	if want := inShop + ` && role == "db"`; p.Selector.String() != want {
		t.Errorf("selector %s, want %s", p.Selector, want)
	}
}

func TestNetworkPolicyTypes(t *testing.T) {
	const rules = "ingress: [{}], egress: [{}]"
	tests := map[string]struct {
		spec            string
		ingress, egress bool
		rules           int
		problem         string
	}{
		"absent, no rules":         {"podSelector: {}", true, false, 0, ""},
		"absent, empty egress":     {"podSelector: {}, egress: []", true, false, 0, ""},
		"absent, ingress rules":    {"podSelector: {}, ingress: [{}]", true, false, 1, ""},
		"absent, egress rules":     {"podSelector: {}, egress: [{}]", true, true, 1, ""},
		"empty is as absent":       {"podSelector: {}, egress: [{}], policyTypes: []", true, true, 1, ""},
		"null is as absent":        {"podSelector: {}, egress: [{}], policyTypes: null", true, true, 1, ""},
		"both":                     {"podSelector: {}, policyTypes: [Ingress, Egress]", true, true, 0, ""},
		"twice":                    {"podSelector: {}, policyTypes: [Egress, Egress]", false, true, 0, ""},
		"ingress, rules for both":  {"podSelector: {}, policyTypes: [Ingress]," + rules, true, false, 1, "spec.egress: the rules have no effect, because policyTypes does not contain Egress"},
		"egress, rules for both":   {"podSelector: {}, policyTypes: [Egress]," + rules, false, true, 1, "spec.ingress: the rules have no effect, because policyTypes does not contain Ingress"},
		"the podSelector may lack": {"policyTypes: [Ingress]", true, false, 0, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := parseOne(t, policyText(tt.spec))
			p := policyOf(t, d)
			if p.AppliesIngress != tt.ingress || p.AppliesEgress != tt.egress || len(p.Ingress)+len(p.Egress) != tt.rules {
				t.Errorf("ingress %v, egress %v, rules %v", p.AppliesIngress, p.AppliesEgress, rulesText(p))
			}
			want := ""
			if tt.problem != "" {
				want = "dir/a.yaml:3: NetworkPolicy shop/db: warning: " + tt.problem
			}
			if got := problemText(d); got != want {
				t.Errorf("problems:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

func TestNetworkPolicyRules(t *testing.T) {
	anyPod := "sel=" + inShop
	tests := map[string]struct {
		spec string
		want []string
	}{
		"empty rule allows everything": {"ingress: [{}], egress: [{}]",
			[]string{"in[0] Allow proto any src() dst()", "out[0] Allow proto any src() dst()"}},
		"empty lists are as absent": {"ingress: [{from: [], ports: []}], egress: [{to: [], ports: []}]",
			[]string{"in[0] Allow proto any src() dst()", "out[0] Allow proto any src() dst()"}},
		"pod peers": {"ingress: [{from: [{podSelector: {}}]}], egress: [{to: [{podSelector: {matchLabels: {a: b}}}]}]",
			[]string{"in[0] Allow proto any src(" + anyPod + ") dst()",
				"out[0] Allow proto any src() dst(" + anyPod + ` && a == "b")`}},
		"namespace peers": {"ingress: [{from: [{namespaceSelector: {}}, {namespaceSelector: {matchLabels: {env: prod}}}]}]",
			[]string{"in[0] Allow proto any src(sel=" + k8s + " && has(projectcalico.org/namespace)) dst()",
				"in[0] Allow proto any src(sel=" + k8s + ` && pcns.env == "prod") dst()`}},
		"namespace and pod peers": {"ingress: [{from: [{namespaceSelector: {matchLabels: {env: prod}}, podSelector: {matchLabels: {a: b}}}," +
			"{namespaceSelector: {}, podSelector: {}}]}]",
			[]string{"in[0] Allow proto any src(sel=" + k8s + ` && pcns.env == "prod" && a == "b") dst()`,
				"in[0] Allow proto any src(sel=" + k8s + " && has(projectcalico.org/namespace)) dst()"}},
		"blocks": {"ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.0.0.0/8, 192.168.0.0/16]}}]}]," +
			"egress: [{to: [{ipBlock: {cidr: '2001:db8::/32', except: ['2001:db8:1::/48']}}, {ipBlock: {cidr: 1.2.3.4/32}}]}]",
			[]string{"in[0] Allow proto any src(nets=[0.0.0.0/0] notNets=[10.0.0.0/8 192.168.0.0/16]) dst()",
				"out[0] Allow proto any src() dst(nets=[2001:db8::/32] notNets=[2001:db8:1::/48])",
				"out[0] Allow proto any src() dst(nets=[1.2.3.4/32])"}},
		"ports by protocol": {"ingress: [{ports: [{port: 80}, {protocol: UDP, port: 53}, {port: 443, protocol: TCP}, {protocol: SCTP, port: 5060}]}]",
			[]string{"in[0] Allow proto 6 src() dst(ports=[{80 80} {443 443}])", "in[0] Allow proto 17 src() dst(ports=[{53 53}])",
				"in[0] Allow proto 132 src() dst(ports=[{5060 5060}])"}},
		"ranges are joined": {"ingress: [{ports: [{port: 8000, endPort: 9000}, {port: 7999}, {port: 8500, endPort: 9500}, {port: 1}, {port: 65535}, {port: 65534}, {port: 1}, {port: 3}]}]",
			[]string{"in[0] Allow proto 6 src() dst(ports=[{1 1} {3 3} {7999 9500} {65534 65535}])"}},
		"names": {"ingress: [{ports: [{port: http}, {port: admin}, {port: http}, {port: 80}, {port: dns, protocol: UDP}]}]",
			[]string{"in[0] Allow proto 6 src() dst(ports=[{80 80}] named=[admin http])",
				"in[0] Allow proto 17 src() dst(named=[dns])"}},
		"names towards a peer": {"egress: [{to: [{podSelector: {}}], ports: [{port: http}]}]",
			[]string{"out[0] Allow proto 6 src() dst(" + anyPod + " named=[http])"}},
		"a protocol covers its ports": {"ingress: [{ports: [{port: 80}, {protocol: TCP}, {port: http}, {protocol: UDP, port: 53}]}, {ports: [{}]}]",
			[]string{"in[0] Allow proto 6 src() dst()", "in[0] Allow proto 17 src() dst(ports=[{53 53}])",
				"in[1] Allow proto 6 src() dst()"}},
		"peers by ports": {"egress: [{}, {to: [{podSelector: {}}, {ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: 1}, {port: 2, protocol: UDP}]}]",
			[]string{"out[0] Allow proto any src() dst()",
				"out[1] Allow proto 6 src() dst(" + anyPod + " ports=[{1 1}])", "out[1] Allow proto 17 src() dst(" + anyPod + " ports=[{2 2}])",
				"out[1] Allow proto 6 src() dst(nets=[10.0.0.0/8] ports=[{1 1}])", "out[1] Allow proto 17 src() dst(nets=[10.0.0.0/8] ports=[{2 2}])"}},
		"ports are the destination's": {"ingress: [{from: [{podSelector: {}}], ports: [{port: 80}]}]",
			[]string{"in[0] Allow proto 6 src(" + anyPod + ") dst(ports=[{80 80}])"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := parseOne(t, policyText("podSelector: {}, "+tt.spec))
			if len(d.Problems) > 0 {
				t.Errorf("problems:\n%s", problemText(d))
			}
			if diff := cmp.Diff(tt.want, rulesText(policyOf(t, d))); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLabelSelectorsWithOneMeaningHaveOneText(t *testing.T) {
	tests := map[string]struct {
		want   string
		spells []string
	}{
		"one value": {`a == "b"`, []string{"{matchLabels: {a: b}}", "{matchExpressions: [{key: a, operator: In, values: [b]}]}",
			"{matchLabels: {a: b}, matchExpressions: [{key: a, operator: In, values: [b, b]}]}"}},
		"values": {`a in {"b", "c"}`, []string{"{matchExpressions: [{key: a, operator: In, values: [b, c]}]}",
			"{matchExpressions: [{key: a, operator: In, values: [c, b, c]}]}"}},
		"order": {`a == "b" && c == "d" && has(e)`, []string{
			"{matchLabels: {c: d, a: b}, matchExpressions: [{key: e, operator: Exists}]}",
			"{matchExpressions: [{key: e, operator: Exists}, {key: c, operator: In, values: [d]}, {key: a, operator: In, values: [b]}]}"}},
		"not":        {`a != "b"`, []string{"{matchExpressions: [{key: a, operator: NotIn, values: [b]}]}"}},
		"none of":    {`a not in {"b", "c"}`, []string{"{matchExpressions: [{key: a, operator: NotIn, values: [c, b]}]}"}},
		"absent":     {`!has(x.io/a)`, []string{"{matchExpressions: [{key: x.io/a, operator: DoesNotExist}]}"}},
		"everything": {"all()", []string{"{}", "{matchLabels: {}, matchExpressions: []}", "null"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			want := inShop
			if tt.want != "all()" {
				want += " && " + tt.want
			}
			for _, s := range tt.spells {
				if got := policyOf(t, parseOne(t, policyText("podSelector: "+s))).Selector.String(); got != want {
					t.Errorf("%s:\ngot  %s\nwant %s", s, got, want)
				}
			}
		})
	}
}

func TestNetworkPolicyLeavesOutBlocksItCannotRead(t *testing.T) {
	const without = "; the rule is used without this peer"
	tests := map[string]struct {
		block string
		want  string // of the problem, after the path of the ipBlock
	}{
		"no cidr":            {"{}", `cidr: "" is not a CIDR` + without},
		"no mask":            {"{cidr: 10.0.0.0}", `cidr: "10.0.0.0" is not a CIDR` + without},
		"long mask":          {"{cidr: 10.0.0.0/33}", `cidr: "10.0.0.0/33" is not a CIDR` + without},
		"leading zeros":      {"{cidr: 010.0.0.0/8}", `cidr: "010.0.0.0/8" is not a CIDR` + without},
		"mapped":             {"{cidr: '::ffff:10.0.0.0/104'}", `cidr: "::ffff:10.0.0.0/104" is an IPv4-mapped CIDR, which no packet has; write it as IPv4` + without},
		"text":               {"{cidr: \"x\\ny\"}", `cidr: "x\ny" is not a CIDR` + without},
		"exception unread":   {"{cidr: 10.0.0.0/8, except: [x]}", `except[0]: "x" is not a CIDR` + without},
		"exception outside":  {"{cidr: 10.0.0.0/8, except: [10.1.0.0/16, 11.0.0.0/16]}", `except[1]: "11.0.0.0/16" is not strictly inside of cidr "10.0.0.0/8"` + without},
		"exception is all":   {"{cidr: 10.0.0.0/8, except: [10.0.0.0/8]}", `except[0]: "10.0.0.0/8" is not strictly inside of cidr "10.0.0.0/8"` + without},
		"exception is wider": {"{cidr: 10.0.0.0/8, except: [0.0.0.0/0]}", `except[0]: "0.0.0.0/0" is not strictly inside of cidr "10.0.0.0/8"` + without},
		"other family":       {"{cidr: 0.0.0.0/0, except: ['fd00::/64']}", `except[0]: "fd00::/64" is not strictly inside of cidr "0.0.0.0/0"` + without},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := parseOne(t, policyText("podSelector: {},\ningress: [{from: [{ipBlock: "+tt.block+"}]}],\n"+
				"egress: [{to: [{podSelector: {}},\n{ipBlock: "+tt.block+"}],\nports: [{port: 1}, {port: 2, protocol: UDP}]}]"))
			want := "dir/a.yaml:4: NetworkPolicy shop/db: rules left out: spec.ingress[0].from[0].ipBlock." + tt.want +
				"\ndir/a.yaml:6: NetworkPolicy shop/db: rules left out: spec.egress[0].to[1].ipBlock." + tt.want
			if diff := cmp.Diff(want, problemText(d)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			p := policyOf(t, d)
			wantRules := []string{"out[0] Allow proto 6 src() dst(sel=" + inShop + " ports=[{1 1}])",
				"out[0] Allow proto 17 src() dst(sel=" + inShop + " ports=[{2 2}])"}
			if diff := cmp.Diff(wantRules, rulesText(p)); diff != "" || !d.OK || !p.AppliesIngress {
				t.Errorf("ok %v, rules (-want +got):\n%s", d.OK, diff)
			}
		})
	}
}

func TestNetworkPolicyMasksBlocks(t *testing.T) {
	d := parseOne(t, policyText("podSelector: {},\ningress: [{from: [{ipBlock: {cidr: 10.1.2.3/8, except: [10.9.9.9/16]}}]}]"))
	want := `dir/a.yaml:4: NetworkPolicy shop/db: warning: spec.ingress[0].from[0].ipBlock.cidr: "10.1.2.3/8" has bits beyond its mask; read as "10.0.0.0/8"
dir/a.yaml:4: NetworkPolicy shop/db: warning: spec.ingress[0].from[0].ipBlock.except[0]: "10.9.9.9/16" has bits beyond its mask; read as "10.9.0.0/16"`
	if diff := cmp.Diff(want, problemText(d)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	src := policyOf(t, d).Ingress[0].Source
	if src.Nets[0] != netip.MustParsePrefix("10.0.0.0/8") || src.NotNets[0] != netip.MustParsePrefix("10.9.0.0/16") {
		t.Errorf("source %s", entityText(src))
	}
}

func TestNetworkPolicyIsRejectedAsByTheAPIServer(t *testing.T) {
	tests := map[string]struct {
		spec string
		want []string // after "spec."; the field stands on line 4
	}{
		"port too low":       {"ports: [{port: 0}]", []string{"ingress[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"}},
		"port too high":      {"ports: [{port: 65536}]", []string{"ingress[0].ports[0].port: Invalid value: 65536: must be between 1 and 65535, inclusive"}},
		"port name":          {"ports: [{port: 'a b'}]", []string{`ingress[0].ports[0].port: Invalid value: "a b": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)`}},
		"numeric port name":  {"ports: [{port: '80'}]", []string{`ingress[0].ports[0].port: Invalid value: "80": must contain at least one letter (a-z)`}},
		"port name too long": {"ports: [{port: aaaabbbbccccddddd}]", []string{`ingress[0].ports[0].port: Invalid value: "aaaabbbbccccddddd": must be no more than 15 characters`}},
		"range backwards":    {"ports: [{port: 2, endPort: 1}]", []string{"ingress[0].ports[0].endPort: Invalid value: 1: must not be less than port"}},
		"range too high":     {"ports: [{port: 2, endPort: 65536}]", []string{"ingress[0].ports[0].endPort: Invalid value: 65536: must be between 1 and 65535, inclusive"}},
		"range from a name":  {"ports: [{port: a, endPort: 1}]", []string{"ingress[0].ports[0].endPort: Invalid value: 1: needs a numeric port"}},
		"range from nothing": {"ports: [{endPort: 1}]", []string{"ingress[0].ports[0].endPort: Invalid value: 1: needs a numeric port"}},
		"protocol":           {"ports: [{protocol: ICMP}]", []string{`ingress[0].ports[0].protocol: Unsupported value: "ICMP": supported values: "TCP", "UDP", "SCTP"`}},
		"protocol in lower":  {"ports: [{protocol: tcp}]", []string{`ingress[0].ports[0].protocol: Unsupported value: "tcp": supported values: "TCP", "UDP", "SCTP"`}},
		"empty protocol":     {"ports: [{protocol: ''}]", []string{`ingress[0].ports[0].protocol: Unsupported value: "": supported values: "TCP", "UDP", "SCTP"`}},
		"empty peer":         {"from: [{}]", []string{"ingress[0].from[0]: Required value: a peer must have podSelector, namespaceSelector or ipBlock"}},
		"block and selector": {"from: [{podSelector: {}, ipBlock: {cidr: 10.0.0.0/8}}]", []string{"ingress[0].from[0].ipBlock: Forbidden: must not be combined with a selector"}},
		"operator":           {"from: [{podSelector: {matchExpressions: [{key: a, operator: Gt, values: [b]}]}}]", []string{`ingress[0].from[0].podSelector.matchExpressions[0].operator: Invalid value: "Gt": not a valid selector operator`}},
		"In without values":  {"from: [{namespaceSelector: {matchExpressions: [{key: a, operator: In}]}}]", []string{"ingress[0].from[0].namespaceSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"}},
		"Exists with values": {"from: [{podSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}]", []string{"ingress[0].from[0].podSelector.matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"}},
		"expression without key": {"from: [{podSelector: {matchExpressions: [{operator: Exists}]}}]", []string{
			`ingress[0].from[0].podSelector.matchExpressions[0].key: Invalid value: "": name part must be non-empty`}},
		"value": {"from: [{podSelector: {matchLabels: {a: '-'}}}]", []string{`ingress[0].from[0].podSelector.matchLabels: Invalid value: "-": a valid label must`}},
		"values of several rules": {"from: [{}], ports: [{port: 0}]", []string{
			"ingress[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
			"ingress[0].from[0]: Required value: a peer must have podSelector, namespaceSelector or ipBlock"}},
		"unknown field":       {"form: []", []string{"ingress[0].form: unknown field (did you mean from?)"}},
		"wrong case":          {"From: []", []string{"ingress[0].From: unknown field (did you mean from?)"}},
		"unknown deep field":  {"from: [{podSelector: {matchLabel: {a: b}}}]", []string{"ingress[0].from[0].podSelector.matchLabel: unknown field (did you mean matchLabels?)"}},
		"field of nobody":     {"replicas: 3", []string{"ingress[0].replicas: unknown field"}},
		"field written twice": {"from: [], from: []", []string{"ingress[0].from: field is written twice"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := parseOne(t, policyText("podSelector: {},\ningress: [{"+tt.spec+"}],\n"))
			if d.OK || len(d.Problems) < len(tt.want) {
				t.Fatalf("ok %v, problems:\n%s", d.OK, problemText(d))
			}
			for i, want := range tt.want {
				want = "dir/a.yaml:4: NetworkPolicy shop/db: rejected: spec." + want
				if got := d.Problems[i].String(); !strings.HasPrefix(got, want) {
					t.Errorf("problem %d\ngot  %s\nwant %s", i, got, want)
				}
			}
		})
	}
}

func TestNetworkPolicyIsRejectedForTheRest(t *testing.T) {
	tests := map[string]struct{ spec, want string }{
		"type":           {"policyTypes: [\nFoo]", `dir/a.yaml:4: NetworkPolicy shop/db: rejected: spec.policyTypes[0]: Unsupported value: "Foo": supported values: "Ingress", "Egress"`},
		"too many types": {"policyTypes: [Ingress, Egress, Ingress]", "dir/a.yaml:3: NetworkPolicy shop/db: rejected: spec.policyTypes: Too many: 3: must have at most 2 items"},
		"pod selector":   {"podSelector: {matchExpressions: [{key: a, operator: Foo}]}", `dir/a.yaml:3: NetworkPolicy shop/db: rejected: spec.podSelector.matchExpressions[0].operator: Invalid value: "Foo": not a valid selector operator`},
		"egress":         {"egress: [{},\n{to: [{}]}]", "dir/a.yaml:4: NetworkPolicy shop/db: rejected: spec.egress[1].to[0]: Required value: a peer must have podSelector, namespaceSelector or ipBlock"},
		"ignored rules":  {"policyTypes: [Ingress], egress: [{ports: [{port: 0}]}]", "dir/a.yaml:3: NetworkPolicy shop/db: rejected: spec.egress[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"},
		"misspelt":       {"podSelectors: {}", "dir/a.yaml:3: NetworkPolicy shop/db: rejected: spec.podSelectors: unknown field (did you mean podSelector?)"},
		"huge port":      {"egress: [{ports: [{port: 4294967376}]}]", "dir/a.yaml:3: NetworkPolicy shop/db: rejected: spec.egress.ports.port: number 4294967376 where an integer of at most 32 bits is expected"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := parseOne(t, policyText(tt.spec))
			if got := problemText(d); got != tt.want || d.OK {
				t.Errorf("ok %v\ngot  %s\nwant %s", d.OK, got, tt.want)
			}
		})
	}
}

// A pod whose Namespace is not known has no labels of one, which a negative requirement alone would match.
func TestNegativeNamespaceSelectorsNeedAKnownNamespace(t *testing.T) {
	const known = `has(pcns.kubernetes.io/metadata.name)`
	for peer, wants := range map[string]bool{
		"{namespaceSelector: {matchExpressions: [{key: team, operator: DoesNotExist}]}}":                                               true,
		"{namespaceSelector: {matchExpressions: [{key: team, operator: NotIn, values: [a]}]}, podSelector: {matchLabels: {app: web}}}": true,
		"{namespaceSelector: {matchLabels: {team: b}, matchExpressions: [{key: team, operator: NotIn, values: [a]}]}}":                 false,
		"{namespaceSelector: {matchExpressions: [{key: team, operator: Exists}]}}":                                                     false,
		"{podSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}}":                                                      false,
	} {
		p := policyOf(t, parseOne(t, policyText("podSelector: {}, ingress: [{from: ["+peer+"]}]")))
		s := p.Ingress[0].Source.Selector
		if got := strings.Contains(s.String(), known); got != wants {
			t.Errorf("%s: selector %s; want it to ask for a known Namespace: %v", peer, s, wants)
		}
		unknown := selector.Map{LabelOrchestrator: OrchestratorK8s, LabelNamespace: "red", "app": "web"}
		if wants && s.Matches(unknown) {
			t.Errorf("%s matches a pod whose Namespace is not known", peer)
		}
	}
}

// Servers of Kubernetes 1.24 to 1.27 write a status into every NetworkPolicy, so a file that was exported there has one.
func TestStatusOfNetworkPolicyMeansNothing(t *testing.T) {
	for _, status := range []string{"{}", "null", "{conditions: [{type: Accepted}]}"} {
		d := parseOne(t, strings.TrimSuffix(policyText("podSelector: {}"), "}\n")+", status: "+status+"}\n")
		if got := problemText(d); got != "" || !d.OK {
			t.Errorf("status %s: ok %v, problems %s", status, d.OK, got)
		}
	}
	if d := parseOne(t, strings.TrimSuffix(policyText("podSelector: {}"), "}\n")+", statuses: {}}\n"); d.OK {
		t.Error("a field that only begins like the status is accepted")
	}
}

// Whoever mends a policy sees at once all that is wrong with it: what rejects it, and what it would be used without.
func TestRejectedNetworkPolicyReportsItsOtherProblems(t *testing.T) {
	const waits = "; when nothing else is wrong, the rule is used without this peer"
	tests := map[string]struct {
		spec string
		want []string
	}{
		"of the API": {"ingress: [{ports: [{port: 0}],\nfrom: [{ipBlock: {cidr: 10.0.0.0}}]}],\negress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [x, z]}}]}]", []string{
			"3: NetworkPolicy shop/db: rejected: spec.ingress[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
			`4: NetworkPolicy shop/db: rules left out: spec.ingress[0].from[0].ipBlock.cidr: "10.0.0.0" is not a CIDR` + waits,
			`5: NetworkPolicy shop/db: rules left out: spec.egress[0].to[0].ipBlock.except[0]: "x" is not a CIDR` + waits,
			`5: NetworkPolicy shop/db: rules left out: spec.egress[0].to[0].ipBlock.except[1]: "z" is not a CIDR` + waits}},
		"of the text": {"ingress: [{port: 80,\nfrom: [{podSelectors: {}}]}],\negress: [{ports: [{port: 0}]}]", []string{
			"3: NetworkPolicy shop/db: rejected: spec.ingress[0].port: unknown field (did you mean ports?)",
			"4: NetworkPolicy shop/db: rejected: spec.ingress[0].from[0].podSelectors: unknown field (did you mean podSelector?)",
			"5: NetworkPolicy shop/db: rejected: spec.egress[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"}},
		"not what a misspelt field causes": {"ingress: [{from: [{ipBlock: {cdir: 10.0.0.0/8}}]}]", []string{
			"3: NetworkPolicy shop/db: rejected: spec.ingress[0].from[0].ipBlock.cdir: unknown field (did you mean cidr?)"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := parseOne(t, policyText(tt.spec))
			want := "dir/a.yaml:" + strings.Join(tt.want, "\ndir/a.yaml:")
			if diff := cmp.Diff(want, problemText(d)); diff != "" || d.OK {
				t.Errorf("ok %v, problems (-want +got):\n%s", d.OK, diff)
			}
		})
	}
}
