package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/margay-project/margay/pkg/config"
)

const (
	deployDir = "../../../deploy"
	chartDir  = deployDir + "/helm/margay"
)

// objects are rendered manifests by kind, namespace and name.
type objects map[string]*unstructured.Unstructured

// parse reads a stream of manifests.
func parse(t *testing.T, text []byte, into objects) {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(o); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		if len(o.Object) == 0 {
			continue
		}
		key := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		if into[key] != nil {
			t.Fatalf("%s is there twice", key)
		}
		into[key] = o
	}
}

// kustomized renders a directory of deploy/.
func kustomized(t *testing.T, dir string) objects {
	t.Helper()
	return built(t, filepath.Join(deployDir, dir))
}

func built(t *testing.T, dir string) objects {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	all := objects{}
	parse(t, text, all)
	return all
}

// plain is an object without what Helm marks its objects with.
func plain(o *unstructured.Unstructured) map[string]any {
	o = o.DeepCopy()
	labels := o.GetLabels()
	for _, name := range []string{"app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"} {
		delete(labels, name)
	}
	o.SetLabels(labels)
	unstructured.RemoveNestedField(o.Object, "spec", "template", "metadata", "annotations", "checksum/settings")
	return o.Object
}

// anyOrder compares lists as sets, which those of volumes and mounts are.
var anyOrder = cmpopts.SortSlices(func(a, b any) bool { return fmt.Sprint(a) < fmt.Sprint(b) })

func TestKustomizationsAndChartDescribeTheSameObjects(t *testing.T) {
	for dir, values := range map[string]string{
		"base":                "",
		"overlays/standalone": `settings: {interface-prefix: cali}`,
		"overlays/calico":     `besideCalico: true`,
	} {
		t.Run(dir, func(t *testing.T) {
			want, got := map[string]any{}, map[string]any{}
			for key, o := range kustomized(t, dir) {
				want[key] = plain(o)
			}
			for key, o := range mustChart(t, values) {
				got[key] = plain(o)
			}
			if diff := gocmp.Diff(want, got, anyOrder); diff != "" || len(want) != 5 {
				t.Errorf("%d objects; kustomization (-), chart (+):\n%s", len(want), diff)
			}
		})
	}
}

// TestTheChartAndTheComponentForIPTablesAreTheSame: capabilities and lock, and the image that the user's kustomization names.
func TestTheChartAndTheComponentForIPTablesAreTheSame(t *testing.T) {
	want, got := map[string]any{}, map[string]any{}
	const image = "ghcr.io/margay-project/margay"
	for key, o := range withComponent(t, "iptables", "images: [{name: "+image+", newTag: v0.1.0-iptables}]") {
		want[key] = plain(o)
	}
	for key, o := range mustChart(t, "iptables: true") {
		got[key] = plain(o)
	}
	if diff := gocmp.Diff(want, got, anyOrder); diff != "" {
		t.Errorf("component (-), chart (+):\n%s", diff)
	}
	for _, part := range []string{"NET_RAW", "/run/xtables.lock", "-iptables"} {
		if !strings.Contains(fmt.Sprint(want), part) {
			t.Errorf("the component has no %s", part)
		}
	}
}

// renderings are all that deploy/ can make, the chart with everything turned on among them.
func renderings(t *testing.T) map[string]objects {
	t.Helper()
	everything := `
imagePullSecrets: [{name: pull}]
settings: {log-level: debug, flow-quota: 1000000, no-shortcut: true, timeout-udp: 30s}
besideCalico: true
metrics: {address: "0.0.0.0:9097", podMonitor: {enabled: true, labels: {team: net}}, prometheusRule: {enabled: true}}
dashboard: {enabled: true}
resources: {requests: {cpu: 1}, limits: {memory: 1Gi}}
affinity: {nodeAffinity: {}}
podLabels: {a: b}
podAnnotations: {c: d}
commonLabels: {team: net}
commonAnnotations: {owner: us}
serviceAccountAnnotations: {role: none}
image: {digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
nameOverride: fence
fullnameOverride: fence
apiServer: {host: api.example, port: 443}
healthAddress: "[::1]:9196"
extraArgs: [--pprof]
extraEnv: [{name: GOMEMLIMIT, value: 200MiB}, {name: GOGC, valueFrom: {configMapKeyRef: {name: a, key: b}}}]
extraVolumes: [{name: more, emptyDir: {}}]
extraVolumeMounts: [{name: more, mountPath: /more}]
`
	all := map[string]objects{"chart": mustChart(t, ""), "chart, everything": mustChart(t, everything),
		"chart, cleanup": mustChart(t, "cleanup: {enabled: true}"), "chart, iptables": mustChart(t, "iptables: true")}
	for _, dir := range []string{"base", "overlays/standalone", "overlays/calico", "cleanup", "cleanup-node"} {
		all[dir] = kustomized(t, dir)
	}
	all["components/metrics"], all["components/iptables"] = withComponent(t, "metrics"), withComponent(t, "iptables")
	all["components/etcd"] = withComponent(t, "etcd", etcdServers)
	return all
}

