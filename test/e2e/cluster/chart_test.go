package cluster

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/margay-project/margay/pkg/config"
)

var theChart = sync.OnceValues(func() (*chart.Chart, error) { return loader.Load(chartDir) })

// charted renders the chart as helm install does; values are YAML.
func charted(values string) (map[string]string, error) {
	chart, err := theChart()
	if err != nil {
		return nil, err
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	if err := chartutil.ProcessDependencies(chart, given); err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: "margay", Namespace: "kube-system", Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, given, release, nil)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, all)
}

func mustChart(t *testing.T, values string) objects {
	t.Helper()
	files, err := charted(values)
	if err != nil {
		t.Fatalf("%s\n%v", values, err)
	}
	all := objects{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, ".yaml") {
			parse(t, []byte(files[name]), all)
		}
	}
	return all
}

func TestTheChartRefusesValues(t *testing.T) {
	for values, reason := range map[string]string{
		`dataplan: bpf`:                                                     "dataplan",
		`dataplane: ebpf`:                                                   "dataplane",
		`image: {repository: ""}`:                                           "repository",
		`settings: {datastore: directory}`:                                  "datastore",
		`settings: {LOG_LEVEL: debug}`:                                      "LOG_LEVEL",
		`settings: {map-size: [a=1]}`:                                       "map-size",
		`settings: {map-size: "ct4=1000,ct6=0"}`:                            "map-size",
		`settings: {log-level: loud}`:                                       "log-level",
		`settings: {log-levle: debug}`:                                      "log-levle",
		`settings: {timeout-udp: 1 minute}`:                                 "timeout-udp",
		`settings: {timeout-udp: 60}`:                                       "timeout-udp",
		`settings: {vxlan-port: 65536}`:                                     "vxlan-port",
		`settings: {no-shortcut: maybe}`:                                    "no-shortcut",
		`settings: {interface-prefix: toolongaprefix}`:                      "interface-prefix",
		`image: {digest: "0123"}`:                                           "digest",
		`fullnameOverride: Margay`:                                          "fullnameOverride",
		`healthAddress: localhost`:                                          "healthAddress",
		`healthAddress: "0.0.0.0:9097"`:                                     "the same port, 9097",
		`{healthAddress: "off", settings: {pprof: true}}`:                   "settings.pprof needs healthAddress",
		`dataplane: iptables`:                                               "dataplane: iptables needs iptables: true",
		`etcd: {endpoints: "https://a:2379", user: u}`:                      "need etcd.secret",
		`etcd: {endpoints: "https://a:2379", clientCertificate: true}`:      "need etcd.secret",
		`apiServer: {host: a, port: 0}`:                                     "port",
		`extraEnv: {GOGC: "50"}`:                                            "extraEnv",
		`extraVolumeMounts: [{name: a}]`:                                    "mountPath",
		`metrics: {adress: "0.0.0.0:9097"}`:                                 "adress",
		`metrics: {podMonitor: {enabled: true}}`:                            "metrics.podMonitor needs metrics.address",
		`metrics: {prometheusRule: {enabled: true}}`:                        "metrics.prometheusRule needs metrics.address",
		`metrics: {podMonitor: {interval: "1 minute"}}`:                     "interval",
		`{besideCalico: true, iptables: true}`:                              "besideCalico with iptables needs settings.iptables-mark-mask",
		`{besideCalico: true, dataplane: iptables, iptables: true}`:         "besideCalico with iptables needs settings.iptables-mark-mask",
		`nodeSelector: {a: true}`:                                           "nodeSelector",
		`resources: {request: {cpu: 1}}`:                                    "request",
		`updateStrategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}`: "maxSurge",
	} {
		if _, err := charted(values); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: %v, want an error about %s", values, err, reason)
		}
	}
}

