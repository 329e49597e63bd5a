package kinds_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

var calicoVersions = []string{"projectcalico.org/v3", "crd.projectcalico.org/v1"}

// readStored reads one object as a cluster and as etcd have it, which mean the same, and returns its policy; nil: it is rejected.
func readStored(t *testing.T, version, kind, name, spec string) (*model.Policy, []string) {
	t.Helper()
	text, err := yaml.YAMLToJSON(fmt.Appendf(nil, "{apiVersion: %s, kind: %s, metadata: {name: '%s', namespace: shop}, spec: {%s}}", version, kind, name, spec))
	if err != nil {
		t.Fatal(err)
	}
	all := kinds.Read(validate.Pods{})
	k := all[slices.IndexFunc(all, func(k kinds.Kind) bool {
		return k.Name == kind && slices.ContainsFunc(k.Versions, func(v schema.GroupVersion) bool { return v.String() == version })
	})]
	namespace := map[bool]string{true: "shop"}[k.Namespaced]
	us, problems, ok := k.ReadStored(text, validate.Ref{Kind: k.Ref, Namespace: namespace, Name: name})
	if k.Types == nil {
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(text); err != nil {
			t.Fatal(err)
		}
		o.SetNamespace(namespace)
		inCluster, same, sameOK := k.Convert(o)
		if ok != sameOK || !slices.Equal(problems, same) || !reflect.DeepEqual(us, inCluster) {
			t.Errorf("etcd: %v %v, cluster: %v %v", ok, problems, sameOK, same)
		}
	}
	var texts []string
	for _, p := range problems {
		texts = append(texts, strings.TrimPrefix(p.String(), p.Ref.String()+": "))
	}
	if !ok {
		return nil, texts
	}
	return us[0].(model.PolicyUpdate).Policy, texts
}

// manifest reads the same object as a directory has it.
func manifest(version, kind, name, spec string) validate.Document {
	namespace := ", namespace: shop"
	if strings.Contains(kind, "Global") || kind == "ClusterNetworkPolicy" {
		namespace = ""
	}
	return kinds.Parse("a.yaml", fmt.Appendf(nil, "apiVersion: %s\nkind: %s\nmetadata: {name: '%s'%s}\nspec: {%s}\n", version, kind, name, namespace, spec))[0]
}

func times(n int, format string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(list, ", ")
}

// A stored policy is read although a manifest of it is rejected, as long as it can be understood (semantics §12).
func TestAStoredPolicyIsCheckedForWhatIsNeededToUnderstandIt(t *testing.T) {
	const np, gnp = "NetworkPolicy", "GlobalNetworkPolicy"
	either := func(list string) string { return "ingress: [{action: Deny, " + list + "}]" }
	for name, test := range map[string]struct {
		kind, spec string
		inEither   bool // a manifest of crd.projectcalico.org is rejected, too
		problem    string
	}{
		"nets":                      {gnp, either("source: {nets: [" + times(300, "'2001:db8::%x'") + "]}"), false, ""},
		"ports":                     {gnp, either("protocol: TCP, destination: {ports: [" + times(60, "1%03d") + "]}"), false, ""},
		"rules":                     {np, "egress: [" + times(1025, "{action: Deny, destination: {nets: ['2001:db8::%x']}}") + "]", false, ""},
		"a net twice":               {np, either("source: {nets: [10.0.0.0/8, 10.0.0.0/8]}"), false, ""},
		"a service account twice":   {np, either("source: {serviceAccounts: {names: [a, a]}}"), false, ""},
		"a type twice":              {np, "types: [Ingress, Ingress, Egress]", true, ""},
		"a long selector":           {np, "selector: \"app in {" + times(300, "'app-%d'") + "}\"", true, ""},
		"a longer selector":         {gnp, "selector: \"app == '" + strings.Repeat("x", 60_000) + "'\"", true, ""},
		"a long selector in a rule": {np, either("source: {selector: \"app in {" + times(300, "'app-%d'") + "}\"}"), true, ""},
		"annotations":               {np, either("metadata: {annotations: {'has space': x}}"), true, ""},
		"a hint twice":              {np, "performanceHints: [AssumeNeededOnEveryNode, AssumeNeededOnEveryNode]", true, ""},
		"both families": {np, either("source: {nets: [10.0.0.0/8, 'fd00::/8']}"), true,
			"warning: spec.ingress[0].source.nets: fd00::/8 is of IPv6, and the rule has CIDRs of IPv4: each list is for packets of the families that it has"},
		"not of both families": {gnp, either("source: {nets: [10.0.0.0/8]}, destination: {notNets: ['fd00::/8']}"), true,
			"warning: spec.ingress[0].destination.notNets: fd00::/8 is of IPv6, and the rule has CIDRs of IPv4: each list is for packets of the families that it has"},
		"the other family": {np, either("ipVersion: 6, source: {notNets: [10.0.0.0/8]}"), true,
			"warning: spec.ingress[0].source.notNets: 10.0.0.0/8 is of IPv4, and ipVersion is 6: it matches no packet"},
		"a protocol of the other family": {np, either("ipVersion: 6, protocol: ICMP"), true, ""},
		"an action in lower case":        {np, "ingress: [{action: allow}]", true, ""},
		"a type in lower case":           {np, "types: [egress]", true, ""},
	} {
		var read []*model.Policy
		for _, version := range calicoVersions {
			p, problems := readStored(t, version, test.kind, "a", test.spec)
			if got := strings.Join(problems, "\n"); p == nil || got != test.problem {
				t.Errorf("%s, %s: %v\n%s", name, version, p, got)
			}
			read = append(read, p)
			d := manifest(version, test.kind, "a", test.spec)
			if wants := version == calicoVersions[0] || test.inEither; d.OK == wants {
				t.Errorf("%s: a manifest of %s: ok %v: %v", name, version, d.OK, d.Problems)
			}
		}
		if !reflect.DeepEqual(read[0], read[1]) {
			t.Errorf("%s: the two groups differ", name)
		}
	}
}