// TestComponentsLeaveTheImageToTheUser: an image that a component names is lost when the user's own kustomization names the registry, so
// no component names one.
func TestComponentsLeaveTheImageToTheUser(t *testing.T) {
	dirs, err := os.ReadDir(filepath.Join(deployDir, "components"))
	if err != nil || len(dirs) < 2 {
		t.Fatalf("%d components: %v", len(dirs), err)
	}
	const name = "ghcr.io/margay-project/margay"
	image := func(all objects) any { return all.agents(t)[0]["image"] }
	base := image(kustomized(t, "base"))
	for _, dir := range dirs {
		if got := image(withComponent(t, dir.Name())); got != base {
			t.Errorf("component %s: the image is %s, that of the base %s", dir.Name(), got, base)
		}
		own := fmt.Sprintf("images: [{name: %s, newName: registry.example/margay, newTag: mine}]", name)
		if got := image(withComponent(t, dir.Name(), own)); got != "registry.example/margay:mine" {
			t.Errorf("component %s: with %s the image is %s", dir.Name(), own, got)
		}
	}
}

// TestTheChartAndTheComponentForEtcdAreTheSame: with the servers that the user's kustomization names, as docs/installation.md has it.
func TestTheChartAndTheComponentForEtcdAreTheSame(t *testing.T) {
	want, got := map[string]any{}, map[string]any{}
	for key, o := range withComponent(t, "etcd", etcdServers) {
		want[key] = plain(o)
	}
	for key, o := range mustChart(t, `etcd: {endpoints: "https://a:2379,https://b:2379", secret: margay-etcd, clientCertificate: true}`) {
		got[key] = plain(o)
	}
	if diff := gocmp.Diff(want, got, anyOrder); diff != "" {
		t.Errorf("component (-), chart (+):\n%s", diff)
	}
}

// etcdServers is what a user's kustomization adds to the component etcd.
const etcdServers = `patches: [{patch: '{apiVersion: v1, kind: ConfigMap, metadata: {name: margay, namespace: kube-system},
  data: {MARGAY_ETCD_ENDPOINTS: "https://a:2379,https://b:2379"}}'}]`

// withComponent renders the base with a component, as a user's own kustomization does; more is what else that one has.
func withComponent(t *testing.T, name string, more ...string) objects {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs(deployDir)
	if err == nil {
		root, err = filepath.Rel(dir, root)
	}
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("resources: [%[1]s/base]\ncomponents: [%[1]s/components/%[2]s]\n%[3]s\n", root, name, strings.Join(more, "\n"))
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return built(t, dir)
}

// TestOneNodeCanBeCleaned: agents keep off nodes with a label, whatever affinity a user adds, and a cleanup is for those nodes only.
func TestOneNodeCanBeCleaned(t *testing.T) {
	const required = "requiredDuringSchedulingIgnoredDuringExecution"
	terms := func(set *unstructured.Unstructured) []any {
		list, _ := nested(set.Object, "spec", "template", "spec", "affinity", "nodeAffinity", required, "nodeSelectorTerms").([]any)
		return list
	}
	user := "affinity: {podAffinity: {}, nodeAffinity: {" + required + ": {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}, {matchFields: []}]}}}"
	for name, want := range map[string]int{"": 1, user: 2} {
		list := terms(mustChart(t, name)["DaemonSet kube-system/margay"])
		if len(list) != want {
			t.Errorf("with %q the agents have the affinity %v, want %d terms", name, list, want)
		}
		for _, term := range list {
			if !strings.Contains(fmt.Sprint(nested(term.(map[string]any), "matchExpressions")), "map[key:margay/off operator:DoesNotExist]") {
				t.Errorf("with %q the agents run on nodes that are off: %v", name, term)
			}
		}
	}
	set := kustomized(t, "cleanup-node")["DaemonSet kube-system/margay-cleanup-node"]
	if set == nil {
		t.Fatal("no DaemonSet margay-cleanup-node")
	}
	if got := nested(set.Object, "spec", "template", "spec", "nodeSelector", "margay/off"); got != "true" {
		t.Errorf("it cleans nodes with margay/off=%v", got)
	}
	label := "app.kubernetes.io/name"
	if s, l := nested(set.Object, "spec", "selector", "matchLabels", label), nested(set.Object, "spec", "template", "metadata", "labels", label); s != l || s != "margay-cleanup-node" {
		t.Errorf("it selects pods of %v, and its pods are of %v", s, l)
	}
}

