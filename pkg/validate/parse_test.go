package validate_test

import (
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
	. "github.com/margay-project/margay/pkg/validate"
)

// compare makes diffs of model values readable: selectors by their text, addresses by theirs.
var compare = cmp.Options{
	cmp.Comparer(func(a, b *selector.Selector) bool { return a.Equal(b) }),
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

// parseOne reads a file that holds one document.
func parseOne(t *testing.T, text string) Document {
	t.Helper()
	docs := kinds.Parse("dir/a.yaml", []byte(text))
	if len(docs) != 1 {
		t.Fatalf("got %d documents, want 1: %v", len(docs), docs)
	}
	checkDocuments(t, docs, text)
	return docs[0]
}

// parseUpdate reads a file that holds one object with nothing wrong.
func parseUpdate(t *testing.T, text string) model.Update {
	t.Helper()
	d := parseOne(t, text)
	if len(d.Problems) > 0 || !d.OK {
		t.Fatalf("ok %v, problems:\n%s", d.OK, problemText(d))
	}
	return d.Updates[0]
}

func problemText(d Document) string {
	var lines []string
	for _, p := range d.Problems {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

// checkDocuments checks what is true of every result of Parse.
func checkDocuments(t *testing.T, docs []Document, text string) {
	t.Helper()
	lines := strings.Count(text, "\n") + strings.Count(text, "\r") + strings.Count(text, "\u2028") + 1
	for i, d := range docs {
		rejected := false
		for _, p := range d.Problems {
			rejected = rejected || p.Severity == Rejected
			if s := p.String(); strings.ContainsAny(s, "\n\r\x00") || !strings.HasPrefix(s, "dir/a.yaml") {
				t.Errorf("document %d: problem %q is not one line that begins with the file", i, s)
			}
			if p.Ref.Line < 0 || p.Ref.Line > lines {
				t.Errorf("document %d: problem at line %d of %d", i, p.Ref.Line, lines)
			}
			if p.Reason == "" || len(p.String()) > 10*MaxTextLen {
				t.Errorf("document %d: problem of %d bytes: %.200s", i, len(p.String()), p)
			}
		}
		if d.OK && (rejected || len(d.Updates) == 0) {
			t.Errorf("document %d (%v) is usable with %d updates, rejected %v", i, d.Ref, len(d.Updates), rejected)
		}
		if !d.OK && (len(d.Problems) == 0 || len(d.Updates) > 0) {
			t.Errorf("document %d (%v) is not usable, with %d problems and %d updates",
				i, d.Ref, len(d.Problems), len(d.Updates))
		}
	}
}

// summary is one line per document and problem.
func summary(docs []Document) []string {
	var out []string
	for _, d := range docs {
		out = append(out, d.Ref.String()+" "+strconv.FormatBool(d.OK))
		for _, p := range d.Problems {
			out = append(out, "  "+p.String())
		}
	}
	return out
}

func TestParseReadsTheDocumentsOfAFile(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string
	}{
		"documents, comments and empty ones": {
			"# a licence\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n# nothing\n---\n" +
				"--- # and\n--- {apiVersion: v1, kind: Namespace, metadata: {name: b}}\n",
			[]string{"dir/a.yaml:3: Namespace shop true", "dir/a.yaml:10: Namespace b true"},
		},
		"nothing": {"", nil},
		"Windows line ends, end marker, directive": {
			"%YAML 1.1\r\n---\r\napiVersion: v1\r\nkind: Namespace\r\nmetadata:\r\n  name: a\r\n...\r\n" +
				"---\r\napiVersion: v1\r\nkind: Namespace\r\nmetadata:\r\n  name: b\r\n",
			[]string{"dir/a.yaml:3: Namespace a true", "dir/a.yaml:9: Namespace b true"},
		},
		"marker inside a block scalar": {
			"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n  annotations:\n    x: |\n      ---\n      y\n",
			[]string{"dir/a.yaml:1: Namespace a true"},
		},
		"a broken document leaves the others alone": {
			"apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\nkind: [\n---\n" +
				"apiVersion: v1\nkind: Namespace\nmetadata: {name: b}\n",
			[]string{"dir/a.yaml:1: Namespace a true",
				"dir/a.yaml:5 false",
				"  dir/a.yaml:5: rejected: not valid YAML: did not find expected node content",
				"dir/a.yaml:7: Namespace b true"},
		},
		"JSON with tabs": {
			"{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"Namespace\",\n\t\"metadata\": {\n\t\t\"name\": \"A\"\n\t}\n}\n",
			[]string{"dir/a.yaml:1: Namespace A false",
				"  dir/a.yaml:5: Namespace A: rejected: metadata.name: Invalid value: \"A\": a lowercase RFC 1123 label " +
					"must consist of lower case alphanumeric characters or '-', and must start and end with an " +
					"alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is " +
					"'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"},
		},
		"anchors and merges": {
			"apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n  labels: &l {b: c}\n  annotations:\n    <<: *l\n    d: e\n",
			[]string{"dir/a.yaml:1: Pod default/a true"},
		},
		"List": {
			"apiVersion: v1\nkind: List\nmetadata: {resourceVersion: \"\"}\nitems:\n" +
				"- apiVersion: v1\n  kind: Namespace\n  metadata:\n    name: a\n" +
				"- apiVersion: v1\n  kind: Namespace\n  metadata:\n    name: A\n",
			[]string{"dir/a.yaml:5: Namespace a true", "dir/a.yaml:9: Namespace A false",
				"  dir/a.yaml:12: Namespace A: rejected: metadata.name: Invalid value: \"A\": a lowercase RFC 1123 label " +
					"must consist of lower case alphanumeric characters or '-', and must start and end with an " +
					"alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is " +
					"'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"},
		},
		"list of one kind, as the API server sends it": {
			"apiVersion: v1\nkind: NamespaceList\nitems:\n- metadata: {name: a}\n- metadata: {name: b}\n",
			[]string{"dir/a.yaml:4: Namespace a true", "dir/a.yaml:5: Namespace b true"},
		},
		"List with a misspelt field": {
			"apiVersion: v1\nkind: List\nitem:\n- {apiVersion: v1, kind: Namespace, metadata: {name: a}}\n",
			[]string{"dir/a.yaml:1: List false", "  dir/a.yaml:3: List: rejected: item: unknown field (did you mean items?)"},
		},
		"List in a List": {
			"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: List, items: []}\n- 7\n",
			[]string{"dir/a.yaml:4: List false", "  dir/a.yaml:4: List: rejected: a list inside a list is not read",
				"dir/a.yaml:5 false", "  dir/a.yaml:5: rejected: not an object: a document must have apiVersion, kind and metadata"},
		},
		"no object": {
			"just text\n---\n- a\n---\nkind: Pod\n---\napiVersion: v1\n",
			[]string{
				"dir/a.yaml:1 false", "  dir/a.yaml:1: rejected: not an object: a document must have apiVersion, kind and metadata",
				"dir/a.yaml:3 false", "  dir/a.yaml:3: rejected: not an object: a document must have apiVersion, kind and metadata",
				"dir/a.yaml:5: Pod false", "  dir/a.yaml:5: Pod: rejected: not an object: it has no apiVersion",
				"dir/a.yaml:7 false", "  dir/a.yaml:7: rejected: not an object: it has no kind"},
		},
		"kinds that are not read": {
			"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n---\n" +
				"apiVersion: example.org/v3\nkind: NetworkPolicy\nmetadata: {name: a, namespace: b}\n---\n" +
				"apiVersion: v1\nkind: NetworkPolicy\nmetadata: {name: a, namespace: b}\n",
			[]string{
				"dir/a.yaml:1: Deployment a false", "  dir/a.yaml:1: Deployment a: warning: apps/v1 Deployment is not a kind Margay reads",
				"dir/a.yaml:5: NetworkPolicy.example.org b/a false",
				"  dir/a.yaml:5: NetworkPolicy.example.org b/a: rejected: example.org/v3 NetworkPolicy is not a kind Margay reads, so it is not enforced",
				"dir/a.yaml:9: NetworkPolicy b/a false", // stands for the one that it is meant to be
				"  dir/a.yaml:9: NetworkPolicy.core b/a: rejected: v1 NetworkPolicy is not a kind Margay reads, so it is not used (did you mean networking.k8s.io/v1 NetworkPolicy?)"},
		},
		"policy of kinds that are not read": {
			"apiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\nmetadata: {name: a}\n---\n" +
				"apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: a, namespace: b}\n---\n" +
				"apiVersion: projectcalico.org/v3\nkind: HostEndpoint\nmetadata: {name: a}\n",
			[]string{
				"dir/a.yaml:1: AdminNetworkPolicy a false",
				"  dir/a.yaml:1: AdminNetworkPolicy a: rejected: policy.networking.k8s.io/v1alpha1 AdminNetworkPolicy is not a kind Margay reads, so it is not enforced",
				"dir/a.yaml:5: CiliumNetworkPolicy b/a false",
				"  dir/a.yaml:5: CiliumNetworkPolicy b/a: rejected: cilium.io/v2 CiliumNetworkPolicy is not a kind Margay reads, so it is not enforced",
				"dir/a.yaml:9: HostEndpoint a false",
				"  dir/a.yaml:9: HostEndpoint a: rejected: projectcalico.org/v3 HostEndpoint is not a kind Margay reads, so it is not enforced"},
		},
		"misspelt kinds": {
			"apiVersion: networking.k8s.io/v1\nkind: NetworkPolcy\nmetadata: {name: a, namespace: b}\n---\n" +
				"apiVersion: v1\nkind: namespace\nmetadata: {name: a}\n---\n" +
				"apiVersion: networking/v1\nkind: Networkpolicy\nmetadata: {name: a}\n",
			[]string{
				"dir/a.yaml:1: NetworkPolicy b/a false",
				"  dir/a.yaml:1: NetworkPolcy b/a: rejected: networking.k8s.io/v1 NetworkPolcy is not a kind Margay reads, so it is not used (did you mean networking.k8s.io/v1 NetworkPolicy?)",
				"dir/a.yaml:5: Namespace a false",
				"  dir/a.yaml:5: namespace a: rejected: v1 namespace is not a kind Margay reads, so it is not used (did you mean v1 Namespace?)",
				"dir/a.yaml:9: NetworkPolicy default/a false",
				"  dir/a.yaml:9: Networkpolicy a: rejected: networking/v1 Networkpolicy is not a kind Margay reads, so it is not used (did you mean networking.k8s.io/v1 NetworkPolicy?)"},
		},
		"kinds of others with names like ours": {
			"apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: a, namespace: b}\n---\n" +
				"apiVersion: example.com/v1\nkind: Nodes\nmetadata: {name: a}\n---\n" +
				"apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: a, namespace: b}\n",
			[]string{
				"dir/a.yaml:1: Service.serving.knative.dev b/a false",
				"  dir/a.yaml:1: Service.serving.knative.dev b/a: warning: serving.knative.dev/v1 Service is not a kind Margay reads",
				"dir/a.yaml:5: Nodes a false", "  dir/a.yaml:5: Nodes a: warning: example.com/v1 Nodes is not a kind Margay reads",
				"dir/a.yaml:9: Role b/a false", "  dir/a.yaml:9: Role b/a: warning: rbac.authorization.k8s.io/v1 Role is not a kind Margay reads"},
		},
		"another version of a kind that is read": {
			"apiVersion: networking.k8s.io/v9\nkind: NetworkPolicy\nmetadata: {name: a, namespace: b}\n",
			[]string{"dir/a.yaml:1: NetworkPolicy b/a false",
				"  dir/a.yaml:1: NetworkPolicy b/a: rejected: networking.k8s.io/v9 NetworkPolicy is not a kind Margay reads, so it is not used (did you mean networking.k8s.io/v1 NetworkPolicy?)"},
		},
		"names and namespaces": {
			"apiVersion: v1\nkind: Pod\nmetadata: {}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: m, namespace: x}\n---\n" +
				"apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: a.b}\n",
			[]string{
				"dir/a.yaml:1: Pod default/ false",
				"  dir/a.yaml:3: Pod default/: rejected: metadata.name: Required value: an object must have a name",
				"dir/a.yaml:5: Node m true",
				"dir/a.yaml:9: Pod a.b/p false",
				"  dir/a.yaml:11: Pod a.b/p: rejected: metadata.namespace: Invalid value: \"a.b\": must not contain dots"},
		},
		"types": {
			"apiVersion: v1\nkind: Pod\nmetadata: {name: p, labels: {a: yes}}\n---\n" +
				"apiVersion: v1\nkind: Pod\nmetadata: {name: 7}\n---\n" +
				"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: []\n---\n" +
				"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers: {}\n",
			[]string{
				"dir/a.yaml:1: Pod default/p false",
				"  dir/a.yaml:3: Pod default/p: rejected: metadata.labels: bool where a string is expected; put it in quotes",
				"dir/a.yaml:5: Pod false", "  dir/a.yaml:7: Pod: rejected: metadata.name: number where a string is expected; put it in quotes",
				"dir/a.yaml:9: Pod default/p false", "  dir/a.yaml:12: Pod default/p: rejected: spec: array where an object is expected",
				"dir/a.yaml:14: Pod default/p false",
				"  dir/a.yaml:18: Pod default/p: rejected: spec.containers: object where a list is expected"},
		},
		"labels": {
			"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n  labels: {\"a b\": c}\n",
			[]string{"dir/a.yaml:1: Namespace a false",
				"  dir/a.yaml:5: Namespace a: rejected: metadata.labels: Invalid value: \"a b\": name part must consist of " +
					"alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character " +
					"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is " +
					"'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"},
		},
		"fields of a newer cluster": {
			"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {fromTheFuture: 1}\n",
			[]string{"dir/a.yaml:1: Pod default/p true"},
		},
		"a field written twice": {
			"apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {}\nspec: {}\n",
			[]string{"dir/a.yaml:1: Pod default/p false", "  dir/a.yaml:5: Pod default/p: rejected: spec: field is written twice"},
		},
		"a name written twice": {
			"apiVersion: v1\nkind: Pod\nmetadata:\n  name: p\n  name: q\n",
			[]string{"dir/a.yaml:1 false",
				"  dir/a.yaml:5: rejected: metadata.name: field is written twice, so it is not known which object is meant"},
		},
		"a name written twice, of a kind that is not read": {
			"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a, name: b}\n",
			[]string{"dir/a.yaml:1: Deployment b false", "  dir/a.yaml:1: Deployment b: warning: apps/v1 Deployment is not a kind Margay reads"},
		},
		"no line between a policy and an object of a kind that is not read": {
			"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\nspec: {podSelector: {}}\n" +
				"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: b}\n",
			[]string{"dir/a.yaml:1 false",
				"  dir/a.yaml:5: rejected: apiVersion: field is written twice, so it is not known which object is meant: is a line \"---\" missing between two?"},
		},
		"no line between two objects in JSON": {
			`{"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "a"}, "kind": "Namespace", "metadata": {"name": "b"}}`,
			[]string{"dir/a.yaml:1 false",
				"  dir/a.yaml:1: rejected: kind: field is written twice, so it is not known which object is meant: is a line \"---\" missing between two?"},
		},
		"two objects in one item of a List": {
			"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: a}}\n" +
				"- apiVersion: v1\n  kind: Namespace\n  metadata: {name: b}\n  metadata: {name: c}\n",
			[]string{"dir/a.yaml:4: Namespace a true", "dir/a.yaml:5 false",
				"  dir/a.yaml:8: rejected: metadata: field is written twice, so it is not known which object is meant: is a line \"---\" missing between two?"},
		},
		"items written twice": {
			"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: a}}\nitems: []\n",
			[]string{"dir/a.yaml:1: List false", "  dir/a.yaml:5: List: rejected: items: field is written twice"},
		},
		"lists without items": {
			"apiVersion: v1\nkind: List\nmetadata: {resourceVersion: \"\"}\nitems: []\n---\n" +
				"{\"apiVersion\": \"v1\", \"items\": [], \"kind\": \"List\", \"metadata\": {\"resourceVersion\": \"\"}}\n---\n" +
				"apiVersion: v1\nkind: List\nitems:\n---\n" +
				"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicyList\nmetadata: {}\nitems: []\n",
			nil,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			docs := kinds.Parse("dir/a.yaml", []byte(tt.text))
			checkDocuments(t, docs, tt.text)
			if diff := cmp.Diff(tt.want, summary(docs)); diff != "" {
				t.Errorf("documents (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRefusesAFileThatIsTooLarge(t *testing.T) {
	got := summary(kinds.Parse("dir/a.yaml", make([]byte, MaxFileSize+1)))
	want := []string{"dir/a.yaml false",
		"  dir/a.yaml: rejected: the file has 16777217 bytes, more than the limit of 16777216"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("documents (-want +got):\n%s", diff)
	}
}

func TestParseBoundsTheProblemsOfOneObject(t *testing.T) {
	d := parseOne(t, "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\nspec:\n  podSelector: {}\n"+
		"  ingress:\n  - ports: ["+strings.Repeat("{port: 0}, ", 1000)+"]\n")
	if len(d.Problems) != MaxProblems+1 {
		t.Fatalf("%d problems, want %d", len(d.Problems), MaxProblems+1)
	}
	want := "dir/a.yaml:1: NetworkPolicy default/a: rejected: 980 more problems like these"
	if got := d.Problems[0].String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestSeedManifestsAreUsable(t *testing.T) {
	for name, objects := range map[string]int{"networkpolicies.yaml": 2, "pods.yaml": 4, "services.json": 2} {
		text, err := os.ReadFile("testdata/seed/" + name)
		if err != nil {
			t.Fatal(err)
		}
		docs := kinds.Parse("dir/a.yaml", text)
		checkDocuments(t, docs, string(text))
		for _, d := range docs {
			if !d.OK || len(d.Problems) > 0 {
				t.Errorf("%s: %v: ok %v\n%s", name, d.Ref, d.OK, problemText(d))
			}
		}
		if len(docs) != objects {
			t.Errorf("%s: %d objects, want %d", name, len(docs), objects)
		}
	}
}
