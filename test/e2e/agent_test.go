package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/lab"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/agent/wire"
)

// binaryEnv names an agent to test instead of the one in this tree.
const binaryEnv = "MARGAY_E2E_BINARY"

var built struct {
	once sync.Once
	dir  string
	path string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// build returns the agent's binary, built on first use.
func build(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.path = testutil.Getenv(binaryEnv); built.path != "" {
			return
		}
		if built.dir, built.err = os.MkdirTemp("", "margay-e2e-"); built.err != nil {
			return
		}
		built.path = filepath.Join(built.dir, "margay")
		cmd := exec.Command("go", "build", "-o", built.path, "../../cmd/agent")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // static, as it is shipped
		out, err := cmd.CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("build the agent: %w: %s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}

// process is `margay run` on one node, as a process of its own in the node's network namespace. What it pins outlives it.
type process struct {
	t      *testing.T
	node   *lab.Node
	binary string // empty: the one in this tree
	flags  []string
	bpffs  string
	socket string
	log    string          // file; shown when the test fails
	adjust func(*exec.Cmd) // before it is started; may be nil

	cmd    *exec.Cmd // nil while none runs
	exited chan error
}

// newProcess prepares an agent without starting it.
func newProcess(t *testing.T, n *lab.Node, manifests string, flags ...string) *process {
	t.Helper()
	dir := t.TempDir()
	p := &process{t: t, node: n, bpffs: testutil.BPFFS(t), socket: filepath.Join(dir, "agent.sock"), log: filepath.Join(dir, "log")}
	p.flags = append([]string{
		"run", "--datastore", "directory", "--dir", manifests, "--node", n.Name(), "--bpffs", p.bpffs,
		"--socket", p.socket, "--log-level", "debug",
	}, flags...)
	t.Cleanup(func() {
		p.kill()
		if text, err := os.ReadFile(p.log); err == nil && t.Failed() {
			t.Logf("agent on %s:\n%s", n.Name(), tail(string(text), 40))
		}
	})
	return p
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// start starts the agent and waits until it is ready.
func (p *process) start() {
	p.t.Helper()
	p.launch()
	testutil.WaitFor(p.t, 20*time.Second, "the agent on "+p.node.Name()+" to be ready", func() bool {
		select {
		case err := <-p.exited:
			p.cmd = nil
			text, _ := os.ReadFile(p.log)
			p.t.Fatalf("the agent on %s ended: %v\n%s", p.node.Name(), err, tail(string(text), 20))
		default:
		}
		a, err := p.ask("status")
		return err == nil && a.Status != nil && a.Status.Ready
	})
}

// launch starts the agent and does not wait.
func (p *process) launch() {
	p.t.Helper()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	binary := p.binary
	if binary == "" {
		binary = build(p.t)
	}
	cmd := exec.Command(binary, p.flags...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.adjust != nil {
		p.adjust(cmd)
	}
	if err := p.node.Start(cmd); err != nil {
		p.t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	p.cmd, p.exited = cmd, exited
}

// kill ends the agent by SIGKILL, in the middle of whatever it does, and waits until it is gone.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	p.cmd.Process.Kill() // fails only if it has ended already
	<-p.exited
	p.cmd = nil
}

// terminate ends it as an orchestrator does, by SIGTERM, and fails the test unless it exits well.
func (p *process) terminate() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	select {
	case err := <-p.exited:
		p.cmd = nil
		if err != nil {
			p.t.Errorf("the agent on %s ended: %v", p.node.Name(), err)
		}
	case <-time.After(10 * time.Second):
		p.t.Fatalf("the agent on %s does not end", p.node.Name())
	}
}

// ask asks the agent's socket, as the tools do.
func (p *process) ask(what string) (*wire.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return wire.Client{Socket: p.socket}.Ask(ctx, "/v1/"+what, nil)
}
