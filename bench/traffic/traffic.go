//go:build linux

package traffic

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"

	"github.com/margay-project/margay/bench/paired"
	"github.com/margay-project/margay/bench/report"
)

// Names of configurations in results.
const (
	bare    = "bare"
	control = "bare again" // the A/A control
	hooks   = "empty programs on the hooks"
)

func bpfName(rules int, shortcut bool) string {
	word := "off"
	if shortcut {
		word = "on"
	}
	return fmt.Sprintf("BPF, shortcut %s, %d rules", word, rules)
}

func noHooks(rules int) string {
	return fmt.Sprintf("for information: BPF, %d rules, without the netfilter programs", rules)
}

func earlyName(rules int) string {
	return fmt.Sprintf("for information: BPF, %d rules, with the program at PRE_ROUTING", rules)
}

func chainName(rules int) string { return fmt.Sprintf("hand-written iptables, port rules, %d", rules) }
func setsName(rules int) string  { return fmt.Sprintf("hand-written iptables, set rules, %d", rules) }

// off is how far the A/A control may be from 1; attempts how often a workload is measured until it is not.
const (
	off      = 0.015
	attempts = 3
)

func configs(o Options) []config {
	list := []config{{name: bare, share: 1}, emptyConfig(hooks, false)}
	for _, n := range o.Rules {
		list = append(list, margayConfig(bpfName(n, false), n, false), margayConfig(bpfName(n, true), n, true))
	}
	list = append(list, withoutHooks(noHooks(o.Rules[0]), o.Rules[0]), withEarly(earlyName(o.Rules[0]), o.Rules[0]))
	for _, n := range o.Rules {
		share := max(1, n/500)
		list = append(list, iptablesConfig(chainName(n), n, share, false), iptablesConfig(setsName(n), n, share, true))
	}
	return append(list, config{name: control, share: 1})
}

// Measure measures P1 to P6 between pods of one node.
func Measure(ctx context.Context, o Options) ([]report.Result, error) {
	all, err := measureAll(ctx, o, configs(o), control, bare)
	if err != nil {
		return nil, err
	}
	var results []report.Result
	for i, w := range workloads(o) {
		results = append(results, toBare(w.id, w.name, all[i])...)
	}
	return append(results, derived(o, all[0], all[1], all[2])...), nil
}

// task is a workload, the requirement it is measured for, and how often a round does it.
type task struct {
	workload
	id  string
	ops int
}

func workloads(o Options) [3]task {
	return [3]task{{udpPackets, "P1", o.UDPOps}, {tcpRequests, "P2", o.RequestOps}, {tcpConnections, "P4", o.ConnectOps}}
}

// measureAll measures each workload in all configurations, again if the two that are alike differ by too much.
func measureAll(ctx context.Context, o Options, list []config, again, base string) (all [3]paired.Samples, err error) {
	s, err := newScene(ctx, o, list)
	if err != nil {
		return all, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	d, err := NewDriver(o.Core)
	if err != nil {
		return all, err
	}
	defer d.Close()
	o.Log("%d sites are set up; real-time threads: %t", len(s.sites), d.RealTime())
	// The threads that are measured do not stop for garbage collection, and would hold it up.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for i, w := range workloads(o) {
		for attempt := 1; ; attempt++ {
			if all[i], err = s.measure(d, w.workload, w.ops, o.Rounds); err != nil {
				return all, err
			}
			aa := all[i].Ratio(again, base)
			o.Log("%s: %s %.0f ns, A/A %.4f", w.name, base, all[i].Cost(base).Median, aa.Median)
			if math.Abs(aa.Median-1) <= off || attempt == attempts {
				break
			}
			o.Log("%s: the A/A control is off, measured again", w.name)
		}
	}
	return all, ctx.Err()
}

// most are what P1, P2 and P4 may cost compared to bare, shortcut off and on.
var most = map[string][2]float64{"P1": {1.075, 0.92}, "P2": {1.05, 0.95}, "P4": {1.09, 0.95}}

// toBare are the ratios of every configuration to bare.
func toBare(id, what string, s paired.Samples) []report.Result {
	label := func(config string) string { return what + ": " + config }
	aa := s.Ratio(control, bare)
	pass := math.Abs(aa.Median-1) <= off
	results := []report.Result{
		report.Info(id, label(bare), "ns", s.Cost(bare)),
		{ID: id, Config: label("A/A control"), Unit: "ratio", Median: aa.Median, Low: aa.Low, High: aa.High, Must: 1 + off, Pass: &pass},
		report.Info(id, label(hooks), "ratio", s.Ratio(hooks, bare)),
	}
	for _, name := range sortedByKind(s) {
		e := s.Ratio(name, bare)
		switch kindOf(name) {
		case kindOff:
			results = append(results, report.Required(id, label(name), "ratio", e, most[id][0]))
		case kindOn:
			results = append(results, report.Required(id, label(name), "ratio", e, most[id][1]))
		case kindOther:
			results = append(results, report.Info(id, label(name), "ratio", e))
		}
	}
	return results
}

// derived are the ratios between configurations: P3, P5 and P6.
func derived(o Options, udp, request, connect paired.Samples) []report.Result {
	var results []report.Result
	few, many := o.Rules[0], o.Rules[len(o.Rules)-1]
	for _, w := range []struct {
		what string
		s    paired.Samples
	}{{"UDP packet", udp}, {"TCP request-response", request}} {
		results = append(results, report.Required("P3", fmt.Sprintf("overhead over bare, %s, 1 flow, BPF / hand-written iptables, %d rules", w.what, few),
			"ratio", w.s.OverheadRatio(bpfName(few, false), chainName(few), bare), 0.70))
	}
	for _, shortcut := range []bool{false, true} {
		for _, w := range []struct {
			what string
			s    paired.Samples
		}{{"UDP packet", udp}, {"request-response", request}, {"connect-request-close", connect}} {
			results = append(results, report.Required("P5", fmt.Sprintf("%s: %s / %d rules", w.what, bpfName(many, shortcut), few),
				"ratio", w.s.Ratio(bpfName(many, shortcut), bpfName(few, shortcut)), 1.02))
		}
	}
	for _, n := range o.Rules {
		name := fmt.Sprintf("connect-request-close: BPF, shortcut off / hand-written iptables, set rules, %d rules", n)
		e := connect.Ratio(bpfName(n, false), setsName(n))
		if must, ok := map[int]float64{10: .98, 1000: .50, 10000: .10}[n]; ok {
			results = append(results, report.Required("P6", name, "ratio", e, must))
		} else {
			results = append(results, report.Info("P6", name, "ratio", e))
		}
	}
	return results
}
