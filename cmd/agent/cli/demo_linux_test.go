package cli

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
)

// demonstration is a `margay demo --keep` that runs.
type demonstration struct {
	t      *testing.T
	binary string
	cmd    *exec.Cmd
	lines  chan string
	said   strings.Builder
	errors bytes.Buffer
}

func buildMargay(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "margay")
	build := exec.Command("go", "build", "-o", binary, "../../margay")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	return binary
}

// startDemo starts a demo that stays up, where an agent of this machine has settings of its own.
func startDemo(t *testing.T, binary string, environment ...string) *demonstration {
	t.Helper()
	d := &demonstration{t: t, binary: binary, cmd: exec.Command(binary, "demo", "--keep"), lines: make(chan string, 1000)}
	d.cmd.Env = append(append(os.Environ(), "MARGAY_INTERFACE_PREFIX=other", "MARGAY_CONFIG_FILE=/nonexistent"), environment...)
	d.cmd.Stderr = &d.errors
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if d.cmd.ProcessState == nil {
			d.cmd.Process.Signal(syscall.SIGTERM)
			d.cmd.Wait()
		}
	})
	go func() {
		defer close(d.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			d.lines <- s.Text()
		}
	}()
	return d
}

// until reads the output until a line has the text.
func (d *demonstration) until(text string) {
	d.t.Helper()
	limit := time.After(2 * time.Minute)
	for {
		select {
		case line, ok := <-d.lines:
			d.said.WriteString(line + "\n")
			if strings.Contains(line, text) {
				return
			}
			if !ok {
				d.t.Fatalf("the demo ended before it said %q:\n%s%s", text, &d.said, &d.errors)
			}
		case <-limit:
			d.t.Fatalf("the demo does not say %q:\n%s", text, &d.said)
		}
	}
}

// traces are what is there of a demonstration: namespaces, pins, directories, agents.
func (d *demonstration) traces() []string {
	d.t.Helper()
	id := strconv.Itoa(d.cmd.Process.Pid) + "x"
	var found []string
	for _, pattern := range []string{"/run/netns/mgy-" + id + "*", "/sys/fs/bpf/margay-demo-" + id + "*"} {
		list, err := filepath.Glob(pattern)
		if err != nil {
			d.t.Fatal(err)
		}
		found = append(found, list...)
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		d.t.Fatal(err)
	}
	for _, path := range lines {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte("demo-"+id)) {
			found = append(found, path)
		}
	}
	return found
}

// agentPid is the process id of the demonstration's agent.
func (d *demonstration) agentPid() int {
	d.t.Helper()
	for _, path := range d.traces() {
		if text, ok := strings.CutPrefix(path, "/proc/"); ok {
			pid, err := strconv.Atoi(strings.TrimSuffix(text, "/cmdline"))
			if err != nil {
				d.t.Fatal(err)
			}
			return pid
		}
	}
	d.t.Fatal("the demo has no agent")
	return 0
}

func TestDemoShowsWhatIsThereAndNoticesThatItsAgentDied(t *testing.T) {
	testutil.Privileged(t)
	d := startDemo(t, buildMargay(t))
	d.until("agent log:")
	if _, err := exec.LookPath("bpftool"); err == nil {
		dumps := regexp.MustCompile(`(?m)^ +(bpftool .+?)(?: {4}\(.*)?$`).FindAllStringSubmatch(d.said.String(), -1)
		if len(dumps) < 3 {
			t.Errorf("%d dumps are suggested in\n%s", len(dumps), &d.said)
		}
		for _, m := range dumps {
			out, err := exec.Command("bash", "-c", m[1]).CombinedOutput()
			first := out[:min(len(out), 2000)]
			if numbers := regexp.MustCompile(`": "?[^0\s\[{"]`); err != nil || !numbers.Match(first) {
				t.Errorf("%s: %v; shows nothing but zeros at its beginning:\n%s", m[1], err, first)
			}
		}
	}
	if err := syscall.Kill(d.agentPid(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		for range d.lines {
		}
		ended <- d.cmd.Wait()
	}()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(d.errors.String(), "the agent ended (signal: killed)") {
			t.Errorf("the demo whose agent was killed ended with %v and said: %s", err, &d.errors)
		}
	case <-time.After(time.Minute):
		t.Fatal("the demo does not notice that its agent is gone")
	}
	if left := d.traces(); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
}

func TestDemoWithIPTablesSuggestsCommandsThatShowIt(t *testing.T) {
	testutil.Privileged(t)
	testutil.RequireCommand(t, "ipset")
	d := startDemo(t, buildMargay(t), "MARGAY_DATAPLANE=iptables")
	d.until("agent log:")
	commands := regexp.MustCompile(`(?m)^ +(nsenter .+?)(?: {4}\(.*)?$`).FindAllStringSubmatch(d.said.String(), -1)
	if len(commands) != 4 || strings.Contains(d.said.String(), "bpftool") {
		t.Fatalf("%q are suggested in\n%s", commands, &d.said)
	}
	for i, shown := range []string{"mgy", "10.65.1.4", "OPENER", "10.65.1.2"} {
		out, err := exec.Command("bash", "-c", commands[i][1]).CombinedOutput()
		if err != nil || !strings.Contains(string(out), shown) {
			t.Errorf("%s: %v; shows no %q:\n%s", commands[i][1], err, shown, out[:min(len(out), 2000)])
		}
	}
}

func TestWhatAKilledDemoLeavesIsRemoved(t *testing.T) {
	testutil.Privileged(t)
	binary := buildMargay(t)
	for _, by := range []string{"demo --cleanup", "the next demo"} {
		killed := startDemo(t, binary)
		killed.until("margay run enforces the manifests")
		if err := killed.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		killed.cmd.Wait()
		if left := killed.traces(); len(left) < 8 {
			t.Errorf("a killed demo left only %v: is the test still looking at the right places?", left)
		}
		if by == "demo --cleanup" {
			out, err := exec.Command(binary, "demo", "--cleanup").CombinedOutput()
			if err != nil || !strings.Contains(string(out), fmt.Sprintf("removed network namespace mgy-%dx", killed.cmd.Process.Pid)) {
				t.Errorf("demo --cleanup: %v: %s", err, out)
			}
		}
		running := startDemo(t, binary)
		if by == "the next demo" {
			running.until("Removed what an earlier demo left")
		}
		running.until("margay run enforces the manifests")
		if left := killed.traces(); len(left) > 0 {
			t.Errorf("after %s there are still %v", by, left)
		}
		if out, err := exec.Command(binary, "demo", "--cleanup").CombinedOutput(); err != nil || string(out) != "nothing to remove\n" {
			t.Errorf("demo --cleanup beside a demo that runs: %v: %s", err, out)
		}
		if err := running.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		running.cmd.Wait()
	}
}
