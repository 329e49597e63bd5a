//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/margay-project/margay/bench/changes"
	"github.com/margay-project/margay/bench/kernel"
	"github.com/margay-project/margay/bench/report"
	"github.com/margay-project/margay/bench/traffic"
)

// group is the parts of one run whose results are one set of files.
type group struct {
	name  string // of the files
	page  bool   // they are the tables of the document
	parts []part
}

type part struct {
	name string
	do   func(ctx context.Context, o options, work string, log func(string, ...any)) ([]report.Result, error)
}

var groups = []group{
	{"latest", false, []part{
		{"traffic", func(ctx context.Context, o options, work string, log func(string, ...any)) ([]report.Result, error) {
			return traffic.Measure(ctx, trafficOptions(o, work, log))
		}},
		{"nodes", func(ctx context.Context, o options, work string, log func(string, ...any)) ([]report.Result, error) {
			return traffic.MeasureNodes(ctx, trafficOptions(o, work, log))
		}},
		{"classification", ofKernel(kernel.Classify)},
		{"language", ofKernel(kernel.Language)},
		{"changes", ofKernel(kernel.Changes)},
		{"flood", ofKernel(kernel.Flood)},
	}},
	{"dataplanes", true, []part{
		{"beside", func(ctx context.Context, o options, work string, log func(string, ...any)) ([]report.Result, error) {
			t := trafficOptions(o, work, log)
			if !o.quick { // there are 40 configurations
				t.Nodes, t.Rounds, t.UDPOps = 2, 40, 4096
			}
			return traffic.MeasureDataplanes(ctx, t)
		}},
		{"slots", func(ctx context.Context, o options, work string, log func(string, ...any)) ([]report.Result, error) {
			return changes.Measure(ctx, changesOptions(o, work, log))
		}},
	}},
}

// ofKernel is a part that test-runs programs.
func ofKernel(do func(kernel.Options) ([]report.Result, error)) func(context.Context, options, string, func(string, ...any)) ([]report.Result, error) {
	return func(_ context.Context, o options, work string, log func(string, ...any)) ([]report.Result, error) {
		return do(kernelOptions(o, work, log))
	}
}

// chosen are the groups and parts to be measured; all of them by default.
func chosen(only, name string) (list []group, err error) {
	for _, g := range groups {
		if name != "" && g.name != name {
			continue
		}
		g.parts = slices.DeleteFunc(slices.Clone(g.parts), func(p part) bool { return only != "" && only != p.name })
		if len(g.parts) > 0 {
			list = append(list, g)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("-only %q -group %q: there is no such part", only, name)
	}
	return list, nil
}

func trafficOptions(o options, work string, log func(string, ...any)) traffic.Options {
	t := traffic.Options{Margay: o.margay, Work: work, Core: o.core, Log: log,
		Nodes: 3, Rounds: 81, UDPOps: 8192, RequestOps: 1600, ConnectOps: 224, Rules: []int{10, 1000, 10000}}
	t.SetRules = t.Rules
	if o.quick {
		t.Nodes, t.Rounds, t.UDPOps, t.RequestOps, t.ConnectOps, t.Rules, t.SetRules, t.Few = 1, 2, 64, 32, 32, []int{10, 100}, []int{100}, true
	}
	return t
}

func changesOptions(o options, work string, log func(string, ...any)) changes.Options {
	c := changes.Options{Work: work, Log: log, Rounds: 21, Wait: 100 * time.Millisecond, Slots: []int{12, 100, 1000}}
	if o.quick {
		c.Rounds, c.Wait, c.Slots = 2, time.Millisecond, []int{12}
	}
	return c
}

func kernelOptions(o options, work string, log func(string, ...any)) kernel.Options {
	k := kernel.Options{Work: work, Log: log, Rounds: 41, Repeat: 20000, Rules: []int{1, 10, 100, 1000, 10000},
		Flood: 3_000_000, Flows: 10_000, FewMembers: 1000, ManyMembers: 100_000, ChangeRules: []int{100, 1000, 10000}}
	if o.quick {
		k.Rounds, k.Repeat, k.Rules, k.Flood, k.Flows = 2, 100, []int{1, 10, 100}, 100_000, 100
		k.FewMembers, k.ManyMembers, k.ChangeRules = 10, 100, []int{10, 100}
	}
	return k
}
