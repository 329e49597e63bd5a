// Package paired compares costs on a machine that is not quiet. Every case is measured once in every round, back to
// back with the others, in an order that is reversed every other round; only ratios within one round are looked at, and
// of those the median, with an interval from resampling the rounds.
package paired

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Case is one thing to measure.
type Case struct {
	Name string
	Ops  int // operations in one round
	// Run does that many operations and says what CPU time they took. Called from one goroutine.
	Run func(ops int) (time.Duration, error)
}

// Samples are nanoseconds per operation, by case and round.
type Samples map[string][]float64

// Measure runs all cases for a number of rounds, after one round that does not count.
func Measure(cases []Case, rounds int) (Samples, error) {
	s := Samples{}
	for round := -1; round < rounds; round++ {
		for i := range cases {
			c := &cases[i]
			if round&1 != 0 {
				c = &cases[len(cases)-1-i]
			}
			took, err := c.Run(c.Ops)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.Name, err)
			}
			if round >= 0 {
				s[c.Name] = append(s[c.Name], float64(took)/float64(c.Ops))
			}
		}
	}
	return s, nil
}

// Estimate is a median and the interval that holds it with 95 % probability.
type Estimate struct{ Median, Low, High float64 }

// Of estimates a statistic of the rounds: it is computed over all of them, and over resampled ones for the interval.
// The statistic gets indexes of rounds, some of them more than once.
func Of(rounds int, statistic func(rounds []int) float64) Estimate {
	const resamples = 2000
	all := make([]int, rounds)
	for i := range all {
		all[i] = i
	}
	random := rand.New(rand.NewPCG(1, 2)) // the same data gives the same interval
	values := make([]float64, resamples)
	picked := make([]int, rounds)
	for i := range values {
		for j := range picked {
			picked[j] = random.IntN(rounds)
		}
		values[i] = statistic(picked)
	}
	slices.Sort(values)
	return Estimate{statistic(all), values[resamples*25/1000], values[resamples*975/1000]}
}

// Ratio estimates how many times what b costs a costs, round by round.
func (s Samples) Ratio(a, b string) Estimate {
	return s.estimate(func(pick []int) float64 { return s.MedianRatio(a, b, pick) }, a, b)
}

// MedianRatio is the median of a's cost over b's in the given rounds.
func (s Samples) MedianRatio(a, b string, rounds []int) float64 {
	return s.over(rounds, func(i int) float64 { return s[a][i] / s[b][i] })
}

// Cost estimates nanoseconds per operation.
func (s Samples) Cost(a string) Estimate {
	return s.estimate(func(pick []int) float64 {
		return s.over(pick, func(i int) float64 { return s[a][i] })
	}, a)
}

// Net estimates what a costs more than floor, in nanoseconds.
func (s Samples) Net(a, floor string) Estimate {
	return s.estimate(func(pick []int) float64 {
		return s.over(pick, func(i int) float64 { return s[a][i] - s[floor][i] })
	}, a, floor)
}

// NetRatio estimates how many times what b costs a costs, both net of floor.
func (s Samples) NetRatio(a, b, floor string) Estimate {
	return s.estimate(func(pick []int) float64 {
		return s.over(pick, func(i int) float64 { return (s[a][i] - s[floor][i]) / (s[b][i] - s[floor][i]) })
	}, a, b, floor)
}

// OverheadRatio estimates what a costs on top of floor as a share of what b costs on top of it.
func (s Samples) OverheadRatio(a, b, floor string) Estimate {
	return s.estimate(func(pick []int) float64 {
		return (s.MedianRatio(a, floor, pick) - 1) / (s.MedianRatio(b, floor, pick) - 1)
	}, a, b, floor)
}

// estimate is NaN throughout if a case was not measured.
func (s Samples) estimate(statistic func([]int) float64, names ...string) Estimate {
	for _, n := range names {
		if len(s[n]) == 0 {
			return Estimate{math.NaN(), math.NaN(), math.NaN()}
		}
	}
	return Of(len(s[names[0]]), statistic)
}

func (s Samples) over(rounds []int, value func(round int) float64) float64 {
	values := make([]float64, len(rounds))
	for i, r := range rounds {
		values[i] = value(r)
	}
	return Median(values)
}

// Median sorts the values and returns the one in the middle.
func Median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	return (values[(n-1)/2] + values[n/2]) / 2
}
