package metrics

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

// stagedCount is that of a staged policy that would have denied flows.
func stagedCount(namespace, name string, flows uint64) StagedCount {
	key := model.PolicyKey{Kind: model.KindStagedNetworkPolicy, Namespace: namespace, Name: name}
	return StagedCount{Rule: model.RuleID{Tier: model.TierDefault, Policy: key, Staged: true}, Flows: flows}
}

// TestSumsOfStagedPoliciesNeverFall: a counter that falls looks to Prometheus as if it had started again, so all flows of the
// policies that are left would be counted once more.
func TestSumsOfStagedPoliciesNeverFall(t *testing.T) {
	var s stagedTotals
	deny := stagedSeries{"t", model.Ingress, "deny"}
	allow := stagedSeries{"t", model.Ingress, "allow"}
	turned := stagedCount("t", "b", 4)
	turned.Allow = true
	for i, step := range []struct {
		now  []StagedCount
		want map[stagedSeries]uint64
	}{
		{nil, nil},
		{[]StagedCount{stagedCount("t", "a", 10), stagedCount("t", "b", 5)}, map[stagedSeries]uint64{deny: 15}},
		{[]StagedCount{stagedCount("t", "a", 12), stagedCount("t", "b", 5)}, map[stagedSeries]uint64{deny: 17}},
		{[]StagedCount{stagedCount("t", "b", 6)}, map[stagedSeries]uint64{deny: 18}},                           // a has gone
		{[]StagedCount{stagedCount("t", "a", 1), stagedCount("t", "b", 6)}, map[stagedSeries]uint64{deny: 19}}, // and is back
		{[]StagedCount{stagedCount("t", "a", 1), stagedCount("t", "b", 2)}, map[stagedSeries]uint64{deny: 21}}, // b came again in between
		{[]StagedCount{stagedCount("t", "a", 1), turned}, map[stagedSeries]uint64{deny: 21, allow: 4}},         // and with another action
		{nil, map[stagedSeries]uint64{deny: 21, allow: 4}},
	} {
		s.add(step.now)
		if !maps.Equal(s.totals, step.want) {
			t.Errorf("after step %d %v, want %v", i, s.totals, step.want)
		}
	}
}

// TestSeriesOfStagedPoliciesAreBounded, and what is remembered between scrapes is what there is.
func TestSeriesOfStagedPoliciesAreBounded(t *testing.T) {
	var s stagedTotals
	for round := range 3 {
		var now []StagedCount
		for i := range mostStagedSeries {
			now = append(now, stagedCount("evil", fmt.Sprintf("p%d-%d", round, i), 1))
		}
		s.add(now)
	}
	if n := s.totals[stagedSeries{"evil", model.Ingress, "deny"}]; len(s.totals) != 1 || n != 3*mostStagedSeries || len(s.seen) != mostStagedSeries {
		t.Errorf("%d series, %d flows, %d rules remembered", len(s.totals), n, len(s.seen))
	}
	for i := range mostStagedSeries + 50 {
		s.add([]StagedCount{stagedCount(fmt.Sprintf("n%d", i), "p", 1)})
	}
	if len(s.totals) != mostStagedSeries {
		t.Errorf("%d series", len(s.totals))
	}
}

// TestNamespacesThatHaveGoneMakeRoomForNewOnes: an agent may live for longer than 2,000 namespaces of test runs, one after the other.
func TestNamespacesThatHaveGoneMakeRoomForNewOnes(t *testing.T) {
	var s stagedTotals
	deny := func(namespace string) stagedSeries { return stagedSeries{namespace, model.Ingress, "deny"} }
	stays := stagedCount("stays", "p", 1)
	for i := range mostStagedSeries + 50 {
		s.add([]StagedCount{stagedCount(fmt.Sprintf("n%d", i), "p", 3), stays})
	}
	last := deny(fmt.Sprintf("n%d", mostStagedSeries+49))
	if _, oldest := s.totals[deny("n0")]; s.totals[last] != 3 || s.totals[deny("stays")] != 1 || oldest {
		t.Errorf("the latest namespace has %d flows, the one that stays %d, the oldest is there: %v", s.totals[last], s.totals[deny("stays")], oldest)
	}
	var now []StagedCount
	for i := range mostStagedSeries + 50 {
		now = append(now, stagedCount(fmt.Sprintf("m%d", i), "p", 3))
	}
	slices.Reverse(now)
	for range 3 {
		s.add(now)
		slices.Reverse(now)
	}
	first := deny(fmt.Sprintf("m%d", mostStagedSeries+49))
	if _, crowded := s.totals[deny("m0")]; len(s.totals) != mostStagedSeries || s.totals[first] != 3 || crowded {
		t.Errorf("of more namespaces than there is room for %d series, the first has %d flows, the last is there: %v", len(s.totals), s.totals[first], crowded)
	}
}
