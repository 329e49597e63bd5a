package metrics

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

var (
	metricName = regexp.MustCompile(`\bmargay_\w+`)
	histogram3 = regexp.MustCompile(`_(bucket|sum|count)$`)
	grouping   = regexp.MustCompile(`\b(?:by|on|ignoring|without) \(([^)]*)\)`)
	matcher    = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"([^"]*)"`)
	braces     = regexp.MustCompile(`\{\{[^}]*\}\}`)
)

// ofTheScraper are labels that Prometheus adds.
var ofTheScraper = []string{"instance", "job", "le"}

// wrong says what in a query is not of our metrics: names that do not exist, labels that none of them has.
func wrong(known map[string]family, query string) []string {
	var list []string
	labels := slices.Clone(ofTheScraper)
	names := metricName.FindAllString(query, -1)
	for _, name := range names {
		base := histogram3.ReplaceAllString(name, "")
		f, ok := known[base]
		switch {
		case !ok:
			list = append(list, "no metric "+name)
		case f.kind == "histogram" && base == name:
			list = append(list, name+" is a histogram: _bucket, _sum or _count")
		case f.kind != "histogram" && base != name:
			list = append(list, "no metric "+name)
		case f.kind != "gauge" && !regexp.MustCompile(`(?:rate|increase)\(`+name).MatchString(query):
			list = append(list, name+" only grows: use its rate or increase")
		}
		labels = append(labels, f.labels...)
	}
	if len(names) == 0 {
		list = append(list, "no metric of ours")
	}
	var used []string
	for _, g := range grouping.FindAllStringSubmatch(query, -1) {
		if g[1] != "" { // on (): no label is compared
			used = append(used, strings.Split(g[1], ", ")...)
		}
	}
	for _, m := range matcher.FindAllStringSubmatch(query, -1) {
		used = append(used, m[1])
	}
	for _, l := range used {
		if !slices.Contains(labels, l) {
			list = append(list, fmt.Sprintf("no metric in it has the label %q", l))
		}
	}
	if strings.Count(query, "(") != strings.Count(query, ")") || strings.Count(query, "{") != strings.Count(query, "}") {
		list = append(list, "brackets do not match")
	}
	return list
}

func TestWrongQueriesAreFound(t *testing.T) {
	known := own(t, newFull(t))
	for query, ok := range map[string]bool{
		`max by (kind) (margay_kind_objects{instance=~"x"})`:                                    true,
		`histogram_quantile(0.9, sum by (le) (rate(margay_flush_duration_seconds_bucket[5m])))`: true,
		`sum(rate(margay_updates_total[5m]))`:                                                   true,
		`max by (kind) (margay_kind_objects) unless on () (count(margay_build_info))`:           true,
		`margay_kind_objekts`:                false,
		`margay_kind_objects_count`:          false,
		`margay_flush_duration_seconds`:      false,
		`sum by (map) (margay_kind_objects)`: false,
		`margay_kind_objects{map="x"}`:       false,
		`margay_updates_total`:               false,
		`sum(margay_ready`:                   false,
		`up`:                                 false,
	} {
		if got := wrong(known, query); (len(got) == 0) != ok {
			t.Errorf("%s: %v", query, got)
		}
	}
}

