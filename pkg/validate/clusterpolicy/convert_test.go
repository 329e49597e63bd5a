package clusterpolicy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
	"github.com/margay-project/margay/pkg/validate/clusterpolicy"
)

// manifest is a policy whose spec, in YAML's flow style, is on lines of its own.
func manifest(spec string) string {
	return "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: guard}\nspec: {\n" + spec + "}\n"
}

// admin is a policy of the Admin tier with the rules.
func admin(rules string) string {
	return manifest("tier: Admin, priority: 10, subject: {namespaces: {}},\n" + rules)
}

func parse(t *testing.T, text string) validate.Document {
	t.Helper()
	docs := kinds.Parse("a.yaml", []byte(text))
	if len(docs) != 1 {
		t.Fatalf("%d documents", len(docs))
	}
	return docs[0]
}

func policyOf(t *testing.T, d validate.Document) *model.Policy {
	t.Helper()
	if !d.OK || len(d.Updates) != 1 {
		t.Fatalf("not used: %v", d.Problems)
	}
	return d.Updates[0].(model.PolicyUpdate).Policy
}

// fromCluster converts the manifest as an object that an API server sent.
func fromCluster(t *testing.T, text string) ([]model.Update, []validate.Problem, bool) {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	all := kinds.Read(validate.Pods{})
	i := slices.IndexFunc(all, func(k kinds.Kind) bool { return k.Name == clusterpolicy.Kind })
	return all[i].Convert(o)
}

func ruleText(r model.Rule) string {
	text := fmt.Sprintf("%d %s", r.Index, r.Action)
	if r.Name != "" {
		text += fmt.Sprintf(" %q", r.Name)
	}
	if r.Protocol != nil {
		text += fmt.Sprintf(" proto=%d", *r.Protocol)
	}
	if s := r.Source; s.Selector != nil {
		text += " from " + strings.ReplaceAll(s.Selector.String(), k8s, "k8s")
	}
	d := r.Destination
	if d.Selector != nil {
		text += " to " + strings.ReplaceAll(d.Selector.String(), k8s, "k8s")
	}
	if d.Nodes != nil {
		text += " to nodes " + d.Nodes.String()
	}
	if d.Nets != nil {
		text += fmt.Sprintf(" to %v", d.Nets)
	}
	if d.Ports != nil {
		text += fmt.Sprintf(" ports=%v", d.Ports)
	}
	if d.NamedPorts != nil {
		text += fmt.Sprintf(" ports=%v", d.NamedPorts)
	}
	if r.Unmatchable != "" {
		text += " never: " + r.Unmatchable
	}
	return text
}

func rulesText(rules []model.Rule) []string {
	var out []string
	for _, r := range rules {
		out = append(out, ruleText(r))
	}
	return out
}

const k8s = `projectcalico.org/orchestrator == "k8s"`

func TestHeader(t *testing.T) {
	for _, test := range []struct {
		spec, tier, selector string
		order                float64
		ingress, egress      bool
	}{
		{"tier: Admin, priority: 0, subject: {namespaces: {}}", "kube-admin", k8s + " && has(projectcalico.org/namespace)", 0, false, false},
		{"tier: Baseline, priority: 1000, subject: {namespaces: {matchLabels: {team: a}}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]",
			"kube-baseline", k8s + ` && pcns.team == "a"`, 1000, true, false},
		{"tier: Admin, priority: 7, subject: {pods: {namespaceSelector: {matchExpressions: [{key: team, operator: Exists}]}, podSelector: {matchLabels: {app: db}}}}, egress: [{action: Pass, to: [{namespaces: {}}]}]",
			"kube-admin", k8s + ` && has(pcns.team) && app == "db"`, 7, false, true},
		{"tier: Admin, priority: 7, subject: {pods: {podSelector: {}}}, ingress: [], egress: []", "kube-admin", k8s + " && has(projectcalico.org/namespace)", 7, false, false},
	} {
		d := parse(t, manifest(test.spec))
		p := policyOf(t, d)
		if len(d.Problems) > 0 {
			t.Errorf("%s: %v", test.spec, d.Problems)
		}
		if want := (model.PolicyKey{Kind: model.KindKubernetesClusterNetworkPolicy, Name: "guard"}); d.Updates[0].(model.PolicyUpdate).Key != want {
			t.Errorf("key of %v", d.Updates[0])
		}
		if p.Tier != test.tier || p.Order != test.order || p.AppliesIngress != test.ingress || p.AppliesEgress != test.egress {
			t.Errorf("%s: %+v", test.spec, p)
		}
		if p.Selector.String() != test.selector {
			t.Errorf("%s:\nselector %s\nwant     %s", test.spec, p.Selector, test.selector)
		}
	}
}

