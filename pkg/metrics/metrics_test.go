package metrics

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/health"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// full is a snapshot in which every metric has a value.
func full() Snapshot {
	pod := validate.Ref{Kind: "Pod", Namespace: "t", Name: "a"}
	policy := validate.Ref{Kind: "NetworkPolicy", Namespace: "t", Name: "p", Line: 3}
	again := policy
	again.Line = 9
	return Snapshot{
		InSync: true,
		Graph:  Graph{RemoteEndpoints: 100, Policies: 9, Profiles: 8, Services: 7, Sets: 6, Members: 50},
		Dataplane: dataplane.Stats{
			Enforced: 5, Waiting: 2, Failed: 1, Classes: 11, Rules: 12, Sets: 13, Tables: 3, LiveBytes: 4096, IdleBytes: 512,
			Unwritten: 1, Repairs: 2, Maps: []dataplane.MapUse{{Name: "ip4_host", Entries: 10, Max: 1 << 20}},
			Interfaces: map[uint32]model.EndpointID{7: model.WorkloadID("t", "a")},
		},
		Overtaken: 2,
		Staged:    []StagedCount{stagedCount("t", "draft", 4)},
		Kinds: []syncer.KindStatus{{Kind: "Pod", State: syncer.KindSynced, Required: true, Listed: true,
			Since: time.Now().Add(-time.Hour), Objects: 105, Lists: 1, Failures: 2, Events: 40, Revision: 77}},
		Problems: slices.Values([]validate.Problem{
			{Ref: pod, Severity: validate.Warning},
			{Ref: policy, Severity: validate.RulesLeftOut}, {Ref: again, Severity: validate.Warning},
		}),
		Components: []health.State{{Name: "loop", Live: true}},
		CNIFiles:   &CNIFiles{Written: 4, Failed: 1},
	}
}

// kernel is a Counters.
type kernel struct{ err error }

func (k kernel) Read(context.Context) (dataplane.KernelCounts, error) {
	return dataplane.KernelCounts{
		Drops:       []dataplane.DropCount{{Reason: "policy", Direction: model.Ingress, Packets: 3, Bytes: 300}},
		ByInterface: []dataplane.InterfaceDrops{{Ifindex: 7, Direction: model.Ingress, Packets: 3}, {Ifindex: 8, Packets: 9}},
		Events:      dataplane.EventCounts{Written: 5, Read: 4, Suppressed: 1}, Expired: [2]uint64{20, 30}, FlowsRefused: 1,
		Maps: []dataplane.MapUse{{Name: "ct4", Entries: 77, Max: 1 << 19}},
	}, k.err
}

func newFull(t *testing.T) *Metrics {
	t.Helper()
	m, err := New(Options{Read: func(context.Context) (Snapshot, error) { return full(), nil }, Counters: kernel{},
		Version: "1", Dataplane: "bpf", Chosen: "preferred", Node: "n1", Started: time.Unix(1000, 5e8), EndpointDrops: true})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// family is one metric as it is registered.
type family struct {
	kind   string   // "gauge"
	labels []string // sorted
}

// own are the families of ours, by name.
func own(t *testing.T, m *Metrics) map[string]family {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]family{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), prefix) {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		byName[f.GetName()] = family{strings.ToLower(f.GetType().String()), labels}
	}
	return byName
}

