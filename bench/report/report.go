// Package report is what a benchmark run leaves behind: a table to read, JSON to compare, a plot to look at.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"github.com/margay-project/margay/bench/paired"
)

// Result is one measured value.
type Result struct {
	ID     string  `json:"id"`     // of the requirement, as "P1"; results of one id are plotted together
	Config string  `json:"config"` // what was measured
	Unit   string  `json:"unit"`   // "ratio", "ns", "ms", "bytes", "lost"
	Median float64 `json:"median"`
	Low    float64 `json:"low"` // interval that holds the median with 95 % probability
	High   float64 `json:"high"`
	// Must is the most the median may be; 0 with pass nil: the value is there for information.
	Must float64 `json:"must"`
	Pass *bool   `json:"pass"`
}

// Info is a value that nothing is required of.
func Info(id, config, unit string, e paired.Estimate) Result {
	return Result{ID: id, Config: config, Unit: unit, Median: e.Median, Low: e.Low, High: e.High}
}

// Required is a value whose median must not be above must.
func Required(id, config, unit string, e paired.Estimate, must float64) Result {
	r := Info(id, config, unit, e)
	pass := e.Median <= must
	r.Must, r.Pass = must, &pass
	return r
}

// Exact is a counted value: there is no uncertainty about it.
func Exact(v float64) paired.Estimate { return paired.Estimate{Median: v, Low: v, High: v} }

// Failed counts the results that miss what is required.
func Failed(results []Result) int {
	n := 0
	for _, r := range results {
		if r.Pass != nil && !*r.Pass {
			n++
		}
	}
	return n
}

// Table prints the results for people.
func Table(w io.Writer, results []Result) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "id\tconfiguration\tmedian\t95 % interval\tmust\t")
	for _, r := range results {
		must, verdict := "", ""
		if r.Pass != nil {
			must, verdict = "≤ "+Number(r.Must, r.Unit), "ok"
			if !*r.Pass {
				verdict = "MISSED"
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s – %s\t%s\t%s\n", r.ID, r.Config, Number(r.Median, r.Unit),
			Number(r.Low, ""), Number(r.High, ""), must, verdict)
	}
	return t.Flush()
}

// JSON writes the results as a list. Values that could not be computed are left out.
func JSON(w io.Writer, results []Result) error {
	finite := []Result{}
	for _, r := range results {
		if !math.IsNaN(r.Median+r.Low+r.High) && !math.IsInf(r.Median+r.Low+r.High, 0) {
			finite = append(finite, r)
		}
	}
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(finite)
}

// Number prints a value with as many digits as mean something; ratios are without unit.
func Number(v float64, unit string) string {
	text := fmt.Sprintf("%.0f", v)
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "-"
	case v == math.Trunc(v) && a >= 1 || v == 0:
	case a < 10:
		text = fmt.Sprintf("%.3f", v)
	case a < 1000:
		text = fmt.Sprintf("%.1f", v)
	}
	if unit == "" || unit == "ratio" {
		return text
	}
	return text + " " + unit
}
