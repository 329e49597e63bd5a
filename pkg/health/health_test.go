package health

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAllComponentsMustBeLiveAndReady(t *testing.T) {
	ok := Report{Live: true, Ready: true}
	for _, tc := range []struct {
		name        string
		reports     []Report
		live, ready bool
	}{
		{"there is none", nil, true, false},
		{"all are", []Report{ok, ok}, true, true},
		{"degraded is ready", []Report{ok, {Live: true, Ready: true, Detail: "API server away"}}, true, true},
		{"one is not ready", []Report{ok, {Live: true}}, true, false},
		{"one is not live", []Report{{Ready: true}, ok}, false, true},
	} {
		a := New(time.Now)
		for i, r := range tc.reports {
			a.Add(string(rune('a'+i)), 0).Report(r)
		}
		if a.Live() != tc.live || a.Ready() != tc.ready {
			t.Errorf("%s: live %t, ready %t, want %t, %t", tc.name, a.Live(), a.Ready(), tc.live, tc.ready)
		}
	}
}

func TestAComponentThatHasNotReportedIsLiveAndNotReady(t *testing.T) {
	a := New(time.Now)
	a.Add("loop", 0)
	if !a.Live() || a.Ready() {
		t.Errorf("live %t, ready %t", a.Live(), a.Ready())
	}
}

func TestASilentComponentIsNotLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		a := New(time.Now)
		loop, other := a.Add("loop", 90*time.Second), a.Add("other", 0)
		other.Report(Report{Live: true, Ready: true})
		time.Sleep(80 * time.Second)
		loop.Report(Report{Live: true, Ready: true, Detail: "9 endpoints"})
		time.Sleep(90 * time.Second)
		if !a.Live() || !a.Ready() {
			t.Error("too early")
		}
		time.Sleep(5 * time.Second)
		want := []State{
			{Name: "loop", Since: start.Add(170 * time.Second), Detail: "silent for 1m35s, must report every 1m30s; last: 9 endpoints"},
			{Name: "other", Live: true, Ready: true, Since: start},
		}
		if diff := cmp.Diff(want, a.Components()); diff != "" || a.Live() || a.Ready() {
			t.Error(diff)
		}
		loop.Report(Report{Live: true, Ready: true})
		if got := a.Components()[0]; !a.Live() || !a.Ready() || got.Since != start.Add(175*time.Second) || got.Detail != "" {
			t.Errorf("after it has reported again: %+v", got)
		}
	})
}

func TestAComponentThatNeverReportsHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(time.Now)
		a.Add("loop", time.Minute)
		time.Sleep(time.Minute + 1)
		if a.Live() {
			t.Error("live")
		}
	})
}

func TestAComponentIsReplacedByOneOfItsName(t *testing.T) {
	a := New(time.Now)
	old := a.Add("loop", 0)
	a.Add("source", 0).Report(Report{Live: true, Ready: true})
	a.Add("loop", 0).Report(Report{Live: true, Ready: true})
	old.Report(Report{Detail: "gone"})
	if list := a.Components(); len(list) != 2 || list[0].Name != "loop" || !a.Live() || !a.Ready() {
		t.Errorf("%+v", list)
	}
}

func TestSinceIsKeptWhileNothingChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(time.Now)
		c := a.Add("loop", 0)
		c.Report(Report{Live: true, Ready: true})
		since := time.Now()
		time.Sleep(time.Hour)
		c.Report(Report{Live: true, Ready: true, Detail: "something else"})
		if got := a.Components()[0].Since; got != since {
			t.Errorf("since %s, want %s", got, since)
		}
		c.Report(Report{Live: true})
		if got := a.Components()[0].Since; got != since.Add(time.Hour) {
			t.Errorf("since %s after it has changed", got)
		}
	})
}

// probe asks path of an aggregate with two components, the second of which is as told.
func probe(t *testing.T, second Report, path string) *httptest.ResponseRecorder {
	t.Helper()
	at := time.Date(2026, 11, 20, 13, 0, 0, 0, time.UTC)
	a := New(func() time.Time { return at })
	a.Add("dataplane", 0).Report(Report{Live: true, Ready: true})
	a.Add("source", 0).Report(second)
	mux := http.NewServeMux()
	a.Routes(mux)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w
}

func TestProbesAnswerWithATable(t *testing.T) {
	degraded := Report{Live: true, Ready: true, Detail: "API server away,\nlast known state is enforced"}
	waiting := Report{Live: true, Detail: "lists Pods"}
	for _, tc := range []struct {
		path   string
		second Report
		code   int
		body   string
	}{
		{"/livez", waiting, 200, `live
COMPONENT  LIVE  READY  SINCE                 DETAIL
dataplane  yes   yes    2026-11-20T13:00:00Z
source     yes   no     2026-11-20T13:00:00Z  lists Pods
`},
		{"/readyz", degraded, 200, `ready
COMPONENT  LIVE  READY  SINCE                 DETAIL
dataplane  yes   yes    2026-11-20T13:00:00Z
source     yes   yes    2026-11-20T13:00:00Z  API server away,; last known state is enforced
`},
		{"/readyz", waiting, 503, `not ready: source
COMPONENT  LIVE  READY  SINCE                 DETAIL
dataplane  yes   yes    2026-11-20T13:00:00Z
source     yes   no     2026-11-20T13:00:00Z  lists Pods
`},
		{"/readyz?verbose=false", waiting, 503, "not ready: source\n"},
		{"/livez?verbose=false", Report{}, 503, "not live: source\n"},
		{"/livez?format=yaml", waiting, 400, "format \"yaml\": want text or json\n"},
	} {
		w := probe(t, tc.second, tc.path)
		if diff := cmp.Diff(tc.body, w.Body.String()); diff != "" || w.Code != tc.code {
			t.Errorf("%s: %d %s", tc.path, w.Code, diff)
		}
	}
}

func TestProbesAnswerInJSON(t *testing.T) {
	w := probe(t, Report{Live: true, Detail: "lists Pods"}, "/readyz?format=json")
	var got answer
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 503 {
		t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	at := time.Date(2026, 11, 20, 13, 0, 0, 0, time.UTC)
	want := answer{Components: []State{{Name: "dataplane", Live: true, Ready: true, Since: at},
		{Name: "source", Live: true, Since: at, Detail: "lists Pods"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestProbesAreForReading(t *testing.T) {
	a := New(time.Now)
	mux := http.NewServeMux()
	a.Routes(mux)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/livez", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}
