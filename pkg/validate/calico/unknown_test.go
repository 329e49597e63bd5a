package calico_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// stored reads one object as a cluster and as etcd have it, which must mean the same.
func stored(t *testing.T, kind, metadata, spec string) (us []model.Update, problems []string, ok bool) {
	t.Helper()
	const version = "projectcalico.org/v3"
	text, err := yaml.YAMLToJSON(fmt.Appendf(nil, "{apiVersion: %s, kind: %s,\n metadata: {%s}, spec: {\n%s}}\n", version, kind, metadata, spec))
	if err != nil {
		t.Fatal(err)
	}
	all := kinds.Read(validate.Pods{})
	k := all[slices.IndexFunc(all, func(k kinds.Kind) bool {
		return k.Name == kind && slices.ContainsFunc(k.Versions, func(v schema.GroupVersion) bool { return v.String() == version })
	})]
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	us, inCluster, ok := k.Convert(o)
	inEtcd, found, sameOK := k.ReadStored(text, validate.Ref{Kind: k.Ref, Namespace: o.GetNamespace(), Name: o.GetName()})
	if ok != sameOK || len(us) != len(inEtcd) || !slices.Equal(inCluster, found) {
		t.Errorf("%s: cluster: %v %v, etcd: %v %v", spec, us, inCluster, inEtcd, found)
	}
	for _, p := range inCluster {
		problems = append(problems, strings.TrimPrefix(p.String(), p.Ref.String()+": "))
	}
	return us, problems, ok
}

// What a field that is not known does to its object, if a datastore has it.
func TestStoredObjectsWithUnknownFieldsFailClosed(t *testing.T) {
	for name, tt := range map[string]struct {
		kind, spec string
		want       string // of the policy; empty: it is absent or rejected
		problem    string
	}{
		"allow": {"NetworkPolicy", "ingress: [{action: Allow, source: {nets: [10.0.0.0/8], certs: [a]}}]",
			"in[0] Allow unmatchable from nets [10.0.0.0/8]\n", "rules left out: spec.ingress[0].source.certs: unknown field; the rule allows nothing"},
		"deny": {"NetworkPolicy", "egress: [{action: Deny, protocol: TCP, certs: [a], metadata: {annotations: {name: x}}}]",
			"out[0] Deny \"x\"\n", "rules left out: spec.egress[0].certs: unknown field; the rule denies all egress, because its action is Deny"},
		"pass": {"GlobalNetworkPolicy", "egress: [{action: Pass, protocol: TCP, certs: [a]}]",
			"out[0] Deny\n", "rules left out: spec.egress[0].certs: unknown field; the rule denies all egress, because its action is Pass"},
		"two in one rule are one problem": {"NetworkPolicy", "ingress: [{action: Deny, a: 1, b: 2}]",
			"in[0] Deny\n", "rules left out: spec.ingress[0].a: unknown field; the rule denies all ingress, because its action is Deny"},
		"rule ten is not rule one": {"NetworkPolicy", "ingress: [" + strings.Repeat("{action: Allow}, ", 10) + "{action: Allow, a: 1}]",
			strings.Join([]string{"in[0] Allow", "in[1] Allow", "in[2] Allow", "in[3] Allow", "in[4] Allow", "in[5] Allow", "in[6] Allow",
				"in[7] Allow", "in[8] Allow", "in[9] Allow", "in[10] Allow unmatchable"}, "\n") + "\n",
			"rules left out: spec.ingress[10].a: unknown field; the rule allows nothing"},
		"of the policy, beside one of a rule": {"NetworkPolicy", "types: [Ingress, Egress], a: 1, ingress: [{action: Allow, b: 1}]",
			"in[0] Deny\nout[0] Deny\n", "rules left out: spec.a: unknown field; the policy denies everything in its directions"},
		"of a policy of one direction": {"GlobalNetworkPolicy", "types: [Egress], a: 1",
			"out[0] Deny\n", "rules left out: spec.a: unknown field; the policy denies everything in its directions"},
		"of a staged policy": {"StagedNetworkPolicy", "a: 1",
			"in[0] Deny\n", "rules left out: spec.a: unknown field; the policy denies everything in its directions"},
		"of a policy for hosts": {"GlobalNetworkPolicy", "a: 1, doNotTrack: true, applyOnForward: true", "",
			"rules left out: spec.doNotTrack: such a policy is about host endpoints alone, which are not enforced yet: nothing of it is in force"},
		"beside what is not valid": {"NetworkPolicy", "a: 1, ingress: [{action: '', b: 1}]", "",
			`rejected: spec.ingress[0].action: "" must be Allow, Deny, Pass or Log`},
		"of a staged Kubernetes policy": {"StagedKubernetesNetworkPolicy", "podSelector: {}, a: 1, ingress: [{}]",
			"", "rules left out: spec.a: unknown field; the policy allows nothing"},
		"of a rule of a staged Kubernetes policy": {"StagedKubernetesNetworkPolicy", "podSelector: {}, ingress: [{to: []}, {}]",
			"in[0] Allow unmatchable\nin[1] Allow\n", "rules left out: spec.ingress[0].to: unknown field; the rule allows nothing"},
		"a hint of a newer version": {"NetworkPolicy", "performanceHints: [Faster], ingress: [{action: Allow}]", "in[0] Allow\n", ""},
		"metadata of a rule":        {"NetworkPolicy", "ingress: [{action: Allow, metadata: {a: 1}}]", "in[0] Allow\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			metadata := "name: a, namespace: shop, shard: 1"
			if strings.Contains(tt.kind, "Global") {
				metadata = "name: a, shard: 1"
			}
			us, problems, ok := stored(t, tt.kind, metadata, tt.spec)
			if got := strings.Join(problems, "\n"); got != tt.problem {
				t.Errorf("problems:\n%s\nwant\n%s", got, tt.problem)
			}
			got := ""
			if ok && us[0].(model.PolicyUpdate).Policy != nil {
				p := us[0].(model.PolicyUpdate).Policy
				got = rulesText(p.Ingress, p.Egress)
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Error(d)
			}
		})
	}
}

