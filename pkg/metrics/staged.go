package metrics

import (
	"cmp"
	"maps"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// mostStagedSeries bounds the series of staged policies: four for each namespace. Beyond it, those make room that have had no policies for longest.
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

// stagedTotals sums counts of rules up by namespace. Rules come and go with their counts; the sums never fall. A sum that has made room for
// another one starts at zero when it comes back.
type stagedTotals struct {
	seen   map[model.RuleID]StagedCount // what the last call of add was given
	totals map[stagedSeries]uint64
	calls  uint64
	last   map[stagedSeries]uint64 // the last call that had a count for it
}

// add takes all counts as they are now. A rule that has gone since the call before, and comes back, starts at zero.
func (s *stagedTotals) add(now []StagedCount) {
	seen := make(map[model.RuleID]StagedCount, len(now))
	if s.calls++; s.totals == nil {
		s.totals, s.last = map[stagedSeries]uint64{}, map[stagedSeries]uint64{}
	}
	for _, c := range now {
		if series := seriesOf(c); s.last[series] > 0 {
			s.last[series] = s.calls
		}
	}
	for _, c := range now {
		seen[c.Rule] = c
		more := c.Flows
		if before, ok := s.seen[c.Rule]; ok && before.Allow == c.Allow && before.Flows <= c.Flows {
			more -= before.Flows
		}
		series := seriesOf(c)
		if _, ok := s.totals[series]; ok || len(s.totals) < mostStagedSeries || s.makeRoom() {
			s.totals[series] += more
			s.last[series] = s.calls
		}
	}
	s.seen = seen
}

// seriesOf is the series that a count is part of.
func seriesOf(c StagedCount) stagedSeries {
	series := stagedSeries{c.Rule.Policy.Namespace, c.Rule.Direction, "deny"}
	if c.Allow {
		series.verdict = "allow"
	}
	return series
}

// makeRoom drops the sum that has had no count for longest; false: each has one in this call.
func (s *stagedTotals) makeRoom() bool {
	oldest := slices.MinFunc(slices.Collect(maps.Keys(s.last)), func(a, b stagedSeries) int {
		return cmp.Or(cmp.Compare(s.last[a], s.last[b]), a.compare(b))
	})
	if s.last[oldest] == s.calls {
		return false
	}
	delete(s.totals, oldest)
	delete(s.last, oldest)
	return true
}

func (out sink) staged(s *stagedTotals) {
	for _, series := range slices.SortedFunc(maps.Keys(s.totals), stagedSeries.compare) {
		out.put(stagedFlows, float64(s.totals[series]), series.namespace, series.direction.String(), series.verdict)
	}
}

func (s stagedSeries) compare(o stagedSeries) int {
	return cmp.Or(cmp.Compare(s.namespace, o.namespace), cmp.Compare(s.direction, o.direction), cmp.Compare(s.verdict, o.verdict))
}
