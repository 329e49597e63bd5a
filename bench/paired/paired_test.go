package paired

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMeasureReversesEveryOtherRoundAndDropsTheFirst(t *testing.T) {
	var order []string
	one := func(name string, cost time.Duration) Case {
		return Case{Name: name, Ops: 10, Run: func(ops int) (time.Duration, error) {
			order = append(order, name)
			return cost * time.Duration(ops), nil
		}}
	}
	s, err := Measure([]Case{one("a", 3), one("b", 7)}, 2)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(order, ""), "ba"+"ab"+"ba"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
	if diff := cmp.Diff(Samples{"a": {3, 3}, "b": {7, 7}}, s); diff != "" {
		t.Error(diff)
	}
}

func TestMeasureNamesTheCaseThatFails(t *testing.T) {
	_, err := Measure([]Case{{Name: "broken", Ops: 1, Run: func(int) (time.Duration, error) {
		return 0, errors.New("no route")
	}}}, 1)
	if err == nil || err.Error() != "broken: no route" {
		t.Errorf("got %v", err)
	}
}

// Three cases whose true ratios are known, on a machine whose speed drifts by half, whose noise is spread evenly over
// ±0.8 % and that stumbles in every twelfth measurement. Nothing is drawn: a sample that is drawn may be one that the interval
// honestly misses.
func TestRatioFindsTheTruthThroughDriftAndStumbles(t *testing.T) {
	const rounds = 41 // prime: each step below goes through all of them
	s := Samples{}
	for i, c := range []struct {
		name string
		cost float64
	}{{"bare", 1000}, {"with", 1060}, {"other", 1120}} {
		step := []int{3, 7, 16}[i] // another order for each, so that the noise of no two of them goes together
		for round := range rounds {
			speed := 1 + 0.5*math.Sin(float64(round)/5)
			noise := 1 + 0.008*(2*float64(round*step%rounds)/(rounds-1)-1)
			if (round+4*i)%12 == 0 {
				noise *= 1.8
			}
			s[c.name] = append(s[c.name], c.cost*speed*noise)
		}
	}
	for _, tc := range []struct {
		name  string
		got   Estimate
		truth float64
		slack float64
	}{
		{"ratio", s.Ratio("with", "bare"), 1.06, 0.01},
		{"overhead ratio", s.OverheadRatio("with", "other", "bare"), 0.5, 0.1},
	} {
		if math.Abs(tc.got.Median-tc.truth) > tc.slack || tc.got.Low > tc.truth || tc.got.High < tc.truth {
			t.Errorf("%s: %+v does not hold %g", tc.name, tc.got, tc.truth)
		}
		if tc.got.Low > tc.got.Median || tc.got.High < tc.got.Median || tc.got.Low == tc.got.High {
			t.Errorf("%s: %+v is no interval", tc.name, tc.got)
		}
	}
}

func TestNetSubtractsTheFloorRoundByRound(t *testing.T) {
	s := Samples{"floor": {10, 20, 30}, "a": {15, 25, 35}, "b": {20, 30, 40}}
	if got := s.Net("a", "floor").Median; got != 5 {
		t.Errorf("net %g, want 5", got)
	}
	if got := s.NetRatio("b", "a", "floor").Median; got != 2 {
		t.Errorf("net ratio %g, want 2", got)
	}
	if got := s.Cost("b").Median; got != 30 {
		t.Errorf("cost %g, want 30", got)
	}
	if got := s.Ratio("a", "missing").Median; !math.IsNaN(got) {
		t.Errorf("ratio to a case that was not measured: %g", got)
	}
}

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		values []float64
		want   float64
	}{{[]float64{3, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}, {[]float64{7}, 7}} {
		if got := Median(tc.values); got != tc.want {
			t.Errorf("median %g, want %g", got, tc.want)
		}
	}
}
