//go:build linux

// Command run measures what Margay costs and compares it with what is required of it. See bench/README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	var o options
	flag.StringVar(&o.margay, "margay", "bin/margay", "the agent's binary")
	flag.StringVar(&o.out, "out", "bench/results", "directory for the results: latest.json, latest.svg and latest.txt, and dataplanes.*")
	flag.StringVar(&o.page, "page", "docs/benchmarks.md", "document that gets the tables of dataplanes.*; empty: none")
	flag.StringVar(&o.group, "group", "", "latest or dataplanes: measure only what these files are about")
	flag.StringVar(&o.only, "only", "", "traffic, nodes, classification, language, changes, flood, beside or slots: measure only that part, print it and write no files")
	flag.IntVar(&o.core, "core", 1, "core that traffic runs on")
	flag.BoolVar(&o.quick, "quick", false, "few rounds and small numbers: to see that everything works, not to learn anything; writes no files but those that -out and -page name")
	flag.BoolVar(&o.strict, "strict", false, "exit with 1 if anything misses what is required of it")
	flag.Parse()
	if o.quick {
		o.spare(given(flag.CommandLine))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	missed, err := run(ctx, o, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	if missed > 0 && o.strict {
		os.Exit(1)
	}
}
