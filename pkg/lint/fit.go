package lint

import (
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/model"
)

// Fit returns what is odd about how the objects fit together that the updates leave present, every pod taken for local.
func Fit(updates []model.Update) []calc.Problem {
	graph := calc.New("")
	graph.Apply(append(updates[:len(updates):len(updates)], model.InSync{}))
	graph.Flush()
	return graph.Problems()
}