func TestAStoredPolicyIsRejectedForWhatCannotBeUnderstood(t *testing.T) {
	for name, test := range map[string]struct{ spec, want string }{
		"a net":               {"ingress: [{action: Deny, source: {nets: [10.0.0.0/33]}}]", `spec.ingress[0].source.nets[0]: "10.0.0.0/33" is not an address or a CIDR`},
		"a selector too long": {"selector: \"app == '" + strings.Repeat("x", 66_000) + "'\"", "spec.selector: 66009 bytes long, the limit is 65536"},
		"a selector too deep": {"selector: \"" + strings.Repeat("(", 10_000) + "\"", "spec.selector: position 101: expected at most 100 '(' and '!' within each other"},
		"a number of a type":  {"types: ['']", `spec.types[0]: "" must be Ingress or Egress`},
	} {
		for _, version := range calicoVersions {
			p, problems := readStored(t, version, "GlobalNetworkPolicy", "a", test.spec)
			if p != nil || len(problems) != 1 || !strings.HasPrefix(problems[0], "rejected: "+test.want) {
				t.Errorf("%s: %v %q", name, p, problems)
			}
		}
	}
}

func TestNamesOfStoredPolicies(t *testing.T) {
	for name, test := range map[string]struct{ stored, manifest bool }{
		strings.Repeat("a", 63):                   {true, true},
		strings.Repeat("a", 64):                   {true, false},
		"default." + strings.Repeat("a", 64):      {true, false},
		"three.part.name":                         {true, false},
		strings.Repeat("a", 253):                  {true, false},
		strings.Repeat("a", 254):                  {false, false},
		"Upper":                                   {false, false},
		"a_b":                                     {false, false},
		"knp.default." + strings.Repeat("a", 241): {true, true},
	} {
		for _, kind := range []string{"NetworkPolicy", "GlobalNetworkPolicy", "StagedNetworkPolicy", "StagedGlobalNetworkPolicy"} {
			for _, version := range calicoVersions {
				if p, problems := readStored(t, version, kind, name, "tier: "+strings.Repeat("t", 64)); (p != nil) != test.stored {
					t.Errorf("stored %s %s: %v %v", kind, name, p != nil, problems)
				}
				if d := manifest(version, kind, name, "order: 1"); d.OK != test.manifest {
					t.Errorf("manifest %s %s: %v %v", kind, name, d.OK, d.Problems)
				}
			}
		}
	}
}

// One prefix in two spellings is valid in every release of Calico. In a manifest it may be a mistake, so it is reported.
func TestOnePrefixInTwoSpellings(t *testing.T) {
	const spec = "ingress: [{action: Deny, source: {nets: [10.0.0.1, 10.0.0.1/32], notNets: [10.0.0.0/8, 10.1.0.0/8]}}]"
	for _, version := range calicoVersions {
		p, _ := readStored(t, version, "NetworkPolicy", "a", spec)
		d := manifest(version, "NetworkPolicy", "a", spec)
		if p == nil || !d.OK {
			t.Fatalf("rejected: %v", d.Problems)
		}
		for _, p := range []*model.Policy{p, d.Updates[0].(model.PolicyUpdate).Policy} {
			if s := p.Ingress[0].Source; len(s.Nets) != 1 || len(s.NotNets) != 1 {
				t.Errorf("nets %v, not %v", s.Nets, s.NotNets)
			}
		}
		for i, want := range []string{`spec.ingress[0].source.nets[1]: "10.0.0.1/32" is there twice: as "10.0.0.1", too`,
			`spec.ingress[0].source.notNets[1]: "10.1.0.0/8" is there twice: as "10.0.0.0/8", too`} {
			if len(d.Problems) != 2 || d.Problems[i].Severity != validate.Warning || d.Problems[i].Field+": "+d.Problems[i].Reason != want {
				t.Errorf("problems %v, want %s", d.Problems, want)
			}
		}
	}
}
