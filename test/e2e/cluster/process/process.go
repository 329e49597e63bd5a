// Package process runs commands in network namespaces of the lab for as long as the test does and no longer: they die
// with the process that started them, however that ends, and their files lie in directories that the next run removes.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/margay-project/margay/pkg/lab"
)

// Process is a command that runs in a host of the lab. Its methods are safe for concurrent use.
type Process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // why; read after done
}

// forks are run on one thread that lasts as long as this process. The kernel's death signal to a child comes when the
// thread that started it ends, and other threads of a Go program come and go.
var forks = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for fork := range work {
			fork()
		}
	}()
	return work
})

// Start starts the command in the host's network namespace. What it prints is appended to the file log. The caller ends
// it with Kill or Terminate.
func Start(h *lab.Host, log string, cmd *exec.Cmd) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log of %s: %w", cmd.Path, err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	forks() <- func() { started <- h.Start(cmd) }
	if err := <-started; err != nil {
		return nil, err
	}
	p := &Process{name: filepath.Base(cmd.Path) + " on " + h.Name(), log: log, cmd: cmd, done: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Name is the command and its host.
func (p *Process) Name() string { return p.name }

// PID is its process id, which stays its own until Done is closed.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how the process ended, with the end of its log; nil while it runs and after an exit with status 0.
func (p *Process) Err() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	if p.err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w\n%s", p.name, p.err, p.Tail(20))
}

// Signal sends a signal; to a process that has ended it does nothing.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to %s: %w", s, p.name, err)
	}
	return nil
}

// Kill ends the process by SIGKILL and waits until it is gone; a nil process is gone already.
func (p *Process) Kill() {
	if p == nil {
		return
	}
	p.cmd.Process.Kill() // fails only if it has ended
	<-p.done
}

// Terminate ends the process by SIGTERM, as an orchestrator does, and returns how it ended. After the limit it is killed,
// which is an error.
func (p *Process) Terminate(limit time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	over := time.NewTimer(limit)
	defer over.Stop()
	select {
	case <-p.done:
		return p.Err()
	case <-over.C:
		p.Kill()
		return fmt.Errorf("%s did not end within %v of SIGTERM\n%s", p.name, limit, p.Tail(20))
	}
}

// Tail is the end of what it, and earlier ones with the same log, printed.
func (p *Process) Tail(lines int) string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimRight(text, "\n"), []byte("\n"))
	return strings.TrimSpace(string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n"))))
}
