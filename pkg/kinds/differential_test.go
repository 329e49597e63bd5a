package kinds_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// wholeObjects have every field that a kind has.
var wholeObjects = map[string]string{
	"Tier":             "order: 5, defaultAction: Pass",
	"NetworkSet":       "nets: [10.0.0.0/8, 192.0.2.1, 'fd00::/8']",
	"GlobalNetworkSet": "nets: [10.0.0.0/8, 192.0.2.1, 'fd00::/8']",
	"NetworkPolicy": "tier: t, order: 5.5, selector: \"app == 'db'\", serviceAccountSelector: all(), types: [Ingress, Egress], performanceHints: [AssumeNeededOnEveryNode], " +
		wholeRules,
	"GlobalNetworkPolicy": "tier: t, order: -1, selector: has(app), namespaceSelector: \"team in {'a', 'b'}\", serviceAccountSelector: a != 'b', doNotTrack: false, preDNAT: false, applyOnForward: true, " +
		wholeRules,
	"StagedNetworkPolicy":       "stagedAction: Set, tier: t, order: 5, selector: app == 'db', types: [Ingress], " + wholeRules,
	"StagedGlobalNetworkPolicy": "stagedAction: Learn, tier: t, order: 5, namespaceSelector: all(), types: [Egress], " + wholeRules,
	"StagedKubernetesNetworkPolicy": "stagedAction: Set, policyTypes: [Ingress, Egress], podSelector: {matchLabels: {app: db}, matchExpressions: [{key: a, operator: In, values: [b]}]}, " +
		"ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}, {podSelector: {}, namespaceSelector: {}}], ports: [{port: 80, endPort: 90, protocol: TCP}]}], " +
		"egress: [{to: [{podSelector: {matchExpressions: [{key: a, operator: Exists}]}}], ports: [{port: http, protocol: UDP}]}]",
	"networking.k8s.io/v1 NetworkPolicy": "policyTypes: [Ingress, Egress], podSelector: {matchLabels: {app: db}, matchExpressions: [{key: a, operator: In, values: [b]}]}, " +
		"ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}, {podSelector: {}, namespaceSelector: {matchLabels: {x: y}}}], ports: [{port: 80, endPort: 90, protocol: TCP}]}, {}], " +
		"egress: [{to: [{podSelector: {matchExpressions: [{key: a, operator: Exists}]}}], ports: [{port: http, protocol: UDP}]}]",
	"policy.networking.k8s.io/v1alpha2 ClusterNetworkPolicy": "tier: Admin, priority: 5, subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {a: b}}}}, " +
		"ingress: [{name: one, action: Accept, from: [{namespaces: {matchLabels: {a: b}}}], protocols: [{tcp: {destinationPort: {number: 80}}}, {destinationNamedPort: web}]}], " +
		"egress: [{action: Deny, to: [{networks: [10.0.0.0/8, 'fd00::/8']}], protocols: [{udp: {destinationPort: {range: {start: 1, end: 2}}}}]}, {action: Pass, to: [{nodes: {}}]}]",
	"Profile": "labelsToApply: {a: b}, " + wholeRules,
}

const wholeRules = "ingress: [{action: Allow, ipVersion: 4, protocol: TCP, source: {nets: [10.0.0.0/8], notNets: [10.1.0.0/16], selector: \"app == 'web'\", namespaceSelector: global(), notSelector: has(x)," +
	" serviceAccounts: {names: [sa], selector: \"r == 's'\"}, ports: [1, '2:3', name], notPorts: [9]}, destination: {ports: [80]}, metadata: {annotations: {name: rule}}}," +
	"{action: Deny, notProtocol: 6, notICMP: {type: 8}, source: {services: {name: s, namespace: n}}}, {action: Pass, protocol: ICMP, icmp: {type: 8, code: 0}}, {action: Log}, " +
	"{action: Allow, protocol: tcp, http: {methods: [GET], paths: [{exact: /a}, {prefix: /b}]}}], " +
	"egress: [{action: Allow, protocol: SCTP, destination: {services: {name: s, namespace: n}}}, {action: Deny, notProtocol: UDPLite, destination: {notSelector: \"a starts with 'b'\"}}]"

// oddValues stand in the place of any value.
var oddValues = []string{"null", `""`, `" "`, "0", "-1", "1", "4", "6", "58", "255", "256", "65535", "65536", "1.5", "1e3", "1e400", "-0", "true", "false", "[]", "{}", "[null]", `[""]`, "[1]", `["a", "a"]`,
	`{"a": "b"}`, `"allow"`, `"PASS"`, `"Drop"`, `"ingress"`, `"Forward"`, `"tcp"`, `"icmpv6"`, `"QUIC"`, `"6"`, `"06"`, `"+6"`, `"80:70"`, `"70:80"`, `"0:0"`, `"80:"`, `"80 "`, `"a.b-c_d"`, `"a/b"`,
	`"10.0.0.1/8"`, `"::ffff:10.0.0.0/104"`, `"0.0.0.0/0"`, `"::/0"`, `"10.0.0.1"`, `"010.0.0.0/8"`, `"fe80::1%eth0"`, `"10.0.0.0/33"`, `"10.0.0.0/08"`, `"all()"`, `"global()"`, `"!global()"`, `"has(a) && all()"`,
	`"a in {}"`, `"a not in {'x',}"`, `"a notin {\"x\"}"`, `"a == 'all()'"`, `"a == b"`, `"a contains 'x' || (b ends with \"'\")"`, `"\u00e9 == 'a'"`, `"a == '\u00e9'"`, `"a\n== 'b'"`, `"knp.default.x"`,
	`"Upper"`, `"a.b.c"`, `"default"`, `"kube-admin"`, `"projectcalico-default-allow"`, `"Delete"`, `"Ignore"`, `"delete"`, `"\ud800"`, `"\u0000"`}

