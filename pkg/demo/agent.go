package demo

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/lab"
)

// process is a running `margay run` in the node's namespace.
type process struct {
	binary, instance, socket, log string
	node                          *lab.Node
	cmd                           *exec.Cmd
	done                          chan error
}

// start runs the agent: this very binary, as a process of its own, as on a real node.
func start(node *lab.Node, id, dir, work string) (*process, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{binary: binary, instance: instancePrefix + id, node: node,
		socket: filepath.Join(work, "agent.sock"), log: filepath.Join(work, "agent.log"), done: make(chan error, 1)}
	settings := filepath.Join(work, "margay.yaml")
	if err := os.WriteFile(settings, nil, 0o600); err != nil {
		return nil, err
	}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p.cmd = exec.Command(binary, "run", "--config-file", settings, "--datastore", "directory", "--dir", dir, "--node", "node",
		"--instance", p.instance, "--socket", p.socket)
	p.cmd.Env = environment(os.Environ())
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := node.Start(p.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.cmd, err)
	}
	go func() { p.done <- p.cmd.Wait() }()
	return p, nil
}

// environment is that of the agent: this process's without the settings of an agent of this machine, which the demo is not about. Which
// dataplane it shows is left to the caller.
func environment(all []string) []string {
	kept := []string{"MARGAY_DATAPLANE", "MARGAY_IPTABLES_BACKEND"}
	return slices.DeleteFunc(slices.Clone(all), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasPrefix(name, "MARGAY_") && !slices.Contains(kept, name)
	})
}

// stop ends the agent as a DaemonSet update does; policy stays enforced.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case err := <-p.done:
		return err
	case <-time.After(10 * time.Second):
		return errors.Join(errors.New("the agent did not stop within 10 s"), p.cmd.Process.Kill())
	}
}

// ask gets one answer from the agent's socket.
func (p *process) ask(ctx context.Context, path string, parameters url.Values) (*inspect.Answer, error) {
	return inspect.Client{Socket: p.socket}.Ask(ctx, path, parameters)
}

// await polls until the agent says that every pod is programmed.
func (p *process) await(ctx context.Context, endpoints int) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if p.programmed(ctx) == endpoints {
			return nil
		}
		select {
		case err := <-p.done:
			p.done <- err
			return fmt.Errorf("the agent ended: %w; its log:\n%s", err, p.tail())
		case <-ctx.Done():
			return fmt.Errorf("the agent is not ready; its log:\n%s", p.tail())
		case <-tick.C:
		}
	}
}

func (p *process) programmed(ctx context.Context) int {
	status, err := p.ask(ctx, "/v1/status", nil)
	if err != nil || status.Status == nil || !status.Status.Ready {
		return -1
	}
	answer, err := p.ask(ctx, "/v1/endpoints", nil)
	if err != nil {
		return -1
	}
	n := 0
	for _, e := range answer.Endpoints {
		if e.Ifindex != 0 && e.Error == "" {
			n++
		}
	}
	return n
}

func (p *process) tail() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-4000):])
}
