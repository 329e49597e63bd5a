//go:build linux

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/flows"
)

// lines is what a command has printed so far.
type lines struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// monitor runs `margay monitor` beside the test.
func (n *liveNode) monitor(t *testing.T, flags ...string) (out, errs *lines) {
	t.Helper()
	out, errs = &lines{}, &lines{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	args := append([]string{"monitor", "--bpffs", n.bpffs, "--socket", n.socket, "--instance", "live"}, flags...)
	go func() {
		code := -1
		err := n.machine.Do(func() error {
			code = execute(ctx, args, out, errs)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		ended <- code
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-ended; code != 0 {
			t.Errorf("margay %s: exit status %d, want 0\n%s", strings.Join(args, " "), code, errs)
		}
	})
	return out, errs
}

func await(t *testing.T, l *lines, words ...string) {
	t.Helper()
	for _, w := range words {
		testutil.WaitFor(t, answered, "the words "+w, func() bool { return strings.Contains(l.String(), w) })
		if t.Failed() {
			t.Fatalf("printed so far:\n%s", l)
		}
	}
}

// testMonitor: what is tried shows up, with the rule that decided, in every monitor that wants it.
func (n *liveNode) testMonitor(t *testing.T) {
	out, errs := n.monitor(t)
	again, _ := n.monitor(t)
	denied, _ := n.monitor(t, "--verdict", "deny", "--pod", "shop/d", "--port", "81", "--peer", "web", "-o", "json")
	others, _ := n.monitor(t, "--namespace", "shopping")
	subscribed := func() bool { // each monitor sees a connection that was begun after it
		n.reach(81)
		return strings.Count(denied.String(), "\n") > 0 && strings.Contains(out.String(), "deny") && strings.Contains(again.String(), "deny")
	}
	testutil.WaitFor(t, answered, "all monitors to be there", subscribed)
	n.reach(80)
	for _, l := range []*lines{out, again} {
		await(t, l, "allow ingress of shop/db from shop/web", ":80 tcp  by default/knp/shop/db#ingress[0]",
			"deny  ingress of shop/db from shop/web", ":81 tcp  by default/knp/shop/db#end-of-tier",
			"allow egress  of shop/web to shop/db", "profile/kns.shop#egress[0]")
	}
	for line := range strings.Lines(denied.String()) {
		r := decode[flows.Record](t, line)
		if r.Endpoint != "shop/db" || r.Interface != n.db.Iface() || r.Verdict != "deny" || r.Peer == nil || r.Peer.Name != "shop/web" ||
			r.Dst.Port() != 81 || r.Policy != "default/knp/shop/db" || time.Since(r.Time) > time.Minute || r.Time.Location() != time.UTC {
			t.Errorf("%s", line)
		}
	}
	if out.String() == "" || others.String() != "" || errs.String() != "" {
		t.Errorf("a monitor of nothing printed %q; a monitor said %q", others, errs)
	}
	n.want(2, []string{`"no" for "--verdict"`, "want allow or deny"}, "monitor", "--verdict", "no")
	n.want(2, []string{`--port "70000": want a number`}, "monitor", "--port", "70000")
	n.want(2, []string{`--since "yesterday": want a duration`}, "monitor", "--since", "yesterday")
}

// A monitor that is there while agents come and go shows everything once.
func TestMonitorOutlivesAgents(t *testing.T) {
	n := newNode(t)
	n.want(2, []string{"nothing is enforced there"}, "monitor")
	n.start()
	n.reach(81)
	out, errs := n.monitor(t, "-o", "json")
	n.attempt(t, out, 81)

	n.stop(syscall.SIGTERM)
	await(t, errs, "the agent has stopped; policy stays enforced")
	before := strings.Count(out.String(), "\n")
	n.reach(80) // while no agent runs
	n.start()
	await(t, errs, "an agent runs again")
	testutil.WaitFor(t, answered, "what happened without an agent", func() bool { return strings.Count(out.String(), "\n") >= before+2 })
	n.attempt(t, out, 81)

	// Without an agent it reads the kernel's events itself, and leaves them to the next agent.
	n.stop(syscall.SIGKILL)
	direct, said := n.monitor(t)
	await(t, said, "no agent runs: reading events from the kernel itself; another reader")
	testutil.WaitFor(t, answered, "an event read from the kernel", func() bool {
		n.reach(81)
		return strings.Contains(direct.String(), "deny  ingress of shop/db from shop/web") &&
			strings.Contains(direct.String(), ":81 tcp  by default/knp/shop/db#end-of-tier")
	})
	n.start()
	await(t, said, "an agent runs now and sends the events")
	seen := strings.Count(direct.String(), "deny")
	testutil.WaitFor(t, answered, "an event that the agent sends", func() bool {
		n.reach(81)
		return strings.Count(direct.String(), "deny") > seen
	})
	var last time.Time
	for line := range strings.Lines(out.String()) {
		var r flows.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if !r.Time.After(last) {
			t.Errorf("not in order: %s", line)
		}
		last = r.Time
	}
	if !strings.Contains(errs.String(), "the agent has stopped") || strings.Contains(errs.String(), "itself") {
		t.Errorf("said %q", errs)
	}
	n.stop(syscall.SIGTERM)
	n.want(0, nil, "cleanup")
}

// attempt tries db's port until the monitor shows it.
func (n *liveNode) attempt(t *testing.T, out *lines, port uint16) {
	t.Helper()
	seen := strings.Count(out.String(), `"shop/db"`)
	testutil.WaitFor(t, answered, "an attempt to be shown", func() bool {
		n.reach(port)
		return strings.Count(out.String(), `"shop/db"`) > seen
	})
}
