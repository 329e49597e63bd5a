package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/flows"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// monitor is a `margay monitor -o json` that runs beside the test.
type monitor struct {
	t    *testing.T
	mu   sync.Mutex // guards text
	text bytes.Buffer
	said bytes.Buffer // to be read when it has ended
}

// Write takes what it prints.
func (m *monitor) Write(b []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text.Write(b)
}

func startMonitor(t *testing.T, a *testcluster.Process, flags ...string) *monitor {
	t.Helper()
	m := &monitor{t: t}
	cmd := exec.Command(testcluster.Build(t), append([]string{"monitor", "-o", "json", "--socket", a.Socket, "--bpffs", a.BPFFS}, flags...)...)
	cmd.Stdout, cmd.Stderr = m, &m.said
	if err := a.Node.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("monitor %v ended with %v; it said %q and printed\n%s", flags, err, m.said.String(), m.text.String())
		}
	})
	return m
}

// lines are all records so far, as they were printed.
func (m *monitor) lines() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := strings.SplitAfter(m.text.String(), "\n")
	return all[:len(all)-1] // the last one may not be complete
}

// find returns the first record that fits, once there is one.
func (m *monitor) find(what string, fits func(*flows.Record) bool) *flows.Record {
	m.t.Helper()
	var found *flows.Record
	testutil.WaitFor(m.t, soon, what+" in a monitor", func() bool {
		for _, line := range m.lines() {
			r := new(flows.Record)
			if err := json.Unmarshal([]byte(line), r); err != nil {
				m.t.Fatalf("%v: %s", err, line)
			}
			if fits(r) {
				found = r
				return true
			}
		}
		return false
	})
	if found == nil {
		m.t.FailNow()
	}
	return found
}

func to(p *lab.Pod, port uint16) func(*flows.Record) bool {
	return func(r *flows.Record) bool {
		return r.Dst == netip.AddrPortFrom(p.Addr4(), port) && r.Direction == flows.Ingress
	}
}

// Two monitors print the same, complete, in order, with the names of pods that came after them and of pods that have
// gone since; a pod that is denied all the time hides nothing of what a filter asks for.
func TestMonitorsSeeEverythingByName(t *testing.T) {
	c := newCluster(t, []string{"a", "b"})
	db := c.Pod(c.Node(0), "db")
	c.Policy("db", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: far}}}]}]}`)
	c.AwaitPolicies(db, 1, 0)
	first, second := startMonitor(t, c.Agent(0)), startMonitor(t, c.Agent(0))
	filtered := startMonitor(t, c.Agent(0), "--peer", "shop/far", "--verdict", "allow")
	web := c.Pod(c.Node(0), "web")
	ready := func(m *monitor) func() bool {
		return func() bool {
			echo.DialTCP(web.Host, netip.AddrPortFrom(db.Addr4(), 1), never)
			return len(m.lines()) > 0
		}
	}
	testutil.WaitFor(t, soon, "the first monitor", ready(first))
	testutil.WaitFor(t, soon, "the second monitor", ready(second))
	const marker = 2 // from here on both see everything
	echo.DialTCP(web.Host, netip.AddrPortFrom(db.Addr4(), marker), never)

	late, far := c.Pod(c.Node(0), "late"), c.Pod(c.Node(1), "far")
	c.Serve(db.Host, 80)
	c.Reach(late.Host, db.Host, 80, false)
	c.Reach(far.Host, db.Host, 80, true)
	c.Serve(late.Host, 80)
	c.Reach(far.Host, late.Host, 80, true)
	for i := range uint16(50) {
		if err := traffic.SendIP(web, testutil.Packet{Src: web.Addr4(), Dst: db.Addr4(), L4: testutil.UDP{SrcPort: 1000 + i, DstPort: 9}}.IP()); err != nil {
			t.Fatal(err)
		}
		if i%10 == 9 { // of more at once, an agent that gets no CPU for a moment may leave some out
			first.find(fmt.Sprintf("datagram %d", i), func(r *flows.Record) bool { return to(db, 9)(r) && r.Src.Port() == 1000+i })
		}
	}
	c.Reach(web.Host, late.Host, 80, true)
	name := late.Name()
	farAtLate := func(r *flows.Record) bool { return r.Src.Addr() == far.Addr4() && to(late, 80)(r) }
	if testcluster.IPTables() { // a copy that the agent reads when the pod has gone gets no record
		first.find("far at late, which is there", farAtLate)
	}
	c.Remove("pod-late")
	if err := c.Node(0).DelPod(late); err != nil {
		t.Fatal(err)
	}
	const end = 3
	echo.DialTCP(web.Host, netip.AddrPortFrom(db.Addr4(), end), never)

	for _, m := range []*monitor{first, second} {
		m.find("the last attempt", to(db, end))
		r := m.find("late at db", func(r *flows.Record) bool { return r.Src.Addr() == late.Addr4() && to(db, 80)(r) })
		if r.Endpoint != db.Name() || r.Peer == nil || r.Peer.Name != name || r.Verdict != flows.Deny ||
			r.Rule != "default/knp/shop/db#end-of-tier" || r.Interface != db.Iface() {
			t.Errorf("late at db: %+v, peer %+v", r, r.Peer)
		}
		r = m.find("far at late", farAtLate)
		if r.Endpoint != name || r.Peer == nil || r.Peer.Name != far.Name() || r.Peer.Kind != flows.PeerPod || r.Verdict != flows.Allow {
			t.Errorf("far at late: %+v, peer %+v", r, r.Peer)
		}
	}
	from, until := fmt.Sprintf(`%s:%d"`, db.Addr4(), marker), fmt.Sprintf(`%s:%d"`, db.Addr4(), end)
	testutil.WaitFor(t, soon, "both monitors to print the same", func() bool {
		a, b := between(first.lines(), from, until), between(second.lines(), from, until)
		return len(a) > 54 && strings.Join(a, "") == strings.Join(b, "")
	})
	if t.Failed() {
		t.Logf("first:\n%ssecond:\n%s", between(first.lines(), from, until), between(second.lines(), from, until))
	}
	filtered.find("far at db", func(r *flows.Record) bool { return to(db, 80)(r) })
	for _, line := range filtered.lines() {
		if !strings.Contains(line, `"name":"shop/far"`) || !strings.Contains(line, `"verdict":"allow"`) {
			t.Errorf("the filter lets through %s", line)
		}
	}
}

// between are the lines from the first with the words from to the first with until.
func between(lines []string, from, until string) (part []string) {
	for _, line := range lines {
		if len(part) > 0 || strings.Contains(line, from) {
			part = append(part, line)
		}
		if len(part) > 0 && strings.Contains(line, until) {
			return part
		}
	}
	return nil
}
