package kinds

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// No two rows are one kind, and what is read is said in full.
func TestRowsAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range All(validate.Pods{}) {
		for _, gv := range k.Versions {
			if id := gv.String() + " " + k.Name; seen[id] {
				t.Errorf("%s has two rows", id)
			} else {
				seen[id] = true
			}
		}
		if k.Resource != strings.ToLower(k.Resource) || k.Resource == "" || len(k.Versions) == 0 {
			t.Errorf("%+v", k)
		}
		if k.IsRead() != (k.Read != nil) || k.IsRead() != (k.ReadStored != nil) || k.IsRead() != (k.Absent != nil) {
			t.Errorf("%s is read in part", k.Name)
		}
		if len(k.Versions) > 1 && !slices.Equal(k.Versions, calicoGroups) {
			t.Errorf("%s: sources decide for all kinds that may be served in two places together", k.Name)
		}
		if k.Types != nil && (k.Optional || len(k.Versions) != 1) {
			t.Errorf("%s: a kind with a Go type is served in one place, always", k.Name)
		}
	}
}

// leastSpecs are the smallest specs that objects of a kind may have, by kind; others may be empty.
var leastSpecs = map[string]string{
	"ClusterNetworkPolicy": `{"tier": "Admin", "priority": 1, "subject": {"namespaces": {}}}`,
	"WorkloadEndpoint":     `{"node": "n", "interfaceName": "cali1"}`,
}

// What is absent is what an object of the name means, from text and from a cluster.
func TestAbsentIsWhatWasThere(t *testing.T) {
	for _, k := range Read(validate.Pods{}) {
		namespace := ""
		if k.Namespaced {
			namespace = "shop"
		}
		absent := k.Absent(namespace, "a")
		spec := "{}"
		if least, some := leastSpecs[k.Name]; some {
			spec = least
		}
		updates, problems, ok := k.Read([]byte(`{"metadata": {"name": "a"}, "spec": `+spec+`}`), validate.Ref{Kind: k.Name, Namespace: namespace, Name: "a"})
		if !ok || len(updates) != len(absent) || len(absent) == 0 {
			t.Errorf("%s: %v, absent %v (%v)", k.Name, updates, absent, problems)
			continue
		}
		for i, u := range updates {
			was, _ := model.KeyOf(u)
			if is, present := model.KeyOf(absent[i]); is != was || present {
				t.Errorf("%s: absent is %v of %v", k.Name, is, was)
			}
		}
	}
}

// An answer of another type than the question is one problem that names the object.
func TestAnotherTypeIsAProblem(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": "shop", "name": "a"}}}
	for _, k := range Read(validate.Pods{}) {
		_, problems, ok := k.Convert(o)
		if k.Types != nil && (ok || len(problems) != 1 || problems[0].Ref != (validate.Ref{Kind: k.Name, Namespace: "shop", Name: "a"})) {
			t.Errorf("%s: %v, %v", k.Name, problems, ok)
		}
	}
}

// rulesOf are the rules of a ClusterRole. The manifest may be a template of Helm in all other places.
func rulesOf(t *testing.T, path ...string) []rbacv1.PolicyRule {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "deploy"}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	_, rules, _ := strings.Cut(string(text), "\nrules:\n")
	rules, _, _ = strings.Cut(rules, "\n---\n")
	role := rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict([]byte("rules:\n"+rules), &role); err != nil || len(role.Rules) == 0 {
		t.Fatalf("%v: %d rules, %v", path, len(role.Rules), err)
	}
	return role.Rules
}

// The agent's ClusterRole grants what the sources and Events ask for.
func TestTheClusterRoleGrantsEveryKind(t *testing.T) {
	rules := rulesOf(t, "base", "clusterrole.yaml")
	granted := func(group, resource, verb string) bool {
		return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb)
		})
	}
	for _, k := range Served(validate.Pods{}) {
		resources := k.GroupVersionResources()
		if k.Tiered {
			resources = append(resources, k.TierResource().WithVersion(""))
		}
		for _, r := range resources {
			for _, verb := range []string{"get", "list", "watch"} {
				if !granted(r.Group, r.Resource, verb) {
					t.Errorf("deploy/base/clusterrole.yaml does not grant %s of %s in group %q", verb, r.Resource, r.Group)
				}
			}
		}
	}
	for _, r := range rules {
		if len(r.ResourceNames) > 0 {
			t.Errorf("deploy/base/clusterrole.yaml: %v with resourceNames: what they leave out is not reported by every server", r.Resources)
		}
	}
}

func TestTheChartGrantsWhatTheBaseGrants(t *testing.T) {
	base, chart := rulesOf(t, "base", "clusterrole.yaml"), rulesOf(t, "helm", "margay", "templates", "clusterrole.yaml")
	if diff := cmp.Diff(base, chart); diff != "" {
		t.Errorf("rules of deploy/base (-) and of the chart (+):\n%s", diff)
	}
}

// Calico's API server checks tiers for four kinds: its isTieredPolicy names them.
func TestTieredKindsAreThoseOfCalicosAPIServer(t *testing.T) {
	var tiered []string
	for _, k := range All(validate.Pods{}) {
		if k.Tiered {
			tiered = append(tiered, k.TierResource().String())
		}
	}
	slices.Sort(tiered)
	want := []string{"tier.globalnetworkpolicies.projectcalico.org", "tier.networkpolicies.projectcalico.org",
		"tier.stagedglobalnetworkpolicies.projectcalico.org", "tier.stagednetworkpolicies.projectcalico.org"}
	if !slices.Equal(tiered, want) {
		t.Errorf("tiered: %v, want %v", tiered, want)
	}
}
