// Package examples holds no code, only the tests that the examples, and those of docs/policies.md, do what their texts say.
package examples

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
)

// binary is margay, built of this tree.
var binary string

func TestMain(m *testing.M) {
	code, err := built(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(code)
}

// built runs the tests with the binary there.
func built(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "margay-examples")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binary = filepath.Join(dir, "margay")
	build := exec.Command("go", "build", "-o", binary, "./cmd/margay")
	build.Dir, build.Env = "..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build margay: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// margay runs a command that needs neither an agent nor root, and returns its exit status.
func margay(t *testing.T, args ...string) (status int, output string) {
	t.Helper()
	out, err := exec.Command(binary, args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		status = exit.ExitCode()
	}
	return status, string(out)
}

var verdictRow = regexp.MustCompile(`(?m)^\| ([a-z]+/[a-z]+|[\d.]+) \| ([a-z]+/[a-z]+:\S+|[\d.:/a-z]+) \| (allowed|denied) \|$`)

// judged compares each row of a text's tables, from, to and verdict, with what explain says of the directory.
func judged(t *testing.T, dir, text string) (rows int) {
	t.Helper()
	for _, row := range verdictRow.FindAllStringSubmatch(text, -1) {
		rows++
		want := map[string]int{"allowed": 0, "denied": 1}[row[3]]
		if got, out := margay(t, "explain", "--dir", dir, row[1], row[2]); got != want {
			t.Errorf("%s to %s is %s, says the text; exit status %d:\n%s", row[1], row[2], row[3], got, out)
		}
	}
	return rows
}

func document(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheShopIsCleanAndMeansWhatItsTextSays(t *testing.T) {
	if status, out := margay(t, "check", "--dir", "shop"); status != 0 {
		t.Errorf("check: exit status %d:\n%s", status, out)
	}
	if rows := judged(t, "shop", document(t, "README.md")); rows != 8 {
		t.Errorf("%d rows were judged, want 8", rows)
	}
}

// prologue makes a place of the test's own: network, mounts, BPF file system, /run. expect runs a command of the text.
const prologue = `
mount -t tmpfs tmpfs /run && mount -t bpf bpf /sys/fs/bpf && ip link set lo up || exit 1
expect() {
	local want=$1 got=0
	bash -c "$2" >/run/out 2>&1 || got=$?
	[ "$got" = "$want" ] || { echo "WRONG: exit status $got, want $want: $2"; cat /run/out; }
	rm -f /run/out
}
ready() {
	exec 3<>/dev/tcp/127.0.0.1/9096 && printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3 && head -1 <&3 | grep -q 200
}
agent() {
	bash -c "exec $1" >/run/agent.log 2>&1 &
	agent=$!
	for _ in {1..600}; do (ready) 2>/dev/null && return; sleep 0.1; done
	echo "WRONG: the agent is not ready"; cat /run/agent.log; exit 1
}
`

// TestTheHostOfTheTextCanBeMade plays the commands of README.md that take root, in a network namespace and mounts of their
// own.
func TestTheHostOfTheTextCanBeMade(t *testing.T) {
	testutil.Privileged(t)
	testutil.RequireCommand(t, "unshare")
	testutil.RequireCommand(t, "ip")
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	script.WriteString(prologue + "cd " + root + "\n")
	played := 0
	for line := range strings.Lines(document(t, "README.md")) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "sudo ")
		if !ok {
			continue
		}
		played++
		command, comment, _ := strings.Cut(command, "  #")
		command = strings.ReplaceAll(strings.TrimSpace(command), "bin/margay", binary)
		switch {
		case strings.Contains(command, " run "):
			fmt.Fprintf(&script, "agent %q\n", command)
			continue
		case strings.HasSuffix(command, " cleanup"):
			script.WriteString("kill -INT $agent; wait $agent\n")
		}
		fmt.Fprintf(&script, "expect %d %q\n", expected(comment), command)
	}
	out, err := exec.Command("unshare", "--net", "--mount", "--propagation", "private", "bash", "-c", script.String()).CombinedOutput()
	if err != nil || strings.Contains(string(out), "WRONG") || played != 11 {
		t.Errorf("%d commands, want 11: %v\n%s", played, err, out)
	}
}

// expected is the exit status that a comment behind a command means.
func expected(comment string) int {
	switch {
	case strings.Contains(comment, "times out"):
		return 124
	case strings.Contains(comment, "refused"), strings.Contains(comment, "denied"):
		return 1
	}
	return 0
}

// TestEachPolicyOfTheGuideMeansWhatItSays: each policy of docs/policies.md alone, with the pods of the shop.
func TestEachPolicyOfTheGuideMeansWhatItSays(t *testing.T) {
	cluster := document(t, "shop/cluster.yaml")
	sections := strings.Split(document(t, "../docs/policies.md"), "\n## ")
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```")
	found := 0
	for _, section := range sections {
		policy := block.FindStringSubmatch(section)
		if policy == nil {
			continue
		}
		found++
		title, _, _ := strings.Cut(section, "\n")
		t.Run(title, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{"cluster.yaml": cluster, "policy.yaml": policy[1]} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if status, out := margay(t, "check", "--dir", dir); status != 0 {
				t.Errorf("check: exit status %d:\n%s", status, out)
			}
			if rows := judged(t, dir, section); rows < 3 || rows != strings.Count(section, "allowed |")+strings.Count(section, "denied |") {
				t.Errorf("%d rows were judged", rows)
			}
		})
	}
	if found != 8 {
		t.Errorf("%d policies, want 8", found)
	}
}

// TestTheMatrixOfTheReadmeIsTheDemos: the matrix at the head of README.md is what `margay demo` prints.
func TestTheMatrixOfTheReadmeIsTheDemos(t *testing.T) {
	testutil.Privileged(t)
	for _, command := range []string{"unshare", "ip", "iptables"} {
		testutil.RequireCommand(t, command)
	}
	matrix := regexp.MustCompile(`(?s)from \\ to .*not as expected\.`).FindString(document(t, "../README.md"))
	script := prologue + "exec " + binary + " demo"
	out, err := exec.Command("unshare", "--net", "--mount", "--propagation", "private", "bash", "-c", script).CombinedOutput()
	printed := regexp.MustCompile(`(?m) +$`).ReplaceAllString(string(out), "")
	if err != nil || matrix == "" || !strings.Contains(printed, matrix) {
		t.Errorf("margay demo: %v\n%s\nREADME.md has\n%s", err, out, matrix)
	}
}