// TestTheChartRefusesMonitorsOfMetricsThatPrometheusCannotReach: those that are off or on loopback.
func TestTheChartRefusesMonitorsOfMetricsThatPrometheusCannotReach(t *testing.T) {
	for address, refused := range map[string]bool{"": true, "off": true, ":9097": true, "localhost:9097": true, "127.0.0.1:9097": true, "127.1.2.3:9097": true,
		"[::1]:9097": true, "0.0.0.0:9097": false, "[::]:9097": false, "10.0.0.1:9097": false, "[fd00::1]:9097": false} {
		for _, what := range []string{"podMonitor", "prometheusRule"} {
			_, err := charted(fmt.Sprintf("metrics: {address: %q, %s: {enabled: true}}", address, what))
			if (err != nil) != refused || refused && !strings.Contains(err.Error(), "metrics."+what+" needs metrics.address") {
				t.Errorf("%s of metrics at %q: %v, want it refused: %v", what, address, err, refused)
			}
		}
	}
}

// TestTheChartTakesTheAddressesThatAgentsTake: those of probes and metrics. The chart takes off in lower case only.
func TestTheChartTakesTheAddressesThatAgentsTake(t *testing.T) {
	agentTakes := func(address string) bool {
		for _, setting := range []string{"MARGAY_HEALTH_ADDRESS=", "MARGAY_METRICS_ADDRESS="} { // of one agent they have to differ
			if _, _, err := config.New(config.Local{Host: "n", Environment: []string{setting + address}}); err != nil {
				return false
			}
		}
		return true
	}
	for address, want := range map[string]bool{
		"": true, "off": true, ":9095": true, "localhost:9095": true, "0.0.0.0:9095": true, "192.168.10.250:65535": true, "[::]:9095": true,
		"[fd00::1]:9095": true, "[::ffff:10.0.0.1]:1": true,
		"9097": false, ":0": false, "0.0.0.0:0": false, "0.0.0.0:65536": false, "10.0.0.256:80": false, "10.0.0:80": false, "node.example:80": false,
		"::1:80": false, "[a]:80": false, "http://10.0.0.1:80": false, "127.0.0.1:": false, "127.0.0.1": false,
	} {
		for _, values := range []string{"healthAddress: %q", "metrics: {address: %q}"} {
			if _, err := charted(fmt.Sprintf(values, address)); (err == nil) != want {
				t.Errorf(values+": %v, want it taken: %v", address, err, want)
			}
		}
		if got := agentTakes(address); got != want {
			t.Errorf("agents take %q: %v, want %v", address, got, want)
		}
	}
}

// TestEverySettingCanBeGivenToTheChart: the schema takes each setting's own default, as text and as YAML reads it.
func TestEverySettingCanBeGivenToTheChart(t *testing.T) {
	given := 0
	for _, s := range config.Settings() {
		if _, err := charted("settings: {" + s.Name + ": xyz}"); err != nil && strings.Contains(err.Error(), "dditional propert") {
			continue // the chart sets it
		}
		for _, format := range []string{"settings: {%s: %s}", "settings: {%s: %q}"} {
			if s.Default() == "" || strings.Contains(s.Default(), ",") && !strings.Contains(format, "q") {
				continue
			}
			given++
			if _, err := charted(fmt.Sprintf(format, s.Name, s.Default())); err != nil && s.Default() != "off" {
				t.Errorf(format+": %v", s.Name, s.Default(), err)
			}
		}
	}
	if given < 40 {
		t.Errorf("%d defaults were given to the chart, want at least 40", given)
	}
}

// With mark bits of its own, or of BPF alone, the chart is content beside Calico.
func TestTheChartBesideCalicoWithOtherMarkBits(t *testing.T) {
	for _, values := range []string{"{besideCalico: true}", "{besideCalico: true, iptables: true, settings: {iptables-mark-mask: '0x0fff0000'}}",
		"{besideCalico: true, dataplane: iptables, iptables: true, settings: {iptables-mark-mask: 268369920}}"} {
		if environment := mustChart(t, values).settings(t); strings.Contains(values, "mask") && !slices.ContainsFunc(environment, func(v string) bool {
			return strings.HasPrefix(v, "MARGAY_IPTABLES_MARK_MASK=")
		}) {
			t.Errorf("%s: %q", values, environment)
		}
	}
}

