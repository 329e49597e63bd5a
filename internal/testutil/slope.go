package testutil

import (
	"fmt"
	"math"
)

// Slope is the slope of a line with the margin of its 95 % interval.
type Slope struct{ Value, Margin float64 }

// Low and High are the ends of the interval.
func (s Slope) Low() float64  { return s.Value - s.Margin }
func (s Slope) High() float64 { return s.Value + s.Margin }

// Scaled is the slope in another unit.
func (s Slope) Scaled(f float64) Slope { return Slope{s.Value * f, s.Margin * f} }

func (s Slope) String() string { return fmt.Sprintf("%.3f ± %.3f", s.Value, s.Margin) }

// student is the 97.5 % quantile of Student's t by degrees of freedom, from 1.
var student = [...]float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228}

// Regress fits a line to values at 0, 1, 2 … by least squares. It takes three values at least.
func Regress(y []float64) Slope {
	n := float64(len(y))
	var sumY, sxy, sxx, rest float64
	for _, v := range y {
		sumY += v
	}
	for i, v := range y {
		dx := float64(i) - (n-1)/2
		sxy += dx * (v - sumY/n)
		sxx += dx * dx
	}
	b := sxy / sxx
	for i, v := range y {
		e := v - sumY/n - b*(float64(i)-(n-1)/2)
		rest += e * e
	}
	return Slope{b, student[min(len(y)-2, len(student))-1] * math.Sqrt(rest/(n-2)/sxx)}
}
