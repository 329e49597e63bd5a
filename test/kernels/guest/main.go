//go:build linux

// Command guest is the first process of a guest of test/kernels: it mounts what tests need, loads modules, runs the jobs
// it was handed, says on the console what became of them, and turns the machine off. See package job.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/test/kernels/job"
)

const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// mounts are the file systems that every guest has, in order.
var mounts = []struct{ kind, target, options string }{
	{"proc", "/proc", ""},
	{"sysfs", "/sys", ""},
	{"devtmpfs", "/dev", ""},
	{"tmpfs", "/tmp", ""},
	{"tmpfs", "/run", ""},
	{"bpf", "/sys/fs/bpf", ""},
	{"cgroup2", "/sys/fs/cgroup", ""},
	{"tracefs", "/sys/kernel/tracing", ""},
}

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "guest: only for the first process of a guest of test/kernels")
		os.Exit(2)
	}
	if err := serve(); err != nil {
		fmt.Println("guest:", err)
	}
	unix.Sync()
	// The host's emulator is to end at a restart: that works on every machine, turning it off does not.
	fmt.Println("guest: restart:", unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART))
}

func serve() error {
	if err := prepare(); err != nil {
		return err
	}
	text, err := os.ReadFile(job.RequestPath)
	if err != nil {
		return fmt.Errorf("read what to do: %w", err)
	}
	var request job.Request
	if err := json.Unmarshal(text, &request); err != nil {
		return fmt.Errorf("parse what to do: %w", err)
	}
	console := &console{}
	for _, name := range request.Modules {
		if out, err := exec.Command("modprobe", name).CombinedOutput(); err != nil {
			console.output(fmt.Sprintf("guest: module %s: %v: %s", name, err, strings.TrimSpace(string(out))))
		}
	}
	for _, j := range request.Jobs {
		console.line(job.ResultLine(run(j, console)))
	}
	console.line(job.ReportLine(report()))
	return nil
}

// prepare makes the file systems, the environment and the loopback interface.
func prepare() error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
		// Without one of them the tests that need it fail; devtmpfs may be there already.
		if err := unix.Mount(m.kind, m.target, m.kind, 0, m.options); err != nil && !errors.Is(err, unix.EBUSY) {
			fmt.Printf("guest: mount %s on %s: %v\n", m.kind, m.target, err)
		}
	}
	for link, target := range map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "fd/0", "/dev/stdout": "fd/1", "/dev/stderr": "fd/2",
	} {
		if err := os.Symlink(target, link); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	for name, value := range map[string]string{"PATH": path, "HOME": "/root", "TMPDIR": "/tmp"} {
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		fmt.Printf("guest: loopback: %v: %s\n", err, out)
	}
	return nil
}

// console writes lines, each with one call.
type console struct{ mu sync.Mutex }

func (c *console) line(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = os.Stdout.WriteString(line + "\n") // there is no other place to say that it failed
}

func (c *console) output(line string) { c.line(job.OutputLine(line)) }

// run runs one job to its end.
func run(j job.Job, console *console) job.Result {
	result := job.Result{Job: j.Name, Status: -1}
	started := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), j.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, j.Command[0], j.Command[1:]...)
	cmd.Dir, cmd.Env = j.Dir, append(os.Environ(), j.Env...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	var copied sync.WaitGroup
	copied.Go(func() {
		lines := bufio.NewScanner(read)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			console.output(lines.Text())
		}
		_, _ = io.Copy(io.Discard, read) // after a line that is too long
	})
	err := cmd.Run()
	_ = write.Close()
	copied.Wait()
	if cmd.ProcessState != nil {
		result.Status = cmd.ProcessState.ExitCode()
	}
	if ctx.Err() != nil {
		result.Err = fmt.Sprintf("ended after the limit of %v", j.Limit)
	} else if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		result.Err = err.Error()
	}
	result.Took = time.Since(started).Seconds()
	return result
}

// faulty are lines of the kernel's log that mean a defect of the kernel or of what it was told to do.
var faulty = regexp.MustCompile(`BUG:|Oops|general protection|WARNING: .*(bpf|net|nf_)|unregister_netdevice: waiting|refcount_t:`)

func report() job.Report {
	r := job.Report{Kernel: "unknown"}
	var uts unix.Utsname
	if unix.Uname(&uts) == nil {
		r.Kernel = unix.ByteSliceToString(uts.Release[:])
	}
	if text, err := os.ReadFile("/proc/uptime"); err == nil {
		_, _ = fmt.Sscan(string(text), &r.Uptime)
	}
	log := make([]byte, 1<<20)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, log)
	if err != nil {
		return r
	}
	for line := range strings.Lines(string(log[:n])) {
		if faulty.MatchString(line) {
			r.Faults = append(r.Faults, strings.TrimSpace(line))
		}
	}
	return r
}
