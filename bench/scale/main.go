//go:build linux

// Command scale measures what a large cluster costs before the kernel: time, memory and the price of one change. Every
// scenario runs in a process of its own. See bench/README.md.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"

	"github.com/margay-project/margay/pkg/model"
)

// scenario is one cluster to sync.
type scenario struct {
	name    string
	about   string
	feed    func(sink func([]model.Update)) feed
	agent   bool // as the agent does it: as it comes, through its buffer, in batches, and through the compiler
	changes bool // and measure changes and questions afterwards
}

func scenarios() []scenario {
	return []scenario{
		{name: "tags", about: "P14: 10,000 tag policies, labels that hardly repeat", feed: func(sink func([]model.Update)) feed { return tagPolicies(sink, 200, 250_000, 10_000) }},
		{name: "isolated", about: "P14: 100,000 isolated customers", feed: func(sink func([]model.Update)) feed { return isolated(sink, 100_000) }},
		{name: "selectors", about: "P15: 100 policies of 5 selector rules, as the agent does it", agent: true, feed: func(sink func([]model.Update)) feed { return selectorPolicies(sink, 100, 50_000) }},
		{name: "deployments", about: "Deployments, 1,000 Kubernetes policies, as the agent does it", agent: true, changes: true, feed: func(sink func([]model.Update)) feed { return deployments(sink, 200, 250_000, 1000) }},
		{name: "policies", about: "10,000 Kubernetes policies of which some 100 apply here, as the agent does it", agent: true, changes: true, feed: func(sink func([]model.Update)) feed { return deployments(sink, 10, 50_000, 10_000) }},
		{name: "deployments-small", about: "the same", agent: true, changes: true, feed: func(sink func([]model.Update)) feed { return deployments(sink, 100, 10_000, 1000) }},
	}
}

func main() {
	out := flag.String("out", "bench/results", "directory for scale.json and scale.txt; empty: none")
	only := flag.String("only", "", "measure only this scenario, print it and write no files")
	child := flag.String("run", "", "measure this scenario in this process and print it as JSON (for the command itself)")
	profile := flag.String("heap", "", "with -run: write a heap profile of what is kept to this file")
	cpu := flag.String("cpu", "", "with -run: write a CPU profile to this file")
	flag.Parse()
	var err error
	if *child != "" {
		err = inProcess(*child, *profile, *cpu)
	} else {
		err = all(*out, *only)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// inProcess measures one scenario here.
func inProcess(name, heap, cpu string) (err error) {
	for _, s := range scenarios() {
		if s.name != name {
			continue
		}
		if cpu != "" {
			f, err := os.Create(cpu)
			if err != nil {
				return err
			}
			if err := pprof.StartCPUProfile(f); err != nil {
				return err
			}
			defer pprof.StopCPUProfile()
		}
		result, c := measure(s)
		if heap != "" {
			f, createErr := os.Create(heap)
			if createErr != nil {
				return createErr
			}
			defer func() { err = errors.Join(err, f.Close()) }()
			if err := pprof.WriteHeapProfile(f); err != nil {
				return err
			}
		}
		c.keep()
		return json.NewEncoder(os.Stdout).Encode(result)
	}
	return fmt.Errorf("no scenario %q", name)
}

// all measures every scenario, or one, each in a process of its own.
func all(out, only string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var results []sample
	for _, s := range scenarios() {
		if only != "" && s.name != only {
			continue
		}
		command := exec.Command(self, "-run", s.name)
		command.Stderr = os.Stderr
		text, err := command.Output()
		if err != nil {
			return fmt.Errorf("measure %s: %w", s.name, err)
		}
		var result sample
		if err := json.Unmarshal(text, &result); err != nil {
			return fmt.Errorf("read the result of %s: %w", s.name, err)
		}
		results = append(results, result)
	}
	if len(results) == 0 {
		return fmt.Errorf("no scenario %q", only)
	}
	report := table(results)
	fmt.Print(report)
	if only != "" || out == "" {
		return nil
	}
	text, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(out, "scale.json"), append(text, '\n'), 0o644),
		os.WriteFile(filepath.Join(out, "scale.txt"), []byte(report), 0o644))
}