func TestScrapesShowWhatTheAgentSays(t *testing.T) {
	const want = `
margay_build_info{dataplane="bpf",node="n1",version="1"} 1
margay_classes 11
margay_cni_files{state="failed"} 1
margay_cni_files{state="written"} 4
margay_component_live{component="loop"} 1
margay_component_ready{component="loop"} 0
margay_dataplane_info{chosen="preferred",dataplane="bpf"} 1
margay_dropped_bytes_total{direction="ingress",reason="policy"} 300
margay_dropped_packets_total{direction="ingress",reason="policy"} 3
margay_endpoint_dropped_packets_total{direction="ingress",endpoint="a",namespace="t"} 3
margay_endpoints{state="enforced"} 3
margay_endpoints{state="failed"} 1
margay_endpoints{state="overtaken"} 2
margay_endpoints{state="waiting"} 2
margay_expired_flows_total{table="half"} 30
margay_expired_flows_total{table="open"} 20
margay_in_sync 1
margay_kernel_sets 13
margay_kind_events_total{kind="Pod"} 40
margay_kind_failures_total{kind="Pod"} 2
margay_kind_lists_total{kind="Pod"} 1
margay_kind_objects{kind="Pod"} 105
margay_kind_required{kind="Pod"} 1
margay_kind_revision{kind="Pod"} 77
margay_kind_state{kind="Pod",state="absent"} 0
margay_kind_state{kind="Pod",state="failing"} 0
margay_kind_state{kind="Pod",state="listing"} 0
margay_kind_state{kind="Pod",state="synced"} 1
margay_map_entries{map="ct4"} 77
margay_map_entries{map="ip4_host"} 10
margay_map_max_entries{map="ct4"} 524288
margay_map_max_entries{map="ip4_host"} 1.048576e+06
margay_policies 9
margay_problem_objects{kind="NetworkPolicy",severity="rules_left_out"} 1
margay_problem_objects{kind="Pod",severity="warning"} 1
margay_profiles 8
margay_ready 0
margay_refused_flows_total 1
margay_remote_endpoints 100
margay_repairs_total 2
margay_rules 12
margay_scrape_failures_total{part="agent"} 0
margay_scrape_failures_total{part="kernel"} 0
margay_services 7
margay_set_members 50
margay_sets 6
margay_snapshot_age_seconds 0
margay_staged_flows_total{direction="ingress",namespace="t",verdict="deny"} 4
margay_start_time_seconds 1000.5
margay_table_bytes{state="idle"} 512
margay_table_bytes{state="live"} 4096
margay_tables 3
margay_unwritten_changes 1
margay_verdict_events_read_total 4
margay_verdict_events_suppressed 1
margay_verdict_events_total 5
`
	pushed := regexp.MustCompile(`^margay_(applies|apply|verifications|verify|object_events|reopens|sweep|updates|flush|compile|publish|change|pod)_|kind_state_seconds`)
	got := slices.DeleteFunc(scraped(t, newFull(t)), pushed.MatchString)
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(want), "\n"), got); diff != "" {
		t.Error(diff)
	}
}

// scraped are the lines of a scrape that are ours and no comments.
func scraped(t *testing.T, m *Metrics) []string {
	t.Helper()
	mux := http.NewServeMux()
	m.Routes(mux)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	body, err := io.ReadAll(w.Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("%d %s: %v", w.Code, body, err)
	}
	var lines []string
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, prefix) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func TestWhatHappensIsCounted(t *testing.T) {
	m := newFull(t)
	m.Drained(3)
	m.Flushed(time.Millisecond)
	m.Compiled(2 * time.Millisecond)
	m.Published(3 * time.Millisecond)
	m.Applied(4*time.Millisecond, false, nil)
	m.Applied(4*time.Millisecond, true, errors.New("full"))
	m.Reopened()
	m.ChangeEnforced(6 * time.Millisecond)
	m.PodEnforced(7 * time.Millisecond)
	m.Swept(8*time.Millisecond, nil)
	m.Swept(9*time.Millisecond, errors.New("no"))
	m.ObjectEvents(EventSent, 2)
	m.ObjectEvents(EventFailed, 1)
	lines := scraped(t, m)
	for _, want := range []string{
		"margay_updates_total 3", `margay_applies_total{result="ok"} 1`, `margay_applies_total{result="failed"} 1`,
		"margay_apply_retries_total 1", "margay_reopens_total 1", "margay_sweep_failures_total 1",
		`margay_object_events_total{result="sent"} 2`,
		`margay_object_events_total{result="failed"} 1`,
		"margay_flush_duration_seconds_sum 0.001", "margay_compile_duration_seconds_sum 0.002",
		"margay_publish_duration_seconds_sum 0.003", "margay_apply_duration_seconds_sum 0.008",
		"margay_change_enforced_seconds_sum 0.006", "margay_pod_enforced_seconds_sum 0.007",
		"margay_sweep_duration_seconds_count 2",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %s", want)
		}
	}
}