// Values that are not known, where the API has a list of them (semantics §12).
func TestStoredObjectsWithUnknownValuesFailClosed(t *testing.T) {
	for name, tt := range map[string]struct{ kind, spec, types, want, problem string }{
		"action": {"NetworkPolicy", "ingress: [{action: Allow}, {action: Mirror, protocol: TCP, metadata: {annotations: {name: x}}}]", "in", "in[0] Allow\nin[1] Deny \"x\"\n",
			`rules left out: spec.ingress[1].action: the action "Mirror" is not known; the rule denies all ingress`},
		"protocol of an Allow": {"GlobalNetworkPolicy", "egress: [{action: Allow, protocol: QUIC, destination: {ports: [443]}}]", "out", "out[0] Allow unmatchable to ports [{443 443}][]\n",
			`rules left out: spec.egress[0].protocol: the protocol "QUIC" is not known; the rule allows nothing`},
		"protocol of a Deny": {"StagedNetworkPolicy", "ingress: [{action: Deny, notProtocol: QUIC}]", "in", "in[0] Deny\n",
			`rules left out: spec.ingress[0].notProtocol: the protocol "QUIC" is not known; the rule denies all ingress, because its action is Deny`},
		"action and a field": {"NetworkPolicy", "ingress: [{action: Mirror, a: 1}]", "in", "in[0] Deny\n",
			`rules left out: spec.ingress[0].action: the action "Mirror" is not known; the rule denies all ingress`},
		"type": {"NetworkPolicy", "types: [Ingress, Forward], ingress: [{action: Allow}]", "in out", "in[0] Deny\nout[0] Deny\n",
			`rules left out: spec.types[1]: the type "Forward" is not known, and may mean either direction; the policy denies everything in its directions`},
		"type alone": {"GlobalNetworkPolicy", "types: [Forward]", "in out", "in[0] Deny\nout[0] Deny\n",
			`rules left out: spec.types[0]: the type "Forward" is not known, and may mean either direction; the policy denies everything in its directions`},
		"a number that is no protocol": {"NetworkPolicy", "ingress: [{action: Allow, protocol: 256}]", "", "",
			`rejected: spec.ingress[0].protocol: "256" must be TCP, UDP, SCTP, UDPLite, ICMP, ICMPv6 or a number of 1 to 255`},
		"protocol of a Kubernetes policy": {"StagedKubernetesNetworkPolicy", "podSelector: {}, ingress: [{ports: [{protocol: QUIC}]}, {}]", "in", "in[0] Allow unmatchable\nin[1] Allow\n",
			`rules left out: spec.ingress[0].ports[0].protocol: Unsupported value: "QUIC": supported values: "TCP", "UDP", "SCTP"; the rule allows nothing`},
		"operator of a Kubernetes policy": {"StagedKubernetesNetworkPolicy", "podSelector: {}, ingress: [{from: [{podSelector: {matchExpressions: [{key: a, operator: Near}]}}]}]", "in", "in[0] Allow unmatchable\n",
			`rules left out: spec.ingress[0].from[0].podSelector.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator; the rule allows nothing`},
		"type of a Kubernetes policy": {"StagedKubernetesNetworkPolicy", "podSelector: {}, policyTypes: [Ingress, Egress, Forward], ingress: [{}]", "in out", "",
			`rules left out: spec.policyTypes[2]: "Forward" is not known; the policy allows nothing`},
	} {
		t.Run(name, func(t *testing.T) {
			metadata := "name: a, namespace: shop"
			if strings.Contains(tt.kind, "Global") {
				metadata = "name: a"
			}
			us, problems, ok := stored(t, tt.kind, metadata, tt.spec)
			if got := strings.Join(problems, "\n"); got != tt.problem {
				t.Errorf("problems:\n%s\nwant\n%s", got, tt.problem)
			}
			got, types := "", ""
			if ok {
				p := us[0].(model.PolicyUpdate).Policy
				got = rulesText(p.Ingress, p.Egress)
				types = strings.TrimSpace(map[bool]string{true: "in"}[p.AppliesIngress] + map[bool]string{true: " out"}[p.AppliesEgress])
			}
			if d := cmp.Diff(tt.want, got); d != "" || types != tt.types {
				t.Errorf("%s, about %q, want %q", d, types, tt.types)
			}
			if d := parse(t, tt.kind, metadata, tt.spec); d.OK {
				t.Error("a manifest is not rejected")
			}
		})
	}
	us, problems, ok := stored(t, "Tier", "name: a", "order: 5, defaultAction: Mirror")
	if tier := us[0].(model.TierUpdate).Tier; !ok || len(problems) != 1 || tier.Default != model.Deny || tier.Order != 5 {
		t.Errorf("a tier: %+v %v %v", tier, problems, ok)
	}
	if _, problems, ok := stored(t, "Tier", "name: kube-admin", "defaultAction: Mirror"); ok || len(problems) != 1 {
		t.Errorf("a built-in tier: %v %v", problems, ok)
	}
}

