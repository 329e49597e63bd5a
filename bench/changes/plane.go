//go:build linux

package changes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bench/linear"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/dataplane"
	bpfplane "github.com/margay-project/margay/pkg/dataplane/bpf"
	chainplane "github.com/margay-project/margay/pkg/dataplane/iptables"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/model"
)

// plane enforces in one way on a node of its own.
type plane interface {
	name() string
	required() bool // P20 is about it
	fill(context.Context, load) error
	knows(change) bool
	// do makes a change, and returns when it is enforced.
	do(ctx context.Context, c change, turn int) error
	// check looks into the kernel whether the change of that turn is there.
	check(ctx context.Context, c change, turn int) error
	close() error
}

type opener func(context.Context, Options, *lab.Node) (plane, error)

var openers = []opener{
	openBPF,
	func(ctx context.Context, _ Options, n *lab.Node) (plane, error) {
		return openChains(ctx, n, iptables.Legacy)
	},
	func(ctx context.Context, _ Options, n *lab.Node) (plane, error) {
		return openChains(ctx, n, iptables.NFT)
	},
	func(_ context.Context, _ Options, n *lab.Node) (plane, error) {
		return &linearPlane{node: n, backend: "legacy"}, nil
	},
	func(_ context.Context, _ Options, n *lab.Node) (plane, error) {
		return &linearPlane{node: n, backend: "nft"}, nil
	},
}

// agent is the parts of an agent from the graph to the kernel.
type agent struct {
	node  *lab.Node
	what  string
	load  load
	graph *calc.Graph
	dp    dataplane.Dataplane
	ends  []func() error
}

func (a *agent) name() string        { return a.what }
func (a *agent) required() bool      { return a.what != "BPF" }
func (a *agent) knows(c change) bool { return a.load.has(c) }

func (a *agent) fill(ctx context.Context, l load) error {
	a.graph, a.load = calc.New(nodeName), l
	return a.apply(ctx, l.world()...)
}

// apply takes updates from the datastore to the kernel. Commands have to be started in the node's namespace.
func (a *agent) apply(ctx context.Context, updates ...model.Update) error {
	return a.node.Do(func() error {
		a.graph.Apply(updates)
		return a.dp.Apply(ctx, a.graph.Flush())
	})
}

func (a *agent) do(ctx context.Context, c change, turn int) error {
	return a.apply(ctx, a.load.update(c, turn))
}

func (a *agent) check(ctx context.Context, c change, turn int) error {
	backend, ok := strings.CutPrefix(a.what, "iptables mode, ")
	if !ok || c.joins || c.net {
		return nil // bench/kernel looks at what BPF mode has written
	}
	return has(ctx, a.node, backend, "mangle", fmt.Sprintf("--dport %d ", portAt(turn)))
}

// has looks for a rule.
func has(ctx context.Context, n *lab.Node, backend, table, text string) error {
	saved, err := n.Run(ctx, "", "iptables-"+backend+"-save", "-t", table)
	if err == nil && !strings.Contains(saved, text) {
		err = fmt.Errorf("no rule with %q", text)
	}
	return err
}

func (a *agent) close() error {
	errs := []error{a.dp.Close()}
	for _, end := range a.ends {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

func openBPF(_ context.Context, o Options, n *lab.Node) (plane, error) {
	dir := filepath.Join(o.Work, n.Name())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := bpfmaps.Mount(dir); err != nil {
		return nil, err
	}
	c, host := dataplane.Defaults(), bpfplane.NewFakeHost()
	c.BPFFS = dir
	for name, index := range interfaces() {
		host.Ifaces[name] = index
	}
	unmount := func() error { return unix.Unmount(dir, unix.MNT_DETACH) }
	dp, err := bpfplane.OpenBPF(c, host, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, errors.Join(err, unmount())
	}
	return &agent{node: n, what: "BPF", dp: dp, ends: []func() error{unmount}}, nil
}

func openChains(ctx context.Context, n *lab.Node, backend iptables.Backend) (plane, error) {
	a := &agent{node: n, what: "iptables mode, " + string(backend)}
	err := n.Do(func() error {
		tools, err := iptables.Find(ctx, backend)
		if err != nil {
			return err
		}
		sets, err := ipsets.Open()
		if err != nil {
			return err
		}
		flows, err := conntrack.Open()
		if err != nil {
			return errors.Join(err, sets.Close())
		}
		a.ends = []func() error{sets.Close, flows.Close}
		a.dp, err = chainplane.Open(ctx, dataplane.Defaults(), chainplane.Kernel{Tools: tools, Sets: sets, Flows: flows, Node: quiet{}},
			slog.New(slog.DiscardHandler))
		return err
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// mostSlots is how many interfaces are there.
const mostSlots = 4096

func interfaces() map[string]uint32 {
	all := map[string]uint32{}
	for i := range mostSlots {
		all[ifaceOf(i)] = uint32(i + 100)
	}
	return all
}

// quiet is a node on which nothing happens.
type quiet struct{}

var thereAlways = interfaces()

func (quiet) Interfaces() map[string]uint32 { return thereAlways }
func (quiet) Addrs() []netip.Addr           { return []netip.Addr{netip.MustParseAddr("10.66.0.1")} }
func (quiet) Wake() <-chan struct{}         { return nil }
func (quiet) Nudge(time.Duration)           {}
func (quiet) Close()                        {}

// linearPlane is linear rules, and iptables-restore for one chain. What it takes to compute the rules is not in it.
type linearPlane struct {
	node    *lab.Node
	backend string
	load    load
}

func (l *linearPlane) name() string        { return "linear rules, " + l.backend }
func (l *linearPlane) required() bool      { return false }
func (l *linearPlane) knows(c change) bool { return !c.joins && !c.net }
func (l *linearPlane) close() error        { return nil }
func (l *linearPlane) restore(ctx context.Context, text string) error {
	_, err := l.node.Run(ctx, text, "iptables-"+l.backend+"-restore", "--noflush")
	return err
}

func (l *linearPlane) fill(ctx context.Context, of load) error {
	l.load = of
	return l.restore(ctx, linear.Rules(of.linearPods()))
}

func (l *linearPlane) do(ctx context.Context, _ change, turn int) error {
	return l.restore(ctx, linear.Change(l.load.linearPod(changing, int(portAt(turn))), 0))
}

func (l *linearPlane) check(ctx context.Context, _ change, turn int) error {
	return has(ctx, l.node, l.backend, "filter", fmt.Sprintf("--dports %d ", portAt(turn)))
}

// timed is how long something takes by the clock on the wall, and the CPU time of this process and of the commands it starts.
func timed(do func() error) (wall, cpu time.Duration, err error) {
	before, began := processCPU(), time.Now()
	err = do()
	return time.Since(began), processCPU() - before, err
}

func processCPU() (sum time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil { // cannot fail: the pointer is good
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}