func TestRules(t *testing.T) {
	const anyPod = "k8s && has(projectcalico.org/namespace)"
	for name, test := range map[string]struct {
		rules string
		want  []string // ingress, then egress
	}{
		"actions, in order": {
			"ingress: [{name: first, action: Accept, from: [{namespaces: {}}]}, {action: Deny, from: [{namespaces: {}}]}, {action: Pass, from: [{namespaces: {}}]}]",
			[]string{`0 Allow "first" from ` + anyPod, "1 Deny from " + anyPod, "2 Pass from " + anyPod},
		},
		"a rule for each peer": {
			"ingress: [{action: Deny, from: [{namespaces: {matchLabels: {a: b}}}, {pods: {namespaceSelector: {matchLabels: {a: b}}, podSelector: {matchLabels: {c: d}}}}]}]",
			[]string{`0 Deny from k8s && pcns.a == "b"`, `0 Deny from k8s && pcns.a == "b" && c == "d"`},
		},
		"networks": {
			`egress: [{action: Deny, to: [{networks: ["10.0.0.0/8", "fd00::/8", "192.0.2.77/24"]}]}]`,
			[]string{"0 Deny to [10.0.0.0/8 fd00::/8 192.0.2.0/24]"},
		},
		"nodes": {
			`egress: [{action: Deny, to: [{nodes: {}}, {nodes: {matchLabels: {zone: a}}}], protocols: [{tcp: {destinationPort: {number: 22}}}]}]`,
			[]string{"0 Deny proto=6 to nodes all() ports=[{22 22}]", `0 Deny proto=6 to nodes zone == "a" ports=[{22 22}]`},
		},
		"protocols": {
			`egress: [{action: Accept, to: [{namespaces: {}}], protocols: [{udp: {destinationPort: {number: 53}}}, {tcp: {destinationPort: {range: {start: 80, end: 90}}}}, {tcp: {destinationPort: {number: 91}}}, {sctp: {destinationPort: {number: 7}}}]}]`,
			[]string{"0 Allow proto=6 to " + anyPod + " ports=[{80 91}]", "0 Allow proto=17 to " + anyPod + " ports=[{53 53}]", "0 Allow proto=132 to " + anyPod + " ports=[{7 7}]"},
		},
		"named ports, of any protocol": {
			`ingress: [{action: Accept, from: [{namespaces: {}}], protocols: [{destinationNamedPort: web}, {destinationNamedPort: dns}, {destinationNamedPort: web}, {tcp: {destinationPort: {number: 1}}}]}]`,
			[]string{"0 Allow proto=6 from " + anyPod + " ports=[{1 1}]", "0 Allow from " + anyPod + " ports=[dns web]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"text", "cluster"} {
				var p *model.Policy
				if path == "text" {
					d := parse(t, admin(test.rules))
					if p = policyOf(t, d); len(d.Problems) > 0 {
						t.Error(d.Problems)
					}
				} else {
					us, problems, ok := fromCluster(t, admin(test.rules))
					if !ok || len(problems) > 0 {
						t.Fatal(ok, problems)
					}
					p = us[0].(model.PolicyUpdate).Policy
				}
				if diff := cmp.Diff(test.want, rulesText(slices.Concat(p.Ingress, p.Egress))); diff != "" {
					t.Errorf("%s (-want +got):\n%s", path, diff)
				}
			}
		})
	}
}