// TestWhatWritesIPTablesSharesItsLock: a container that may write iptables' tables has the node's lock of them, since its own root file
// system is read-only and others on the node write, too. Agents exclude each other and cleanup by the same file.
func TestWhatWritesIPTablesSharesItsLock(t *testing.T) {
	found := map[string]int{}
	for name, all := range renderings(t) {
		for _, p := range all.containers(t) {
			if !strings.Contains(fmt.Sprint(nested(p.container, "securityContext", "capabilities", "add")), "NET_RAW") {
				continue
			}
			found[name]++
			mount := named(nested(p.container, "volumeMounts"), "xtables-lock")
			if mount["mountPath"] != "/run/xtables.lock" || mount["readOnly"] == true {
				t.Errorf("%s: %s mounts %v", name, p.container["name"], mount)
			}
			volume := named(nested(p.set, "spec", "template", "spec", "volumes"), "xtables-lock")
			if nested(volume, "hostPath", "path") != "/run/xtables.lock" || nested(volume, "hostPath", "type") != "FileOrCreate" {
				t.Errorf("%s: the volume of %s is %v", name, p.container["name"], volume)
			}
		}
	}
	for _, name := range []string{"cleanup", "chart, cleanup", "components/iptables", "chart, iptables"} {
		if found[name] != 1 {
			t.Errorf("%s has %d containers with NET_RAW, want 1", name, found[name])
		}
	}
}

// TestWhatIsDeployedAreSettings: every variable is a setting of `margay run`, with a value that it takes.
func TestWhatIsDeployedAreSettings(t *testing.T) {
	for name, all := range renderings(t) {
		environment := all.settings(t)
		layers, warnings, err := config.New(config.Local{Host: "node", Environment: environment})
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v (%v) with %q", name, err, warnings, environment)
			continue
		}
		c := layers.Config()
		store := "kubernetes"
		if strings.Contains(name, "etcd") {
			store = "etcd"
		}
		if !strings.Contains(name, "cleanup") && (c.Datastore != store || c.Node != "of-the-pod" || c.Dataplane != "auto") {
			t.Errorf("%s: datastore %q, node %q, dataplane %q", name, c.Datastore, c.Node, c.Dataplane)
		}
		for _, probed := range all.probed(t) {
			if probed != c.HealthAddress {
				t.Errorf("%s: a probe asks %s, health is at %s", name, probed, c.HealthAddress)
			}
		}
		if strings.Contains(name, "calico") || strings.Contains(name, "everything") {
			if c.MarkMask&0xffff0000 != 0 || c.EndpointStatusDir != "/var/run/calico/endpoint-status" {
				t.Errorf("%s: marks %#x, status in %q", name, c.MarkMask, c.EndpointStatusDir)
			}
		}
	}
	all := mustChart(t, "settings: {flow-quota: 1000000, no-shortcut: true, timeout-udp: 30s}")
	for _, want := range []string{"MARGAY_FLOW_QUOTA=1000000", "MARGAY_NO_SHORTCUT=true", "MARGAY_TIMEOUT_UDP=30s"} {
		if got := all.settings(t); !slices.Contains(got, want) {
			t.Errorf("%q lacks %s", got, want)
		}
	}
	if _, warnings, err := config.New(config.Local{Host: "node", Environment: []string{"MARGAY_NOPE=1"}}); err == nil && len(warnings) == 0 {
		t.Error("a setting that does not exist is not noticed")
	}
}

// TestTheDockerfileBuildsThisTree: what can be seen without an engine. What it copies exists, and its Go is at least
// what go.mod asks for.
func TestTheDockerfileBuildsThisTree(t *testing.T) {
	text, err := os.ReadFile("../../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile("../../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	wants := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindSubmatch(module)
	has := regexp.MustCompile(`(?m)^ARG GO_VERSION=(\d+\.\d+)`).FindSubmatch(text)
	if wants == nil || has == nil || !bytes.Equal(wants[1], has[1]) {
		t.Errorf("go.mod asks for Go %s, the Dockerfile builds with %s", wants, has)
	}
	copies := 0
	for _, m := range regexp.MustCompile(`(?m)^COPY ([^-\n].*)$`).FindAllSubmatch(text, -1) {
		words := strings.Fields(string(m[1]))
		for _, source := range words[:len(words)-1] {
			copies++
			if _, err := os.Stat(filepath.Join("../../..", source)); err != nil {
				t.Errorf("COPY %s: %v", source, err)
			}
		}
	}
	if copies == 0 {
		t.Error("nothing of the tree is copied")
	}
	build := regexp.MustCompile(`go build .* (\./\S+)`).FindSubmatch(text)
	if build == nil {
		t.Fatal("nothing is built")
	}
	if _, err := os.Stat(filepath.Join("../../..", string(build[1]))); err != nil {
		t.Errorf("go build %s: %v", build[1], err)
	}
}
