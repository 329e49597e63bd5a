package testutil

import (
	"math"
	"testing"
)

func TestRegressFindsTheSlopeAndHowSureItIs(t *testing.T) {
	for _, tc := range []struct {
		name string
		y    []float64
		want Slope
	}{
		{"a line", []float64{1, 3, 5, 7}, Slope{2, 0}},
		{"level", []float64{4, 4, 4, 4, 4}, Slope{0, 0}},
		// By hand: Sxx 5, Sxy 4.5, and 0.7 is left over at 2 degrees of freedom.
		{"scattered", []float64{0, 1, 1, 3}, Slope{0.9, 4.303 * math.Sqrt(0.7/2/5)}},
	} {
		got := Regress(tc.y)
		if math.Abs(got.Value-tc.want.Value) > 1e-9 || math.Abs(got.Margin-tc.want.Margin) > 1e-9 {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
		if got.Low() > got.Value || got.High() < got.Value {
			t.Errorf("%s: the interval %v to %v does not hold %v", tc.name, got.Low(), got.High(), got.Value)
		}
	}
}
