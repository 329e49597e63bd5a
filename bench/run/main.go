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
	flag.StringVar(&o.out, "out", "bench/results", "directory for latest.json, latest.svg and latest.txt")
	flag.StringVar(&o.only, "only", "", "traffic, nodes, classification, changes or flood: measure only that part, print it and write no files")
	flag.IntVar(&o.core, "core", 1, "core that traffic runs on")
	flag.BoolVar(&o.quick, "quick", false, "few rounds and small numbers: to see that everything works, not to learn anything")
	flag.BoolVar(&o.strict, "strict", false, "exit with 1 if anything misses what is required of it")
	flag.Parse()
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