// What cannot be converted denies everything if it is a Deny or Pass rule, and accepts nothing if it is an Accept rule:
// objects that an API server has taken by a CRD of another release, or whose fields no node can enforce.
func TestRulesThatCannotBeConvertedFailClosed(t *testing.T) {
	for name, test := range map[string]struct {
		rule, problem string // of egress; the action is filled in
	}{
		"a peer of a newer API":     {"to: [{namespaces: {}}, {services: {name: a}}]", "to[1]: Required value: none of the fields known here is set"},
		"no peer":                   {"to: []", "to: Required value: a rule must have a peer"},
		"no network":                {"to: [{networks: []}]", "to[0].networks: Required value: a list of networks must not be empty"},
		"not a network":             {"to: [{networks: [10.0.0.0/33]}]", `to[0].networks[0]: Invalid value: "10.0.0.0/33": must be an IPv4 or IPv6 CIDR, such as 10.0.0.0/8 or fd00::/8`},
		"an IPv4 network in IPv6":   {"to: [{networks: ['::ffff:10.0.0.0/104']}]", `to[0].networks[0]: Invalid value: "::ffff:10.0.0.0/104": must be`},
		"names of domains":          {"to: [{domainNames: ['*.example.com']}]", "to[0].domainNames: Forbidden: names of domains are not enforced here"},
		"an operator nobody knows":  {"to: [{namespaces: {matchExpressions: [{key: a, operator: Near}]}}]", `to[0].namespaces.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator`},
		"an operator for nodes":     {"to: [{nodes: {matchExpressions: [{key: a, operator: Near}]}}]", `to[0].nodes.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator`},
		"labels that cannot be":     {"to: [{pods: {podSelector: {matchLabels: {a: '-'}}}}]", `to[0].pods.podSelector.matchLabels: Invalid value: "-"`},
		"a protocol of a newer API": {"to: [{namespaces: {}}], protocols: [{icmp: {}}]", "protocols[0]: Required value: none of the fields known here is set"},
		"a port of a newer API":     {"to: [{namespaces: {}}], protocols: [{tcp: {sourcePort: 1}}]", "protocols[0].tcp: Required value: none of the fields known here is set"},
		"an empty port":             {"to: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {}}}]", "protocols[0].tcp.destinationPort.number: Invalid value: 0: must be in 1-65535"},
		"a range backwards":         {"to: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {range: {start: 2, end: 1}}}}]", `protocols[0].tcp.destinationPort.range: Invalid value: "2-1": start must be less than end`},
		"a named port of networks":  {"to: [{networks: [10.0.0.0/8]}], protocols: [{destinationNamedPort: web}]", "protocols: Forbidden: destinationNamedPort must not stand beside a peer of networks, nodes or domainNames"},
	} {
		t.Run(name, func(t *testing.T) {
			for action, want := range map[string]string{"Accept": "1 Allow never: spec.egress[1].", "Deny": "1 Deny", "Pass": "1 Deny"} {
				us, problems, ok := fromCluster(t, admin("egress: [{action: Accept, to: [{networks: [192.0.2.0/24]}]}, {action: "+action+", "+test.rule+"}]"))
				if !ok {
					t.Fatalf("%s: rejected: %v", action, problems)
				}
				got := rulesText(us[0].(model.PolicyUpdate).Policy.Egress)
				if len(got) != 2 || got[1] != want && (action != "Accept" || !strings.HasPrefix(got[1], want)) {
					t.Errorf("%s: %q, want %q at last", action, got, want)
				}
				if len(problems) != 1 || problems[0].Severity != validate.RulesLeftOut || !strings.HasPrefix(problems[0].Field+": "+problems[0].Reason, "spec.egress[1]."+test.problem) {
					t.Errorf("%s: %v\nwant %s", action, problems, test.problem)
				}
				ending := "; the rule denies all egress, because its action is " + action
				if action == "Accept" {
					ending = "; the rule accepts nothing"
				}
				if len(problems) > 0 && !strings.HasSuffix(problems[0].Reason, ending) {
					t.Errorf("%s: %s", action, problems[0].Reason)
				}
			}
		})
	}
}

// A rule with an action of a newer API denies everything, and a policy whose subject or tier cannot be used is rejected as a whole.
func TestWhatElseANewerAPISays(t *testing.T) {
	us, problems, ok := fromCluster(t, admin("ingress: [{action: Log, from: [{namespaces: {}}]}]"))
	if !ok || len(problems) != 1 || !strings.HasSuffix(problems[0].Reason, "the rule denies all ingress") || !deniesAll(us[0].(model.PolicyUpdate).Policy.Ingress) {
		t.Errorf("%v, %v, %v", us, problems, ok)
	}
	for _, spec := range []string{
		"tier: Middle, priority: 1, subject: {namespaces: {}}",
		"tier: Admin, priority: 1, subject: {nodes: {}}",
		"tier: Admin, priority: 1, subject: {namespaces: {matchExpressions: [{key: a, operator: Near}]}}",
	} {
		if us, problems, ok := fromCluster(t, manifest(spec)); ok || len(us) > 0 || len(problems) != 1 || problems[0].Severity != validate.Rejected {
			t.Errorf("%s: %v, %v, %v", spec, us, problems, ok)
		}
	}
}

func deniesAll(rules []model.Rule) bool {
	return len(rules) == 1 && cmp.Equal(rules[0], model.Rule{Action: model.Deny})
}

// What an API server added, and what its users did not write, changes nothing.
func TestObjectAsAnAPIServerHasIt(t *testing.T) {
	d := parse(t, `apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: guard, uid: x, resourceVersion: "7", creationTimestamp: "2026-01-01T00:00:00Z", generation: 1}
spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [{name: null, action: Deny, from: [{namespaces: {}}], protocols: null}]}
status: {conditions: []}
`)
	if p := policyOf(t, d); len(d.Problems) > 0 || len(p.Ingress) != 1 {
		t.Errorf("%v, %v", p, d.Problems)
	}
}