func TestTheChartsCleanupIsThatOfKustomize(t *testing.T) {
	const key = "DaemonSet kube-system/margay-cleanup"
	all := mustChart(t, "cleanup: {enabled: true}")
	want, got := plain(kustomized(t, "cleanup")[key]), plain(all[key])
	if diff := gocmp.Diff(want, got, anyOrder); diff != "" {
		t.Errorf("kustomization (-), chart (+):\n%s", diff)
	}
	if all["DaemonSet kube-system/margay"] != nil {
		t.Error("an agent runs beside the cleanup")
	}
}

// TestTheChartsOptions: what an option adds.
func TestTheChartsOptions(t *testing.T) {
	all := renderings(t)["chart, everything"]
	for _, key := range []string{"PodMonitor kube-system/fence", "ServiceAccount kube-system/fence",
		"ClusterRole /fence", "ClusterRoleBinding /fence", "ConfigMap kube-system/fence"} {
		if all[key] == nil {
			t.Errorf("no %s", key)
		}
	}
	for key, o := range all {
		if o.GetLabels()["team"] != "net" || o.GetAnnotations()["owner"] != "us" || o.GetLabels()["app.kubernetes.io/name"] != "fence" {
			t.Errorf("%s has labels %v and annotations %v", key, o.GetLabels(), o.GetAnnotations())
		}
	}
	if got := all["ServiceAccount kube-system/fence"].GetAnnotations()["role"]; got != "none" {
		t.Errorf("the service account's annotation is %q", got)
	}
	testCopies(t, all)
	set := all["DaemonSet kube-system/fence"]
	one, two := checksum(mustChart(t, "")), checksum(mustChart(t, "settings: {log-level: debug}"))
	if one == "" || one == two {
		t.Errorf("other settings do not replace the agents: checksums %q and %q", one, two)
	}
	for path, want := range map[string]string{"metadata labels a": "b", "metadata annotations c": "d", "metadata labels team": "net",
		"metadata annotations owner": "us", "spec serviceAccountName": "fence"} {
		got, _, _ := unstructured.NestedString(set.Object, append([]string{"spec", "template"}, strings.Fields(path)...)...)
		if got != want {
			t.Errorf("the pod's %s is %q, want %q", path, got, want)
		}
	}
	testAgent(t, all)
}

