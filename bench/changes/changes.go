//go:build linux

// Package changes measures what one change costs on a node with many policies, in each dataplane: time from the update until it is
// enforced, CPU time, and memory. Graph, compiler, dataplane and the kernel's tables are real; interfaces are made up.
//
//   - changes.go: what is measured; plane.go: the dataplanes; policy.go: what they enforce; memory.go: the kernel's memory
package changes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/margay-project/margay/bench/paired"
	"github.com/margay-project/margay/bench/report"
	"github.com/margay-project/margay/pkg/lab"
)

// Options of a run.
type Options struct {
	Work   string // directory for BPF file systems
	Slots  []int  // numbers of policies on the node, ascending
	Rounds int
	Wait   time.Duration // between two looks at the kernel's memory
	Log    func(format string, args ...any)
}

// mostMilliseconds is what P20 may take.
var mostMilliseconds = map[load]float64{{1000, 1}: 60}

// Measure measures P20.
func Measure(ctx context.Context, o Options) (results []report.Result, err error) {
	l, err := lab.New()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	var loads []load
	for _, n := range o.Slots {
		loads = append(loads, load{n, 1})
	}
	for i, of := range append(loads, load{o.Slots[len(o.Slots)-1], mostRules}) {
		r, err := o.measure(ctx, l, of, i)
		if err != nil {
			return nil, fmt.Errorf("%v: %w", of, err)
		}
		results = append(results, r...)
	}
	return results, nil
}

// measure measures all dataplanes with a load.
func (o Options) measure(ctx context.Context, l *lab.Lab, of load, number int) (results []report.Result, err error) {
	var planes []plane
	defer func() {
		for _, p := range planes {
			err = errors.Join(err, p.close())
		}
	}()
	for i, open := range openers {
		node, err := l.AddNode(fmt.Sprintf("c%d%c", number, 'a'+i))
		if err != nil {
			return nil, err
		}
		p, kernel, err := o.begin(ctx, open, node, of)
		if p != nil {
			planes = append(planes, p)
		}
		if err != nil {
			return nil, err
		}
		results = append(results, report.Info("kernel memory", fmt.Sprintf("%v: %s", of, p.name()), "kB", report.Exact(kernel)))
	}
	o.Log("%v are there", of)
	for _, c := range kinds {
		r, err := o.kind(ctx, c, planes, of)
		if err != nil {
			return nil, err
		}
		results = append(results, r...)
	}
	return results, nil
}

// begin makes a dataplane and has it enforce. It returns by how many kB the kernel's memory has grown.
func (o Options) begin(ctx context.Context, open opener, node *lab.Node, of load) (p plane, kernel float64, err error) {
	before := stableMemory(o.Wait)
	if p, err = open(ctx, o, node); err != nil {
		return nil, 0, err
	}
	if err := p.fill(ctx, of); err != nil {
		return p, 0, fmt.Errorf("%s: %w", p.name(), err)
	}
	return p, (stableMemory(o.Wait) - before) / 1e3, nil
}

// kind measures one kind of change in all dataplanes that have it.
func (o Options) kind(ctx context.Context, c change, planes []plane, of load) ([]report.Result, error) {
	var cases []paired.Case
	cpu := paired.Samples{}
	for _, p := range planes {
		if !p.knows(c) {
			continue
		}
		turn := 0
		cases = append(cases, paired.Case{Name: p.name(), Ops: 1, Run: func(int) (time.Duration, error) {
			turn++
			wall, used, err := timed(func() error { return p.do(ctx, c, turn) })
			if turn > 1 { // the round that does not count
				cpu[p.name()] = append(cpu[p.name()], float64(used))
			}
			return wall, err
		}})
	}
	if len(cases) == 0 {
		return nil, nil
	}
	wall, err := paired.Measure(cases, o.Rounds)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.what, err)
	}
	var results []report.Result
	for _, p := range planes {
		if !p.knows(c) {
			continue
		}
		if err := p.check(ctx, c, o.Rounds+1); err != nil {
			return nil, fmt.Errorf("%s, %s: %w", p.name(), c.what, err)
		}
		id := "P20"
		name := fmt.Sprintf("%s, %v: %s", c.what, of, p.name())
		if must := mostMilliseconds[of]; must > 0 && p.required() {
			results = append(results, report.Required(id, name, "ms", milliseconds(wall.Cost(p.name())), must))
		} else {
			results = append(results, report.Info(id, name, "ms", milliseconds(wall.Cost(p.name()))))
		}
		results = append(results, report.Info("CPU of a change", name, "ms", milliseconds(cpu.Cost(p.name()))))
	}
	return results, nil
}

func milliseconds(e paired.Estimate) paired.Estimate {
	return paired.Estimate{Median: e.Median / 1e6, Low: e.Low / 1e6, High: e.High / 1e6}
}
