//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/margay-project/margay/bench/kernel"
	"github.com/margay-project/margay/bench/report"
	"github.com/margay-project/margay/bench/traffic"
	"golang.org/x/sys/unix"
)

type options struct {
	margay, out, only string
	core              int
	quick, strict     bool
}

// run measures, prints and writes the results. It returns how many miss what is required.
func run(ctx context.Context, o options, out io.Writer) (missed int, err error) {
	work, err := os.MkdirTemp("", "margay-bench-")
	if err != nil {
		return 0, err
	}
	defer func() {
		if err == nil { // else the agents' logs are in it
			err = os.RemoveAll(work)
		}
	}()
	if err := goFirst(); err != nil {
		return 0, err
	}
	began, before := time.Now(), load()
	log := func(format string, args ...any) {
		fmt.Fprintf(out, "%5.0f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	results, err := measure(ctx, o, work, log)
	if err != nil {
		return 0, err
	}
	var text bytes.Buffer
	title := fmt.Sprintf("Margay on Linux %s, %d cores, %s", kernelRelease(), runtime.NumCPU(), began.UTC().Format("2006-01-02"))
	fmt.Fprintf(&text, "%s\nload %s before, %s after; %s\n\n", title, before, load(), time.Since(began).Round(time.Second))
	if err := report.Table(&text, results); err != nil {
		return 0, err
	}
	missed = report.Failed(results)
	fmt.Fprintf(&text, "\n%d results miss what is required of them\n", missed)
	fmt.Fprintf(out, "\n%s", text.Bytes())
	if o.only != "" {
		return missed, nil
	}
	return missed, write(o.out, title, text.Bytes(), results)
}

// measure runs the parts asked for.
func measure(ctx context.Context, o options, work string, log func(string, ...any)) ([]report.Result, error) {
	var results []report.Result
	for _, part := range []struct {
		name string
		do   func() ([]report.Result, error)
	}{
		{"traffic", func() ([]report.Result, error) { return traffic.Measure(ctx, trafficOptions(o, work, log)) }},
		{"nodes", func() ([]report.Result, error) { return traffic.MeasureNodes(ctx, trafficOptions(o, work, log)) }},
		{"classification", func() ([]report.Result, error) { return kernel.Classify(kernelOptions(o, work, log)) }},
		{"language", func() ([]report.Result, error) { return kernel.Language(kernelOptions(o, work, log)) }},
		{"changes", func() ([]report.Result, error) { return kernel.Changes(kernelOptions(o, work, log)) }},
		{"flood", func() ([]report.Result, error) { return kernel.Flood(kernelOptions(o, work, log)) }},
	} {
		if o.only != "" && o.only != part.name {
			continue
		}
		log("%s", part.name)
		r, err := part.do()
		if err != nil {
			return nil, fmt.Errorf("measure %s: %w", part.name, err)
		}
		results = append(results, r...)
	}
	if len(results) == 0 {
		return nil, fmt.Errorf("-only %q: there is no such part", o.only)
	}
	return results, nil
}

func trafficOptions(o options, work string, log func(string, ...any)) traffic.Options {
	t := traffic.Options{Margay: o.margay, Work: work, Core: o.core, Log: log,
		Nodes: 3, Rounds: 81, UDPOps: 8192, RequestOps: 1600, ConnectOps: 224, Rules: []int{10, 1000, 10000}}
	if o.quick {
		t.Nodes, t.Rounds, t.UDPOps, t.RequestOps, t.ConnectOps, t.Rules = 1, 2, 64, 32, 32, []int{10, 100}
	}
	return t
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

// write leaves the files; all of them belong to one run.
func write(dir, title string, text []byte, results []report.Result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var json, svg bytes.Buffer
	if err := errors.Join(report.JSON(&json, results), report.SVG(&svg, title, results)); err != nil {
		return err
	}
	var errs []error
	for name, data := range map[string][]byte{"latest.txt": text, "latest.json": json.Bytes(), "latest.svg": svg.Bytes()} {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
	return errors.Join(errs...)
}

// goFirst gives all threads of this process, and those they start, precedence over what else runs here.
func goFirst() error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range tasks {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.Setpriority(unix.PRIO_PROCESS, id, -20); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("raise the priority of thread %d: %w", id, err)
		}
	}
	return nil
}

func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "?"
	}
	return strings.Fields(string(text))[0]
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "?"
	}
	return unix.ByteSliceToString(u.Release[:])
}
