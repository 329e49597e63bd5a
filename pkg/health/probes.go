package health

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"
)

// Routes adds /livez and /readyz to mux: 200 if all components are live, or ready, and 503 if not. The body says so in
// its first line and has a table of all components below it; ?verbose=false leaves the table out, ?format=json gives
// {"ok", "components"} instead.
func (a *Aggregate) Routes(mux *http.ServeMux) {
	mux.Handle("GET /livez", a.probe("live", live, func(s State) bool { return s.Live }))
	mux.Handle("GET /readyz", a.probe("ready", ready, func(s State) bool { return s.Ready }))
}

// answer is the body of ?format=json.
type answer struct {
	OK         bool    `json:"ok"`
	Components []State `json:"components"`
}

func (a *Aggregate) probe(word string, all func([]State) bool, one func(State) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list := a.Components()
		ok, code := all(list), http.StatusOK
		if !ok {
			code = http.StatusServiceUnavailable
		}
		w.Header().Set("Cache-Control", "no-store")
		switch format := r.FormValue("format"); format {
		case "json":
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			// If this fails, the client has gone and cannot be answered.
			_ = json.NewEncoder(w).Encode(answer{OK: ok, Components: list})
		case "", "text":
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.WriteHeader(code)
			fmt.Fprintln(w, sentence(word, ok, list, one))
			if r.FormValue("verbose") != "false" {
				table(w, list)
			}
		default:
			http.Error(w, fmt.Sprintf("format %q: want text or json", format), http.StatusBadRequest)
		}
	})
}

// sentence is "ready", or "not ready: source, loop".
func sentence(word string, ok bool, list []State, one func(State) bool) string {
	if ok {
		return word
	}
	var failing []string
	for _, s := range list {
		if !one(s) {
			failing = append(failing, s.Name)
		}
	}
	if len(failing) == 0 {
		return "not " + word
	}
	return "not " + word + ": " + strings.Join(failing, ", ")
}

func table(w io.Writer, list []State) {
	var b strings.Builder // which cannot fail
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "COMPONENT\tLIVE\tREADY\tSINCE\tDETAIL")
	for _, s := range list {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", s.Name, yes(s.Live), yes(s.Ready), s.Since.UTC().Format(time.RFC3339), s.Detail)
	}
	t.Flush()
	for line := range strings.Lines(b.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
