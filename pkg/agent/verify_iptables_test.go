package agent_test

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/corpus"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/dataplane"
	iptablesplane "github.com/margay-project/margay/pkg/dataplane/iptables"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
)

// chained is a loop with an iptables dataplane, without interfaces, and its Verifier. Nothing repairs what others change.
type chained struct {
	*verified
	node  *iptablesNode
	tools *iptables.Tools
	sets  ipsets.Kernel
}

// unswept is a dataplane that does not look for changes of others.
type unswept struct{ *iptablesplane.IPTables }

func (unswept) Sweep() (time.Duration, error) { return time.Hour, nil }

// iptablesNode is a machine without interfaces of its own.
type iptablesNode struct {
	links map[string]uint32
	wake  chan struct{}
}

func (n *iptablesNode) Interfaces() map[string]uint32 { return maps.Clone(n.links) }
func (n *iptablesNode) Addrs() []netip.Addr           { return []netip.Addr{netip.MustParseAddr("192.168.0.1")} }
func (n *iptablesNode) Wake() <-chan struct{}         { return n.wake }
func (n *iptablesNode) Nudge(after time.Duration) {
	time.AfterFunc(after, func() {
		select {
		case n.wake <- struct{}{}:
		default:
		}
	})
}
func (n *iptablesNode) Close() {}

// noFlows is a table of connections without any.
type noFlows struct{}

func (noFlows) Remark(conntrack.Family, conntrack.Filter, uint32, func(conntrack.Entry) (uint32, bool)) (int, error) {
	return 0, nil
}
func (noFlows) DeleteAddresses(conntrack.Family, func(netip.Addr) bool) (int, error) { return 0, nil }
func (noFlows) DeleteMarked(conntrack.Family, conntrack.Filter) (int, error)         { return 0, nil }

// locked is a kernel of IP sets in memory for several goroutines.
type locked struct {
	mu sync.Mutex
	of *ipsets.Fake
}

func (l *locked) do(f func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return f()
}

func (l *locked) Create(s ipsets.Spec) error { return l.do(func() error { return l.of.Create(s) }) }
func (l *locked) Destroy(name string) error  { return l.do(func() error { return l.of.Destroy(name) }) }
func (l *locked) Swap(name, with string) error {
	return l.do(func() error { return l.of.Swap(name, with) })
}
func (l *locked) Names(p string) (n []string, err error) {
	err = l.do(func() error { n, err = l.of.Names(p); return err })
	return n, err
}
func (l *locked) Header(name string) (h ipsets.Header, err error) {
	err = l.do(func() error { h, err = l.of.Header(name); return err })
	return h, err
}
func (l *locked) List(s ipsets.Spec, each func(ipsets.Entry)) error {
	return l.do(func() error { return l.of.List(s, each) })
}
func (l *locked) Write(s ipsets.Spec, c []ipsets.Change) (n int, err error) {
	err = l.do(func() error { n, err = l.of.Write(s, c); return err })
	return n, err
}

// counted counts the lists of sets that are asked for.
type counted struct {
	ipsets.Kernel
	lists atomic.Int64
}

func (c *counted) List(s ipsets.Spec, each func(ipsets.Entry)) error {
	c.lists.Add(1)
	return c.Kernel.List(s, each)
}

// TestVerifyListsSetsBesideTheLoop: a write through the same socket waits for the end of a large set's list.
func TestVerifyListsSetsBesideTheLoop(t *testing.T) {
	kernel := &locked{of: ipsets.NewFake()}
	sets, lists := &counted{Kernel: kernel}, &counted{Kernel: kernel}
	v := runChained(t, iptables.NewFake().Tools(iptables.Legacy), sets, lists)
	v.replace(t, large(2, 10, 1))
	before := sets.lists.Load()
	if report := v.verify(t); !report.Proven {
		t.Fatalf("%s", textOf(report))
	}
	if held := sets.lists.Load() - before; held != 0 || lists.lists.Load() == 0 {
		t.Errorf("%d sets were listed through the loop's connection, %d through the other", held, lists.lists.Load())
	}
}

// runChained runs on a kernel in memory, or on the machine's.
func runChained(t testing.TB, tools *iptables.Tools, sets, lists ipsets.Kernel) *chained {
	t.Helper()
	c := &chained{verified: &verified{links: map[string]uint32{}}, tools: tools, sets: sets}
	c.node = &iptablesNode{links: c.links, wake: make(chan struct{}, 1)}
	c.nudge = c.node.Nudge
	kernel := iptablesplane.Kernel{Tools: tools, Sets: sets, Lists: lists, Flows: noFlows{}, Node: c.node}
	d, err := iptablesplane.Open(context.Background(), dataplane.Defaults(), kernel, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c.run(t, unswept{d}, d.Verifier())
	return c
}

func runFakeChained(t testing.TB, backend iptables.Backend) (*chained, *iptables.Fake) {
	t.Helper()
	fake := iptables.NewFake()
	return runChained(t, fake.Tools(backend), &locked{of: ipsets.NewFake()}, nil), fake
}

// runRealChained runs on the kernel that this process's network namespace has.
func runRealChained(t testing.TB, backend iptables.Backend) *chained {
	t.Helper()
	testutil.OwnTablesLock(t)
	tools, err := iptables.Find(t.Context(), backend)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*ipsets.Conn
	for i := range conns {
		if conns[i], err = ipsets.Open(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conns[i].Close() })
	}
	return runChained(t, tools, conns[0], conns[1])
}

// inNamespace has the test run in a process of its own whose threads are all in a new network namespace, and reports whether this is that.
func inNamespace(t *testing.T) bool {
	t.Helper()
	const inside = "MARGAY_TEST_IN_NAMESPACE"
	if os.Getenv(inside) == t.Name() {
		return true
	}
	testutil.Privileged(t)
	cmd := exec.Command(os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v", "-test.timeout=9m")
	cmd.Env = append(os.Environ(), inside+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	switch {
	case err == nil && strings.Contains(string(out), "--- SKIP: "+t.Name()+" "):
		t.Skip("it was skipped there")
	case err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()+" "): // a name that no test has is no error
		t.Errorf("it has not passed there: %v", err)
	}
	return false
}

var backends = []iptables.Backend{iptables.Legacy, iptables.NFT}

// TestVerifyProvesRandomChains: whatever is enforced by chains is proven, and nothing is reported that is not there.
// -rapid.checks makes it longer.
func TestVerifyProvesRandomChains(t *testing.T) {
	for _, backend := range backends {
		t.Run(string(backend), func(t *testing.T) {
			v, _ := runFakeChained(t, backend)
			questions, endpoints := 0, 0
			rapid.Check(t, func(rt *rapid.T) {
				v.replace(t, local(corpus.DrawModel(rt)))
				report := v.verify(t)
				for _, d := range report.Differences {
					rt.Errorf("%s", d.Text)
				}
				for _, n := range report.NotProven {
					rt.Logf("not proven: %+v", n)
				}
				questions, endpoints = questions+report.Questions, endpoints+report.Endpoints
			})
			t.Logf("%d endpoints proven by %d packets", endpoints, questions)
			if endpoints == 0 {
				t.Error("nothing was proven")
			}
		})
	}
}