// No other pod of a node can have a port of its agent as its hostPort.
func TestTheChartDeclaresThePortsOfAgents(t *testing.T) {
	for values, want := range map[string]string{
		"":                                      "[9096 9097]",
		"{healthAddress: '0.0.0.0:19096'}":      "[19096 9097]",
		"{metrics: {address: '0.0.0.0:19097'}}": "[9096 19097]",
		"{healthAddress: 'off'}":                "[9097]",
		"{healthAddress: 'off', metrics: {address: 'off'}}": "[]",
	} {
		set := mustChart(t, values)["DaemonSet kube-system/margay"]
		containers, _, _ := unstructured.NestedSlice(set.Object, "spec", "template", "spec", "containers")
		ports, _, _ := unstructured.NestedSlice(containers[0].(map[string]any), "ports")
		got := []any{}
		for _, p := range ports {
			if port := p.(map[string]any); port["hostPort"] == port["containerPort"] {
				got = append(got, port["hostPort"])
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s: host ports %v, want %s", values, got, want)
		}
	}
}

func checksum(all objects) string {
	text, _, _ := unstructured.NestedString(all["DaemonSet kube-system/margay"].Object, "spec", "template", "metadata", "annotations", "checksum/settings")
	return text
}

// testCopies compares the dashboard and the alerts in the chart with their sources.
func testCopies(t *testing.T, all objects) {
	t.Helper()
	dashboard, _, err := unstructured.NestedString(all["ConfigMap kube-system/fence-dashboard"].Object, "data", "margay.json")
	source, readErr := os.ReadFile(filepath.Join(deployDir, "grafana/margay.json"))
	if err := errors.Join(err, readErr); err != nil || strings.TrimSpace(dashboard) != strings.TrimSpace(string(source)) {
		t.Errorf("the chart's dashboard is not that of deploy/grafana (%v)", err)
	}
	var alerts map[string]any
	source, err = os.ReadFile(filepath.Join(deployDir, "prometheus/alerts.yaml"))
	if err := errors.Join(err, yaml.Unmarshal(source, &alerts)); err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(alerts, all["PrometheusRule kube-system/fence"].Object["spec"]); diff != "" || len(alerts) == 0 {
		t.Errorf("the chart's alerts are not those of deploy/prometheus:\n%s", diff)
	}
}

// testAgent looks at the container: image, arguments, environment and mounts.
func testAgent(t *testing.T, all objects) {
	t.Helper()
	agents := all.agents(t)
	if len(agents) != 1 {
		t.Fatalf("%d agents", len(agents))
	}
	agent := agents[0]
	if image := fmt.Sprint(agent["image"]); !strings.HasPrefix(image, "ghcr.io/margay-project/margay@sha256:0123") {
		t.Errorf("the image is %s", image)
	}
	if got := fmt.Sprint(agent["args"]); got != "[run --pprof]" {
		t.Errorf("the arguments are %s", got)
	}
	for _, want := range []string{"KUBERNETES_SERVICE_HOST=api.example", "KUBERNETES_SERVICE_PORT=443", "GOMEMLIMIT=200MiB", "GOGC=of-the-pod"} {
		if got := all.settings(t); !slices.Contains(got, want) {
			t.Errorf("%q lacks %s", got, want)
		}
	}
	if !strings.Contains(fmt.Sprint(agent["volumeMounts"]), "mountPath:/more") {
		t.Errorf("the mounts are %v", agent["volumeMounts"])
	}
	for values, want := range map[string]string{`healthAddress: "off"`: "[]", "healthAddress: 0.0.0.0:80": "[:80 :80]",
		`healthAddress: ":81"`: "[127.0.0.1:81 127.0.0.1:81]", "healthAddress: localhost:83": "[127.0.0.1:83 127.0.0.1:83]",
		`healthAddress: "[::]:84"`: "[:84 :84]", "healthAddress: 10.0.0.1:82": "[10.0.0.1:82 10.0.0.1:82]"} {
		if got := fmt.Sprint(mustChart(t, values).probed(t)); got != want {
			t.Errorf("%s: probes ask %s, want %s", values, got, want)
		}
	}
}

// With etcd the agents read it, by the files of the Secret; without endpoints nothing of it counts.
func TestTheChartReadsEtcd(t *testing.T) {
	all := mustChart(t, `etcd: {endpoints: "https://a:2379,https://b:2379", secret: s, clientCertificate: true, user: u}`)
	got := all.settings(t)
	for _, want := range []string{"MARGAY_DATASTORE=etcd", "MARGAY_ETCD_ENDPOINTS=https://a:2379,https://b:2379",
		"MARGAY_ETCD_CA_FILE=/etc/margay/etcd/ca.crt", "MARGAY_ETCD_CERT_FILE=/etc/margay/etcd/tls.crt",
		"MARGAY_ETCD_KEY_FILE=/etc/margay/etcd/tls.key", "MARGAY_ETCD_USER=u", "MARGAY_ETCD_PASSWORD_FILE=/etc/margay/etcd/password"} {
		if !slices.Contains(got, want) {
			t.Errorf("%q lacks %s", got, want)
		}
	}
	if _, warnings, err := config.New(config.Local{Host: "n", Environment: got}); err != nil || len(warnings) > 0 {
		t.Errorf("the agent does not accept it: %v, %v", err, warnings)
	}
	if mounts := fmt.Sprint(all.agents(t)[0]["volumeMounts"]); !strings.Contains(mounts, "/etc/margay/etcd") {
		t.Errorf("the mounts are %s", mounts)
	}
	if without := mustChart(t, "etcd: {secret: s}"); !slices.Contains(without.settings(t), "MARGAY_DATASTORE=kubernetes") ||
		strings.Contains(fmt.Sprint(without.agents(t)[0]["volumeMounts"]), "etcd") {
		t.Error("etcd is read without endpoints")
	}
}