// ruleFile is as much of a Prometheus rule file as is ours.
type ruleFile struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Alert       string            `json:"alert"`
			Expr        string            `json:"expr"`
			For         string            `json:"for"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}

func TestAlertsAreOfMetricsThatExist(t *testing.T) {
	text, err := os.ReadFile("../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file ruleFile
	if err := yaml.UnmarshalStrict(text, &file); err != nil {
		t.Fatal(err)
	}
	known, seen, seenExpr := own(t, newFull(t)), map[string]bool{}, map[string]string{}
	for _, group := range file.Groups {
		for _, r := range group.Rules {
			seenExpr[r.Alert] = r.Expr
			for _, w := range wrong(known, r.Expr) {
				t.Errorf("%s: %s", r.Alert, w)
			}
			if _, err := time.ParseDuration(r.For); r.For != "" && err != nil {
				t.Errorf("%s: %v", r.Alert, err)
			}
			if seen[r.Alert] || !regexp.MustCompile(`^Margay[A-Z]\w+$`).MatchString(r.Alert) {
				t.Errorf("alert %q: there are two, or its name is odd", r.Alert)
			}
			seen[r.Alert] = true
			if s := r.Labels["severity"]; s != "warning" && s != "critical" {
				t.Errorf("%s: severity %q", r.Alert, s)
			}
			for _, a := range []string{"summary", "description"} {
				if plain := braces.ReplaceAllString(r.Annotations[a], ""); len(plain) < 20 || strings.ContainsAny(plain, "{}") {
					t.Errorf("%s: %s %q", r.Alert, a, r.Annotations[a])
				}
			}
		}
	}
	// /readyz is what its components are; margay_ready is only the loop's part of it.
	if expr := seenExpr["MargayNotReady"]; expr != "margay_component_ready == 0" {
		t.Errorf("MargayNotReady is %q: it misses components", expr)
	}
	for _, alert := range []string{"MargayAbsent", "MargayAgentGone", "MargayNodesWithoutAgent", "MargayRestarting", "MargayVerifyOld", "MargayFallback", "MargayNotReady", "MargayEnforcementFailing", "MargayKindFailing", "MargayMapNearlyFull",
		"MargayObjectsRejected", "MargayPodsEnforcedLate", "MargayCNIFilesFailing"} {
		if !seen[alert] {
			t.Errorf("no alert %s", alert)
		}
	}
}

// dashboard is as much of a Grafana dashboard as is checked.
type dashboard struct {
	Title, UID    string
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type string }
	}
	Panels []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	Datasource               struct{ Type, UID string }
	Targets                  []struct {
		RefID, Expr, LegendFormat string
		Datasource                struct{ Type, UID string }
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile("../../deploy/grafana/margay.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestTheDashboardIsOfMetricsThatExist(t *testing.T) {
	d := readDashboard(t)
	if d.Title == "" || d.UID == "" || d.SchemaVersion < 36 || len(d.Panels) < 20 {
		t.Errorf("title %q, uid %q, schema %d, %d panels", d.Title, d.UID, d.SchemaVersion, len(d.Panels))
	}
	variables := map[string]bool{"__rate_interval": true}
	for _, v := range d.Templating.List {
		variables[v.Name] = true
	}
	variable := regexp.MustCompile(`\$\{?(\w+)`)
	known, shown := own(t, newFull(t)), map[string]bool{}
	for _, p := range d.Panels {
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
			t.Errorf("panel %q: no description, query or data source", p.Title)
		}
		for _, q := range p.Targets {
			for _, w := range wrong(known, q.Expr) {
				t.Errorf("panel %q: %s: %s", p.Title, q.Expr, w)
			}
			for _, v := range variable.FindAllStringSubmatch(q.Expr, -1) {
				if !variables[v[1]] {
					t.Errorf("panel %q: no variable $%s", p.Title, v[1])
				}
			}
			for _, name := range metricName.FindAllString(q.Expr, -1) {
				shown[histogram3.ReplaceAllString(name, "")] = true
			}
			if q.RefID == "" || q.Datasource.UID != "${datasource}" {
				t.Errorf("panel %q: a query has no name or data source", p.Title)
			}
		}
	}
	// What is for alerts, or says little over time.
	for _, name := range []string{"margay_start_time_seconds", "margay_in_sync", "margay_component_live", "margay_kind_required", "margay_kind_revision",
		"margay_verify_duration_seconds", "margay_verify_interval_seconds", "margay_verify_last_success_timestamp_seconds", "margay_dataplane_info",
		"margay_cni_files"} {
		shown[name] = true
	}
	for name := range known {
		if !shown[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}

func TestPanelsDoNotOverlap(t *testing.T) {
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range readDashboard(t).Panels {
		if ids[p.ID] {
			t.Errorf("panel %q: its id %d is another's, too", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, ok := taken[[2]int{x, y}]; ok || x >= 24 {
					t.Fatalf("panel %q is over %q, or beyond the edge", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}
