package metrics

import (
	"cmp"
	"maps"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// mostStagedSeries bounds the series of staged policies that one agent makes until it ends: four for each namespace.
const mostStagedSeries = 2000

// StagedCount is what one rule or end of a tier, as if staged policies were enforced, has decided otherwise so far.
type StagedCount struct {
	Rule  model.RuleID
	Allow bool // the verdict that it would have given
	Flows uint64
}

// stagedSeries are the labels of a series. Namespaces are made by administrators, so tenants cannot make series by writing
// policies of ever new names.
type stagedSeries struct {
	namespace string // of the staged policy; empty: it has none
	direction model.Direction
	verdict   string // that it would have given
}

// stagedTotals sums counts of rules up by namespace. Rules come and go with their counts; the sums never fall.
type stagedTotals struct {
	seen   map[model.RuleID]StagedCount // what the last call of add was given
	totals map[stagedSeries]uint64
}

// add takes all counts as they are now. A rule that has gone since the call before, and comes back, starts at zero.
func (s *stagedTotals) add(now []StagedCount) {
	seen := make(map[model.RuleID]StagedCount, len(now))
	for _, c := range now {
		seen[c.Rule] = c
		more := c.Flows
		if before, ok := s.seen[c.Rule]; ok && before.Allow == c.Allow && before.Flows <= c.Flows {
			more -= before.Flows
		}
		series := stagedSeries{c.Rule.Policy.Namespace, c.Rule.Direction, "deny"}
		if c.Allow {
			series.verdict = "allow"
		}
		if _, ok := s.totals[series]; ok || len(s.totals) < mostStagedSeries {
			if s.totals == nil {
				s.totals = map[stagedSeries]uint64{}
			}
			s.totals[series] += more
		}
	}
	s.seen = seen
}

func (out sink) staged(s *stagedTotals) {
	for _, series := range slices.SortedFunc(maps.Keys(s.totals), stagedSeries.compare) {
		out.put(stagedFlows, float64(s.totals[series]), series.namespace, series.direction.String(), series.verdict)
	}
}

func (s stagedSeries) compare(o stagedSeries) int {
	return cmp.Or(cmp.Compare(s.namespace, o.namespace), cmp.Compare(s.direction, o.direction), cmp.Compare(s.verdict, o.verdict))
}
