//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/margay-project/margay/bench/page"
	"github.com/margay-project/margay/bench/report"
	"golang.org/x/sys/unix"
)

type options struct {
	margay, out, page, only, group string
	core                           int
	quick, strict                  bool
}

// spare leaves the committed results and their document as they are, unless they are named: numbers of a quick run mean nothing.
func (o *options) spare(named map[string]bool) {
	if !named["out"] {
		o.out = ""
	}
	if !named["page"] {
		o.page = ""
	}
}

// given returns the names of the flags that were given.
func given(flags *flag.FlagSet) map[string]bool {
	names := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { names[f.Name] = true })
	return names
}

// run measures, prints and writes the results. It returns how many miss what is required.
func run(ctx context.Context, o options, out io.Writer) (missed int, err error) {
	groups, err := chosen(o.only, o.group)
	if err != nil {
		return 0, err
	}
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
	for _, g := range groups {
		n, err := runGroup(ctx, o, g, work, out)
		if err != nil {
			return missed, err
		}
		missed += n
	}
	return missed, nil
}

// runGroup measures the parts of a group, prints the results and writes its files.
func runGroup(ctx context.Context, o options, g group, work string, out io.Writer) (missed int, err error) {
	began, before := time.Now(), load()
	log := func(format string, args ...any) {
		fmt.Fprintf(out, "%5.0f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	var results []report.Result
	for _, p := range g.parts {
		log("%s", p.name)
		r, err := p.do(ctx, o, work, log)
		if err != nil {
			return 0, fmt.Errorf("measure %s: %w", p.name, err)
		}
		results = append(results, r...)
	}
	var text bytes.Buffer
	title := fmt.Sprintf("Margay on Linux %s, %d cores, %s", kernelRelease(), runtime.NumCPU(), began.UTC().Format("2006-01-02"))
	fmt.Fprintf(&text, "%s\n%s\n%s\nload %s before, %s after; %s\n\n", title, processor(), command(o, g), before, load(), time.Since(began).Round(time.Second))
	if err := report.Table(&text, results); err != nil {
		return 0, err
	}
	missed = report.Failed(results)
	fmt.Fprintf(&text, "\n%d results miss what is required of them\n", missed)
	fmt.Fprintf(out, "\n%s", text.Bytes())
	if o.only != "" || o.out == "" {
		return missed, nil
	}
	if err := write(o.out, g.name, title, text.Bytes(), results); err != nil || !g.page || o.page == "" {
		return missed, err
	}
	return missed, writePage(o.page, results)
}

// writePage puts the results into the document about them.
func writePage(path string, results []report.Result) error {
	document, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := page.Put(string(document), results)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// command is how the results of a group are measured again.
func command(o options, g group) string {
	c := "go run ./bench/run -group " + g.name
	if o.quick {
		c += " -quick"
	}
	return c
}

// processor is the machine's, by name.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	_, rest, _ := strings.Cut(string(text), "model name")
	name, _, _ := strings.Cut(strings.TrimLeft(rest, "\t: "), "\n")
	return cmp.Or(name, runtime.GOARCH)
}

// write leaves the files; all of them belong to one run.
func write(dir, name, title string, text []byte, results []report.Result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var json, svg bytes.Buffer
	if err := errors.Join(report.JSON(&json, results), report.SVG(&svg, title, results)); err != nil {
		return err
	}
	var errs []error
	for kind, data := range map[string][]byte{".txt": text, ".json": json.Bytes(), ".svg": svg.Bytes()} {
		errs = append(errs, os.WriteFile(filepath.Join(dir, name+kind), data, 0o644))
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