// mutate changes one place of a value.
func mutate(t *rapid.T, v any) any {
	odd := func() any {
		var o any
		if err := json.Unmarshal([]byte(rapid.SampledFrom(oddValues).Draw(t, "odd")), &o); err != nil {
			return 1e300
		}
		return o
	}
	if rapid.IntRange(0, 5).Draw(t, "here") == 0 {
		return odd()
	}
	switch v := v.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
		case what == 0 || len(keys) == 0:
			v[rapid.SampledFrom([]string{"unknown", "Selector", "ACTION", "metadata", "status", "spec", "a.b", "x[0]", "nets", "ports", "icmp", "selector"}).Draw(t, "key")] = odd()
		case what == 1:
			delete(v, rapid.SampledFrom(keys).Draw(t, "key"))
		default:
			key := rapid.SampledFrom(keys).Draw(t, "key")
			v[key] = mutate(t, v[key])
		}
		return v
	case []any:
		if len(v) == 0 {
			return append(v, odd())
		}
		i := rapid.IntRange(0, len(v)-1).Draw(t, "index")
		switch rapid.IntRange(0, 5).Draw(t, "what") {
		case 0:
			return append(v, v[i])
		case 1:
			return slices.Delete(v, i, i+1)
		}
		v[i] = mutate(t, v[i])
		return v
	}
	return odd()
}

// reading is what became of an object.
type reading struct {
	Updates  []model.Update
	Problems []string
	OK       bool
}

func readingOf(us []model.Update, problems []validate.Problem, ok bool) reading {
	r := reading{Updates: us, OK: ok}
	for _, p := range problems {
		p.Ref.File, p.Ref.Line = "", 0
		r.Problems = append(r.Problems, p.String())
	}
	slices.Sort(r.Problems) // those of a manifest are in the order of its lines
	return r
}

// One object means the same in etcd, in either group of a cluster, and, unless a manifest of it is rejected, in a directory.
func TestAnObjectMeansTheSameFromEverySource(t *testing.T) {
	all := kinds.Read(validate.Pods{})
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.SampledFrom(slices.Sorted(maps.Keys(wholeObjects))).Draw(t, "kind")
		version, name, ok := strings.Cut(whole, " ")
		if !ok {
			version, name = "projectcalico.org/v3", whole
		}
		k := all[slices.IndexFunc(all, func(k kinds.Kind) bool { return k.Name == name && k.Versions[0].String() == version })]
		namespace := map[bool]string{true: "shop"}[k.Namespaced]
		var o map[string]any
		text := fmt.Sprintf("{kind: %s, metadata: {name: a, labels: {l: v}, annotations: {x: y}}, spec: {%s}}", name, wholeObjects[whole])
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(0, 3).Draw(t, "mutations") {
			of, part := o, "spec"
			switch rapid.IntRange(0, 12).Draw(t, "top") {
			case 0:
				of, part = o["metadata"].(map[string]any), "labels"
			case 1:
				of, part = o["metadata"].(map[string]any), "annotations"
			case 2:
				part = "status"
			case 3:
				part = "unknown"
			}
			of[part] = mutate(t, of[part])
		}
		var stored, manifests []reading
		for _, version := range k.Versions {
			o["apiVersion"] = version.String()
			meta, _ := o["metadata"].(map[string]any)
			if meta != nil && namespace != "" {
				meta["namespace"] = namespace
			}
			js, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			stored = append(stored, readingOf(k.ReadStored(js, validate.Ref{Kind: k.Ref, Namespace: namespace, Name: "a"})))
			u := runtime.Object(&unstructured.Unstructured{})
			if k.Types != nil {
				u = k.Types.Object.DeepCopyObject()
			}
			if err := json.Unmarshal(js, u); err != nil {
				t.Skip(err) // an API server stores no object that its types cannot hold
			}
			stored = append(stored, readingOf(k.Convert(u)))
			ym, err := yaml.JSONToYAML(js)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range [][]byte{js, ym} {
				docs := kinds.Parse("f", text)
				if len(docs) != 1 {
					t.Fatalf("%d documents of %s", len(docs), text)
				}
				manifests = append(manifests, readingOf(docs[0].Updates, docs[0].Problems, docs[0].OK))
			}
		}
		for _, s := range stored[1:] {
			if !reflect.DeepEqual(s, stored[0]) {
				t.Fatalf("%v\n%+v\n%+v", o, stored[0], s)
			}
		}
		for i, m := range manifests {
			if i%2 == 1 && !reflect.DeepEqual(m, manifests[i-1]) {
				t.Fatalf("JSON and YAML: %v\n%+v\n%+v", o, manifests[i-1], m)
			}
			if m.OK && (!stored[0].OK || !reflect.DeepEqual(m.Updates, stored[0].Updates)) {
				t.Fatalf("a manifest: %v\n%+v\n%+v", o, stored[0], m)
			}
			if !m.OK && len(m.Problems) == 0 || !m.OK && !strings.Contains(strings.Join(m.Problems, "\n"), "rejected") {
				t.Fatalf("%v: %v", o, m)
			}
		}
	})
}