// A decoder that stops counting fields that are not known must not make those that it leaves out known.
func TestAStoredObjectWithVeryManyUnknownFieldsIsClosed(t *testing.T) {
	rules := strings.Repeat("{action: Allow, a: 1}, ", 120) + "{action: Allow, a: 1}"
	us, problems, ok := stored(t, "NetworkPolicy", "name: a, namespace: shop", "ingress: ["+rules+"]")
	if !ok || len(problems) != 1 {
		t.Fatalf("%v %v", ok, problems)
	}
	p := us[0].(model.PolicyUpdate).Policy
	if got := rulesText(p.Ingress, p.Egress); got != "in[0] Deny\n" {
		t.Errorf("rules:\n%s", got)
	}
}

// Profiles are only in etcd.
func TestStoredProfileWithAnUnknownField(t *testing.T) {
	for spec, want := range map[string]string{
		"a: 1, egress: [{action: Allow}]":                        "in[0] Deny\nout[0] Deny\n",
		"egress: [{action: Allow, a: 1}]":                        "out[0] Allow unmatchable\n",
		"labelsToApply: {a: b}, ingress: [{action: Pass, a: 1}]": "in[0] Deny\n",
	} {
		us, problems, ok := stored(t, "Profile", "name: a", spec)
		if !ok || len(problems) != 1 {
			t.Errorf("%s: %v %v", spec, ok, problems)
			continue
		}
		p := us[0].(model.ProfileUpdate).Profile
		if got := rulesText(p.Ingress, p.Egress); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", spec, got, want)
		}
	}
}

// A stored object whose text has a field twice says two things, so it cannot be read.
func TestStoredObjectWithAFieldTwiceIsRejected(t *testing.T) {
	all := kinds.Read(validate.Pods{})
	k := all[slices.IndexFunc(all, func(k kinds.Kind) bool { return k.Name == "GlobalNetworkPolicy" })]
	text := `{"metadata": {"name": "a"}, "spec": {"order": 1, "order": 2, "new": 1}}`
	if _, problems, ok := k.ReadStored([]byte(text), validate.Ref{Name: "a"}); ok || len(problems) != 1 {
		t.Errorf("%v %v", ok, problems)
	}
}
