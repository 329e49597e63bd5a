package lint

import (
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/model"
)

// Fit returns the problems of objects that do not fit together, of those that are present after the updates. Every pod
// counts as local.
func Fit(updates []model.Update) []calc.Problem {
	graph := calc.New("")
	graph.Apply(append(updates[:len(updates):len(updates)], model.InSync{}))
	graph.Flush()
	return graph.Problems()
}
