package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	mostErrors = 16 << 10  // bytes of a command's error output that are kept
	mostSaved  = 512 << 20 // bytes of a saved table, far above any real one

	// outputPatience is how long the output of a command that has ended may take to be read. On a machine without free CPU time that is
	// seconds, and a transaction that the kernel has accepted must not count as failed. Only a process that the command has left behind, as
	// a modprobe that hangs, makes it wait so long.
	outputPatience = 10 * time.Second
)

// command is one program with the arguments that select its function.
type command struct {
	path string
	args []string
}

func (c command) String() string {
	return strings.Join(append([]string{filepath.Base(c.path)}, c.args...), " ")
}

// exited is the error of a command that ran and failed.
type exited struct {
	command string
	status  int
	message string
}

func (e *exited) Error() string {
	return fmt.Sprintf("%s: exit status %d: %s", e.command, e.status, e.message)
}

// run runs the command with a clean environment: only the variable for the lock file is passed on. The command is killed when ctx
// ends, and when this process dies: a command that still waits for the lock could write an old transaction over that of the next
// agent. The kernel sends that signal when the thread that started the command ends, so the goroutine keeps its thread.
func (c command) run(ctx context.Context, input string, more ...string) (string, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return c.runWith(ctx, input, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}, more...)
}

func (c command) runWith(ctx context.Context, input string, attr *syscall.SysProcAttr, more ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.path, append(append([]string{}, c.args...), more...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", lockEnv + "=" + lockFile()}
	cmd.Dir = "/"
	cmd.SysProcAttr = attr
	cmd.WaitDelay = outputPatience
	cmd.Stdin = strings.NewReader(input)
	stdout, stderr := &bounded{limit: mostSaved}, &bounded{limit: mostErrors, cut: true}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err := cmd.Run()
	var status *exec.ExitError
	switch {
	case err == nil:
		return stdout.String(), nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s was stopped: %w", c, context.Cause(ctx))
	case errors.As(err, &status):
		message := strings.Join(strings.Fields(stderr.String()), " ")
		return stdout.String(), &exited{c.String(), status.ExitCode(), message}
	}
	return "", fmt.Errorf("%s: %w", c, err)
}

// bounded keeps the first bytes of an output. More is an error, or with cut is dropped.
type bounded struct {
	bytes.Buffer
	limit int
	cut   bool
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	room := b.limit - b.Len()
	if len(p) <= room {
		return b.Buffer.Write(p)
	}
	if !b.cut {
		return 0, fmt.Errorf("more than %d bytes of output", b.limit)
	}
	b.Buffer.Write(p[:max(room, 0)])
	return len(p), nil
}
