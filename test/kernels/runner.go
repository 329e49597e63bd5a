package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/margay-project/margay/test/kernels/job"
)

// runner boots guests. They are prepared one after the other.
type runner struct {
	archive *archive
	work    string          // a directory that is removed at the end
	built   map[string]bool // the architectures whose binaries are there
	quiet   bool

	mu      sync.Mutex
	summary map[string][]string // by guest
	failed  []string
	missing []string // guests whose packages could not be had
}

// note says why a guest did not run, or not to its end.
func (r *runner) note(g guest, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.As(err, &unavailable{}) {
		r.missing = append(r.missing, fmt.Sprintf("%s: %v", g.name, err))
		fmt.Printf("NOT RUN %s: %v\n", g.name, err)
		return
	}
	r.failed = append(r.failed, fmt.Sprintf("%s: %v", g.name, err))
	fmt.Printf("FAIL %s: %v\n", g.name, err)
}

// prepare makes what a guest is booted from. What the other guests of the architecture need is built on the way.
func (r *runner) prepare(ctx context.Context, g guest, all []guest) (*boot, error) {
	name, err := r.archive.kernel(ctx, g.arch, g.series)
	if err != nil {
		return nil, err
	}
	fmt.Printf("\n-- %s: %s\n", g.name, name)
	parts, err := r.archive.parts(ctx, g.arch, name)
	if err != nil {
		return nil, err
	}
	kernel, err := r.archive.unpacked(ctx, name, g.arch, true, parts...)
	if err != nil {
		return nil, err
	}
	if err := indexed(ctx, kernel); err != nil {
		return nil, err
	}
	root, err := r.archive.unpacked(ctx, rootName(g.arch), g.arch, false, programs...)
	if err != nil {
		return nil, err
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
			return nil, err
		}
		if err := binaries(ctx, binDir, g.arch, tasks); err != nil {
			return nil, err
		}
		r.built[g.arch] = true
	}
	image := filepath.Join(r.work, "initrd-"+g.name)
	if err := initrd(image, root, kernel, binDir, request(g)); err != nil {
		return nil, err
	}
	bootable, err := kernelFile(kernel)
	if err != nil {
		return nil, err
	}
	return &boot{arch: g.arch, kernel: bootable, initrd: image, setting: g.setting, counted: g.counted, limit: g.limit}, nil
}

// boot runs a guest and judges what it says. Its initial file system, of some hundred megabytes, goes with it.
func (r *runner) boot(ctx context.Context, g guest, b *boot, prepared time.Duration) {
	started := time.Now()
	o, err := b.run(ctx, func(line string) {
		if !r.quiet {
			fmt.Printf("   %s: %s\n", g.name, line)
		}
	})
	if o != nil {
		r.judge(g, o, prepared, time.Since(started))
	}
	if err != nil {
		r.note(g, err)
	}
	_ = os.Remove(b.initrd) // its directory goes in the end
}

// judge compares what became of the jobs with what was to become of them.
func (r *runner) judge(g guest, o *outcome, prepared, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
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
	lines := []string{fmt.Sprintf("%-12s %-28s %4.0f s, and %.0f s to prepare", g.name, version, took.Seconds(), prepared.Seconds())}
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
		lines = append(lines, fmt.Sprintf("  %-4s %-24s %6.1f s by its clock", said, t.name, result.Took))
	}
	r.summary[g.name] = lines
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