// TestABusyLoopIsShownAsItStoodBefore: it may not answer for a while. The rest is as it is now.
func TestABusyLoopIsShownAsItStoodBefore(t *testing.T) {
	busy := false
	m, err := New(Options{Counters: kernel{}, Read: func(ctx context.Context) (Snapshot, error) {
		s := full()
		if busy {
			<-ctx.Done()
			s.Ready, s.Graph, s.Dataplane = true, Graph{}, dataplane.Stats{}
			return s, ctx.Err()
		}
		return s, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	scraped(t, m)
	for range 2 {
		busy = true
		lines := scraped(t, m)
		for _, want := range []string{"margay_remote_endpoints 100", "margay_tables 3", "margay_ready 1", `margay_kind_objects{kind="Pod"} 105`} {
			if !slices.Contains(lines, want) {
				t.Errorf("no line %s", want)
			}
		}
		if slices.Contains(lines, "margay_snapshot_age_seconds 0") {
			t.Error("the snapshot has no age")
		}
	}
	if lines := scraped(t, m); !slices.Contains(lines, `margay_scrape_failures_total{part="agent"} 3`) {
		t.Error("failures are not counted")
	}
	busy = false
	if lines := scraped(t, m); !slices.Contains(lines, "margay_snapshot_age_seconds 0") || !slices.Contains(lines, "margay_ready 0") {
		t.Error("it does not recover")
	}
}

func TestNothingIsMadeUpBeforeTheLoopHasAnswered(t *testing.T) {
	m, err := New(Options{Read: func(context.Context) (Snapshot, error) { return Snapshot{}, errors.New("starting") }})
	if err != nil {
		t.Fatal(err)
	}
	families := own(t, m)
	for name, want := range map[string]bool{"margay_endpoints": false, "margay_policies": false, "margay_map_entries": false,
		"margay_ready": true, "margay_build_info": true, "margay_applies_total": true} {
		if _, got := families[name]; got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
}

func TestWhatTheKernelCannotTellIsCounted(t *testing.T) {
	m, err := New(Options{Counters: kernel{err: errors.New("no")}, Read: func(context.Context) (Snapshot, error) { return full(), nil }})
	if err != nil {
		t.Fatal(err)
	}
	lines := scraped(t, m)
	if !slices.Contains(lines, `margay_scrape_failures_total{part="kernel"} 1`) || !slices.Contains(lines, `margay_map_entries{map="ct4"} 77`) {
		t.Errorf("%q", lines)
	}
	if slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "margay_endpoint_dropped") }) {
		t.Error("drops by endpoint that nobody asked for")
	}
}

func TestDropsByEndpointAreBounded(t *testing.T) {
	s := dataplane.Stats{Interfaces: map[uint32]model.EndpointID{}}
	var k dataplane.KernelCounts
	for i := range uint32(mostEndpoints + 50) {
		s.Interfaces[i+1] = model.WorkloadID("t", "p"+string(rune('a'+i%26)))
		k.ByInterface = append(k.ByInterface, dataplane.InterfaceDrops{Ifindex: i + 1, Direction: model.Ingress},
			dataplane.InterfaceDrops{Ifindex: i + 1, Direction: model.Egress})
	}
	out := make(chan prometheus.Metric, 3*mostEndpoints)
	sink(out).endpointDrops(&k, &s)
	if len(out) != 2*mostEndpoints {
		t.Errorf("%d series, want %d", len(out), 2*mostEndpoints)
	}
}

func TestNamesAreAsPrometheusWantsThem(t *testing.T) {
	problems, err := testutil.GatherAndLint(newFull(t).registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, prefix) {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// TestDocumentedMetricsAreTheRegisteredOnes, with their types and labels.
func TestDocumentedMetricsAreTheRegisteredOnes(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `(margay_[a-z_]+)` \\| (\\w+) \\|([^|]*)\\|")
	code := regexp.MustCompile("`([a-z_]+)`")
	documented := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		var labels []string
		for _, l := range code.FindAllStringSubmatch(m[3], -1) {
			labels = append(labels, l[1])
		}
		slices.Sort(labels)
		if _, twice := documented[m[1]]; twice {
			t.Errorf("%s is documented twice", m[1])
		}
		documented[m[1]] = m[2] + " " + strings.Join(labels, ",")
	}
	registered := map[string]string{}
	for name, f := range own(t, newFull(t)) {
		registered[name] = f.kind + " " + strings.Join(f.labels, ",")
	}
	if diff := cmp.Diff(registered, documented); diff != "" {
		t.Errorf("registered (-), documented in docs/metrics.md (+):\n%s", diff)
	}
}

// leaves is an answer to a client that has gone.
type leaves struct{ *httptest.ResponseRecorder }

func (leaves) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestAClientThatLeavesEarlyDoesNotFillTheLog(t *testing.T) {
	var log strings.Builder
	m, err := New(Options{Counters: kernel{}, Read: func(context.Context) (Snapshot, error) { return full(), nil },
		Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	m.Handler().ServeHTTP(leaves{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if log.Len() > 0 {
		t.Errorf("log:\n%s", log.String())
	}
}
