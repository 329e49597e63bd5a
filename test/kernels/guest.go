package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/margay-project/margay/test/kernels/job"
)

// machine is how the emulator is started for an architecture, Go's name of it.
type machine struct {
	emulator string
	console  string
	args     []string
	append   string // to the kernel's command line
}

var machines = map[string]machine{
	// Without no_timer_check a kernel may find the timer of a machine that is busy elsewhere broken. Mitigations of
	// defects that the emulator does not have cost time.
	"amd64": {"qemu-system-x86_64", "ttyS0", []string{"-machine", "q35", "-cpu", "max,la57=off"}, "no_timer_check mitigations=off"},
	"arm64": {"qemu-system-aarch64", "ttyAMA0", []string{"-machine", "virt", "-cpu", "cortex-a72"}, ""},
}

// boot is one run of a guest.
type boot struct {
	arch    string
	kernel  string // file
	initrd  string
	setting string // on the kernel's command line
	// counted makes the guest's clock follow its instructions: slower, and what has deadlines meets them.
	counted bool
	limit   time.Duration // by the clock of this machine
}

// kernelLines is how many lines of the kernel are kept for when it dies.
const kernelLines = 40

// outcome is what a guest said.
type outcome struct {
	output  map[string]string // by job
	results []job.Result
	report  *job.Report // nil: it did not come to its end
	kernel  []string    // the last lines of the kernel
}

// command is the emulator's command line: no network, no disk, one console, and a restart of the guest ends it.
func (b *boot) command() (name string, args []string) {
	m := machines[b.arch]
	accel := "tcg"
	if b.counted {
		args = append(args, "-icount", "shift=0,sleep=on")
	}
	args = append(args, m.args...)
	return m.emulator, append(args, "-accel", accel, "-smp", "1", "-m", "2G", "-nodefaults", "-no-user-config",
		"-display", "none", "-no-reboot", "-kernel", b.kernel, "-initrd", b.initrd,
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-append", strings.TrimSpace("console="+m.console+" loglevel=1 panic=-1 rdinit=/init "+m.append+" "+b.setting))
}

// run boots the guest and waits for its end. What jobs write goes to show as it comes, line by line.
func (b *boot) run(ctx context.Context, show func(line string)) (*outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, b.limit)
	defer cancel()
	name, args := b.command()
	cmd := exec.CommandContext(ctx, "nice", append([]string{"-n", "10", name}, args...)...)
	cmd.WaitDelay = 5 * time.Second
	errText := &strings.Builder{}
	cmd.Stderr = errText
	console, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("boot: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("boot: %w", err)
	}
	o := follow(console, show)
	err = cmd.Wait()
	if ctx.Err() != nil {
		err = fmt.Errorf("the guest did not end within %v", b.limit)
	}
	if err == nil && o.report == nil {
		err = errors.New("the guest ended without a report")
	}
	if err != nil {
		err = fmt.Errorf("%w %s; the last lines of its kernel:\n%s", err, errText, strings.Join(o.kernel, "\n"))
	}
	return o, err
}

// escapes are what firmware writes to a console to clear it.
var escapes = regexp.MustCompile("\x1b(\\[[0-9;?=]*[A-Za-z]|c)")

// follow reads a console to its end.
func follow(console io.Reader, show func(line string)) *outcome {
	o := &outcome{output: map[string]string{}}
	var pending strings.Builder
	lines := bufio.NewReader(console)
	for {
		text, err := lines.ReadString('\n')
		line := job.Parse(escapes.ReplaceAllString(text, ""))
		switch {
		case line.Output != nil:
			pending.WriteString(*line.Output + "\n")
			show(*line.Output)
		case line.Result != nil:
			o.results = append(o.results, *line.Result)
			o.output[line.Result.Job] = pending.String()
			pending.Reset()
		case line.Report != nil:
			o.report = line.Report
		case line.Kernel != "":
			o.kernel = append(o.kernel, line.Kernel)
			o.kernel = o.kernel[max(0, len(o.kernel)-kernelLines):]
		}
		if err != nil {
			return o
		}
	}
}

// needed are the commands that must be there; see the target `kernels` of the Makefile.
func needed(archs []string) error {
	want := []string{"apt-get", "dpkg-deb", "depmod", "xz", "nice"}
	for _, arch := range archs {
		want = append(want, machines[arch].emulator)
	}
	for _, command := range want {
		if _, err := exec.LookPath(command); err != nil {
			return fmt.Errorf("%w; `make kernels` installs it", err)
		}
	}
	if _, err := os.Stat(debianKeys); err != nil {
		return fmt.Errorf("keys of Debian's archive: %w; kernels are booted from Debian's packages", err)
	}
	return nil
}
