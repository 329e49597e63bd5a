package wire

import (
	"fmt"
	"strings"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// GraphProblems are problems of a graph as rows, those left out that are none to users.
func GraphProblems(problems []calc.Problem) []ProblemRow {
	var rows []ProblemRow
	for _, p := range problems {
		if reason := graphReason(p); reason != "" {
			rows = append(rows, ProblemRow{Severity: validate.Warning.String(), Object: p.Object, Reason: reason})
		}
	}
	return rows
}

// Fit looks at how the objects that the updates leave present fit together, every pod taken for local.
func Fit(updates []model.Update) []ProblemRow {
	graph := calc.New("")
	graph.Apply(append(updates[:len(updates):len(updates)], model.InSync{}))
	graph.Flush()
	return GraphProblems(graph.Problems())
}

// graphReason is a problem of the graph as users know things; empty: it is none to them. A ServiceAccount only gives
// labels, and outside a cluster nobody writes one for every pod. A Namespace is what allows pods without policy.
func graphReason(p calc.Problem) string {
	if strings.HasPrefix(p.Text, "profile ksa.") {
		return ""
	}
	if rest, ok := strings.CutPrefix(p.Text, "profile kns."); ok {
		namespace, _, _ := strings.Cut(rest, " ")
		return fmt.Sprintf("Namespace %s does not exist: what no policy decides is denied", namespace)
	}
	return p.Text
}
