// Command kernels runs parts of Margay on kernels that Debian has packages of, under QEMU: see `make kernels`.
//
// A guest gets Debian's programs, the modules of its kernel, this source tree and compiled tests within its initial file
// system, so it shares nothing with this machine. Packages are kept in the cache for the next run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

func main() {
	short := flag.Bool("short", false, "only what CI runs")
	only := flag.String("only", "", "only the guest of this name")
	named := flag.String("task", "", "only the tasks whose names begin so")
	command := flag.String("command", "", "run this command of the shell in the guests instead of their tasks")
	quiet := flag.Bool("quiet", false, "show what jobs write only when they fail")
	atOnce := flag.Int("at-once", 1, "how many guests may run at the same time; each needs a CPU")
	excuse := flag.String("excuse", "", "write into this file what could not be had (emulators, Debian's packages), and end well without it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, guests(*short, *only, *named, *command), *quiet, max(1, *atOnce))
	if *excuse != "" && errors.As(err, &unavailable{}) {
		fmt.Println("NOT RUN:", err)
		err = os.WriteFile(*excuse, []byte(strings.ReplaceAll(err.Error(), "\n", " ")+"\n"), 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
		stop()
		os.Exit(1)
	}
}

// guests is what to boot: all of the plan or the one named, with their tasks, those whose names begin with named, or a command.
func guests(short bool, only, named, command string) []guest {
	guests := slices.DeleteFunc(plan(short), func(g guest) bool { return only != "" && g.name != only })
	for i := range guests {
		guests[i].tasks = slices.DeleteFunc(guests[i].tasks, func(t task) bool { return !strings.HasPrefix(t.name, named) })
		if command != "" {
			guests[i].tasks = []task{{name: "command", command: []string{"sh", "-c", command}, limit: guests[i].limit}}
		}
	}
	return slices.DeleteFunc(guests, func(g guest) bool { return len(g.tasks) == 0 })
}

func run(ctx context.Context, guests []guest, quiet bool, atOnce int) error {
	if len(guests) == 0 {
		return errors.New("no guest or no task of that name")
	}
	var archs []string
	for _, g := range guests {
		archs = append(archs, g.arch)
	}
	if err := needed(archs); err != nil {
		return unavailable{err}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	a, err := openArchive(ctx, filepath.Join(cache, "margay", "kernels"))
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "margay-kernels-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	r := runner{archive: a, work: work, built: map[string]bool{}, quiet: quiet, summary: map[string][]string{}}
	running, slots := sync.WaitGroup{}, make(chan struct{}, atOnce)
	for _, g := range guests {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		started := time.Now()
		b, err := r.prepare(ctx, g, guests)
		if err != nil {
			r.note(g, err)
			<-slots
			continue
		}
		prepared := time.Since(started)
		running.Go(func() {
			defer func() { <-slots }()
			r.boot(ctx, g, b, prepared)
		})
	}
	running.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	fmt.Println()
	for _, g := range guests {
		for _, line := range r.summary[g.name] {
			fmt.Println(line)
		}
	}
	if len(r.failed) > 0 {
		return fmt.Errorf("failed:\n  %s", strings.Join(append(r.failed, r.missing...), "\n  "))
	}
	if len(r.missing) > 0 {
		return unavailable{fmt.Errorf("not run:\n  %s", strings.Join(r.missing, "\n  "))}
	}
	return nil
}
