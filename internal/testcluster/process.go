package testcluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/stall"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/ns"
)

// binaryEnv names an agent to test instead of the one in this tree.
const binaryEnv = "MARGAY_E2E_BINARY"

// TablesLockEnv names the file that iptables-legacy and agents lock.
const TablesLockEnv = "XTABLES_LOCKFILE"

// stallEnv, if not empty, has every agent stopped for random moments.
const stallEnv = "MARGAY_E2E_STALL"

var built struct {
	once sync.Once
	dir  string
	path string
	err  error
}

// Main runs the tests of a package and removes the agent that was built for them; it is what TestMain calls.
func Main(m *testing.M) {
	remove, err := OwnTablesLock()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	remove()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// OwnTablesLock gives this process, its agents and the commands that its tests run a lock of iptables-legacy of their own, so that they do not
// wait for those of another package: there is one for all network namespaces of a machine. Call remove at the end.
func OwnTablesLock() (remove func(), err error) {
	lock := fmt.Sprintf("/run/%s%d-xtables.lock", ns.Prefix, os.Getpid())
	if err := os.Setenv(TablesLockEnv, lock); err != nil {
		return nil, fmt.Errorf("give tests a lock of iptables of their own: %w", err)
	}
	return func() { _ = os.Remove(lock) }, nil // no file is there if no test used it
}

// Build returns the agent's binary, built on first use.
func Build(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.path = testutil.Getenv(binaryEnv); built.path != "" {
			return
		}
		if built.dir, built.err = os.MkdirTemp("", "margay-e2e-"); built.err != nil {
			return
		}
		built.path = filepath.Join(built.dir, "margay")
		cmd := exec.Command("go", "build", "-o", built.path, "github.com/margay-project/margay/cmd/agent")
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

// Process is `margay run` on one node, as a process of its own in the node's network namespace. What it pins outlives it.
type Process struct {
	T      *testing.T
	Node   *lab.Node
	Binary string // empty: the one in this tree
	Flags  []string
	BPFFS  string
	Socket string
	Log    string          // file; shown when the test fails
	Adjust func(*exec.Cmd) // before it is started; may be nil

	Cmd    *exec.Cmd // nil while none runs
	Exited chan error
}

// NewProcess prepares an agent without starting it.
func NewProcess(t *testing.T, n *lab.Node, manifests string, flags ...string) *Process {
	t.Helper()
	dir := t.TempDir()
	p := &Process{T: t, Node: n, BPFFS: testutil.BPFFS(t), Socket: filepath.Join(dir, "agent.sock"), Log: filepath.Join(dir, "log")}
	p.Flags = append([]string{
		"run", "--datastore", "directory", "--dir", manifests, "--node", n.Name(), "--bpffs", p.BPFFS,
		"--socket", p.Socket, "--log-level", "debug",
	}, flags...)
	t.Cleanup(func() {
		p.Kill()
		if text, err := os.ReadFile(p.Log); err == nil && t.Failed() {
			t.Logf("agent on %s:\n%s", n.Name(), tail(string(text), 40))
		}
	})
	return p
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// CPUTime is what the agent has used of the CPUs so far, in steps of 10 ms. Unlike time, it does not depend on what else the machine does.
func (p *Process) CPUTime() time.Duration {
	p.T.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Cmd.Process.Pid))
	if err != nil {
		p.T.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may have blanks
	var ticks uint64
	for _, field := range strings.Fields(rest)[11:13] { // user and system time
		n, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			p.T.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// Start starts the agent and waits until it is ready.
func (p *Process) Start() {
	p.T.Helper()
	p.Launch()
	testutil.WaitFor(p.T, Soon, "the agent on "+p.Node.Name()+" to be ready", func() bool {
		select {
		case err := <-p.Exited:
			p.Cmd = nil
			text, _ := os.ReadFile(p.Log)
			p.T.Fatalf("the agent on %s ended: %v\n%s", p.Node.Name(), err, tail(string(text), 20))
		default:
		}
		a, err := p.Ask("status")
		return err == nil && a.Status != nil && a.Status.Ready
	})
}

// Launch starts the agent and does not wait.
func (p *Process) Launch() {
	p.T.Helper()
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.T.Fatal(err)
	}
	defer log.Close()
	binary := p.Binary
	if binary == "" {
		binary = Build(p.T)
	}
	cmd := exec.Command(binary, p.Flags...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.Adjust != nil {
		p.Adjust(cmd)
	}
	if err := p.Node.Start(cmd); err != nil {
		p.T.Fatal(err)
	}
	exited, ended := make(chan error, 1), make(chan struct{})
	go func() {
		err := cmd.Wait()
		close(ended)
		exited <- err
	}()
	if testutil.Getenv(stallEnv) != "" {
		go stall.Until(ended, cmd.Process)
	}
	p.Cmd, p.Exited = cmd, exited
}

// Kill ends the agent by SIGKILL, in the middle of whatever it does, and waits until it is gone.
func (p *Process) Kill() {
	if p.Cmd == nil {
		return
	}
	p.Cmd.Process.Kill() // fails only if it has ended already
	<-p.Exited
	p.Cmd = nil
}

// Dump ends an agent that does not answer, and has its log say what each goroutine was doing.
func (p *Process) Dump() {
	p.T.Helper()
	if p.Cmd == nil {
		return
	}
	if err := p.Cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		p.T.Log(err)
		return
	}
	<-p.Exited
	p.Cmd = nil
	text, err := os.ReadFile(p.Log)
	p.T.Logf("agent on %s, its goroutines (%v):\n%s", p.Node.Name(), err, tail(string(text), 600))
}

// Terminate ends it as an orchestrator does, by SIGTERM, and fails the test unless it exits well.
func (p *Process) Terminate() {
	p.T.Helper()
	if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.T.Fatal(err)
	}
	select {
	case err := <-p.Exited:
		p.Cmd = nil
		if err != nil {
			p.T.Errorf("the agent on %s ended: %v", p.Node.Name(), err)
		}
	case <-time.After(Soon):
		p.T.Fatalf("the agent on %s does not end", p.Node.Name())
	}
}

// Ask asks the agent's socket, as the tools do.
func (p *Process) Ask(what string) (*inspect.Answer, error) { return p.ask(what, nil) }

func (p *Process) ask(what string, parameters url.Values) (*inspect.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return inspect.Client{Socket: p.Socket}.Ask(ctx, "/v1/"+what, parameters)
}

// Explain asks the agent for the verdict on what one end sends to another, as text has them.
func (p *Process) Explain(src, dst string) (*explain.Explanation, error) {
	request, err := explain.ParseRequest(src, dst)
	if err != nil {
		return nil, err
	}
	parameters, err := inspect.ExplainParameters(request)
	if err != nil {
		return nil, err
	}
	answer, err := p.ask("explain", parameters)
	if err != nil {
		return nil, err
	}
	return answer.Explanation, nil
}

// awaitOwner waits until the agent knows the pod as the owner of each of its addresses. The agent answers between two changes
// of the dataplane, so what it knows it enforces.
func (p *Process) awaitOwner(of *lab.Pod) {
	p.T.Helper()
	var last string
	failed := p.T.Failed()
	defer func() {
		if !failed && p.T.Failed() {
			p.T.Log(last)
		}
	}()
	for _, addr := range of.Addrs() {
		request, err := json.Marshal(explain.Request{Src: addr.String(), Dst: addr.String(), Protocol: 6, Port: 1, IPv6: addr.Is6()})
		if err != nil {
			p.T.Fatal(err)
		}
		testutil.WaitFor(p.T, Soon, fmt.Sprintf("the agent on %s to know %s as %s's", p.Node.Name(), addr, of.Name()), func() bool {
			a, err := p.ask("explain", url.Values{"request": {string(request)}})
			if err != nil {
				last = err.Error()
				return false
			}
			last = fmt.Sprintf("%+v", a.Explanation.Source)
			owner := a.Explanation.Source
			return owner != nil && owner.Namespace+"/"+owner.Pod == of.Name()
		})
	}
}
