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
	"syscall"
	"time"

	"github.com/margay-project/margay/test/kernels/job"
)

func main() {
	short := flag.Bool("short", false, "only what CI runs")
	only := flag.String("only", "", "only the guest of this name")
	named := flag.String("task", "", "only the tasks whose names begin so")
	command := flag.String("command", "", "run this command of the shell in the guests instead of their tasks")
	quiet := flag.Bool("quiet", false, "show what jobs write only when they fail")
	excuse := flag.String("excuse", "", "write into this file what could not be had (emulators, Debian's packages), and end well without it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, guests(*short, *only, *named, *command), *quiet)
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

func run(ctx context.Context, guests []guest, quiet bool) error {
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
	r := runner{archive: a, work: work, built: map[string]bool{}, quiet: quiet}
	for _, g := range guests {
		if err := r.guest(ctx, g, guests); errors.As(err, &unavailable{}) {
			r.missing = append(r.missing, fmt.Sprintf("%s: %v", g.name, err))
			fmt.Printf("NOT RUN %s: %v\n", g.name, err)
		} else if err != nil {
			r.failed = append(r.failed, fmt.Sprintf("%s: %v", g.name, err))
			fmt.Printf("FAIL %s: %v\n", g.name, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	fmt.Println()
	for _, line := range r.summary {
		fmt.Println(line)
	}
	if len(r.failed) > 0 {
		return fmt.Errorf("failed:\n  %s", strings.Join(append(r.failed, r.missing...), "\n  "))
	}
	if len(r.missing) > 0 {
		return unavailable{fmt.Errorf("not run:\n  %s", strings.Join(r.missing, "\n  "))}
	}
	return nil
}

// runner boots guests.
type runner struct {
	archive *archive
	work    string          // a directory that is removed at the end
	built   map[string]bool // the architectures whose binaries are there
	quiet   bool
	summary []string
	failed  []string
	missing []string // guests whose packages could not be had
}

// guest boots one guest and judges what it says. What the other guests of the architecture need is built on the way.
func (r *runner) guest(ctx context.Context, g guest, all []guest) error {
	started := time.Now()
	name, err := r.archive.kernel(ctx, g.arch, g.series)
	if err != nil {
		return err
	}
	fmt.Printf("\n-- %s: %s\n", g.name, name)
	parts, err := r.archive.parts(ctx, g.arch, name)
	if err != nil {
		return err
	}
	kernel, err := r.archive.unpacked(ctx, name, g.arch, true, parts...)
	if err != nil {
		return err
	}
	if err := indexed(ctx, kernel); err != nil {
		return err
	}
	root, err := r.archive.unpacked(ctx, rootName(g.arch), g.arch, false, programs...)
	if err != nil {
		return err
	}
	binDir := filepath.Join(r.work, g.arch)
	if !r.built[g.arch] {
		var tasks []task
		for _, other := range all {
			if other.arch == g.arch {
				tasks = append(tasks, other.tasks...)
			}
		}
		if err := os.Mkdir(binDir, 0o755); err != nil {
			return err
		}
		if err := binaries(ctx, binDir, g.arch, tasks); err != nil {
			return err
		}
		r.built[g.arch] = true
	}
	image := filepath.Join(r.work, "initrd")
	if err := initrd(image, root, kernel, binDir, request(g)); err != nil {
		return err
	}
	bootable, err := kernelFile(kernel)
	if err != nil {
		return err
	}
	prepared := time.Since(started)
	b := boot{arch: g.arch, kernel: bootable, initrd: image, setting: g.setting, counted: g.counted, limit: g.limit}
	o, err := b.run(ctx, func(line string) {
		if !r.quiet {
			fmt.Println("   " + line)
		}
	})
	if o != nil {
		r.judge(g, o, prepared, time.Since(started)-prepared)
	}
	return err
}

// judge compares what became of the jobs with what was to become of them.
func (r *runner) judge(g guest, o *outcome, prepared, took time.Duration) {
	fail := func(format string, args ...any) {
		text := g.name + ": " + fmt.Sprintf(format, args...)
		r.failed = append(r.failed, text)
		fmt.Println("FAIL", text)
	}
	version := "unknown"
	if o.report != nil {
		version = o.report.Kernel
		for _, fault := range o.report.Faults {
			fail("the kernel says: %s", fault)
		}
	}
	r.summary = append(r.summary, fmt.Sprintf("%-12s %-28s %4.0f s, and %.0f s to prepare", g.name, version, took.Seconds(), prepared.Seconds()))
	for _, t := range g.tasks {
		at := slices.IndexFunc(o.results, func(result job.Result) bool { return result.Job == t.name })
		if at < 0 {
			fail("%s: did not run", t.name)
			continue
		}
		result, check := o.results[at], t.check
		if check == nil {
			check = succeeded
		}
		err := check(result.Status, o.output[t.name])
		if result.Err != "" {
			err = fmt.Errorf("%s", result.Err)
		}
		said := "ok"
		if err != nil {
			said = "FAIL"
			if r.quiet {
				fmt.Println(o.output[t.name])
			}
			fail("%s: %v", t.name, err)
		}
		r.summary = append(r.summary, fmt.Sprintf("  %-4s %-24s %6.1f s by its clock", said, t.name, result.Took))
	}
}

// request is what a guest is handed.
func request(g guest) job.Request {
	request := job.Request{Modules: g.modules}
	for _, t := range g.tasks {
		j := job.Job{Name: t.name, Command: t.command, Limit: t.limit}
		if t.pkg != "" {
			j.Env = []string{"MARGAY_REQUIRE_PRIVILEGED=1", "MARGAY_REQUIRE_KERNEL=1", "MARGAY_E2E_BINARY=/t/margay"}
			j.Command = append([]string{"/t/" + filepath.Base(t.pkg) + ".test"}, t.args...)
			j.Dir = filepath.Join("/src", t.pkg)
		}
		j.Env = append(j.Env, t.env...)
		request.Jobs = append(request.Jobs, j)
	}
	return request
}
