//go:build linux

// Package kernel measures without traffic: programs by test-run, and the agent's side, from an update of the datastore
// to the last kernel write. Everything between is the real thing: graph, compiler, dataplane, maps and programs; only
// the interfaces are made up.
//
//   - node.go: an agent's parts put together; policy.go: what they are told
//   - classify.go: what a verdict costs; language.go: with many policies, tiers, and staged ones; flood.go: what a flood displaces
//   - changes.go: what changes cost, and tables weigh
package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	bpfplane "github.com/margay-project/margay/pkg/dataplane/bpf"
	"github.com/margay-project/margay/pkg/model"
)

// Options of a run.
type Options struct {
	Work   string // directory for a BPF file system of its own
	Rounds int
	Repeat int   // packets in one round
	Rules  []int // rule counts, ascending, from 1
	Flood  int   // SYNs
	Flows  int   // established flows during the flood
	// Members of the small and the large set another one joins.
	FewMembers, ManyMembers int
	ChangeRules             []int // rule counts of policies that change
	Log                     func(format string, args ...any)
}

// testIfindex is the interface that test-run packets come from: every namespace's loopback.
const testIfindex = 1

const nodeName = "node"

// node is the parts of an agent.
type node struct {
	graph *calc.Graph
	dp    *bpfplane.BPF
	host  *bpfplane.FakeHost
	bpffs string
}

// openNode puts an agent together with maps of its own; change adapts its configuration.
func openNode(o Options, name string, change func(*dataplane.Config)) (*node, error) {
	bpffs := filepath.Join(o.Work, name)
	if err := os.MkdirAll(bpffs, 0o755); err != nil {
		return nil, err
	}
	if err := bpfmaps.Mount(bpffs); err != nil {
		return nil, err
	}
	c := dataplane.Defaults()
	c.BPFFS, c.NoShortcut = bpffs, true // test-run has no peer to send to
	change(&c)
	n := &node{graph: calc.New(nodeName), host: bpfplane.NewFakeHost(), bpffs: bpffs}
	var err error
	if n.dp, err = bpfplane.OpenBPF(c, n.host, slog.New(slog.NewTextHandler(io.Discard, nil))); err != nil {
		return nil, errors.Join(err, unix.Unmount(bpffs, unix.MNT_DETACH))
	}
	n.graph.Apply([]model.Update{model.InSync{}})
	return n, nil
}

func (n *node) close() error {
	return errors.Join(n.dp.Close(), unix.Unmount(n.bpffs, unix.MNT_DETACH))
}

// apply takes updates from the datastore to the kernel.
func (n *node) apply(updates ...model.Update) error {
	n.graph.Apply(updates)
	err := n.dp.Apply(context.Background(), n.graph.Flush())
	for err == nil && n.dp.Unfinished() {
		err = n.dp.Apply(context.Background(), n.graph.Flush())
	}
	return err
}

// timed is apply and how long it took by the clock on the wall.
func (n *node) timed(updates ...model.Update) (time.Duration, error) {
	began := time.Now()
	err := n.apply(updates...)
	return time.Since(began), err
}

// addPod makes a local endpoint with an interface.
func (n *node) addPod(name string, ifindex uint32, addr netip.Addr) model.Update {
	n.host.Ifaces["cali"+name] = ifindex
	return model.EndpointUpdate{ID: model.WorkloadID("bench", name), Endpoint: &model.Endpoint{
		Node: nodeName, Iface: "cali" + name, Addrs: []netip.Addr{addr}, Labels: map[string]string{"app": name},
	}}
}

// entry is what the kernel has of a pod, with its policy, moved to the interface test-runs are on.
func (n *node) entry(name string) (bpf.Endpoint, error) {
	e, ok := n.dp.Kernel(model.WorkloadID("bench", name))
	if !ok {
		return e, fmt.Errorf("pod %s is not in the kernel", name)
	}
	e.Ifindex = testIfindex
	return e, nil
}

// slot is the compiled ingress policy of a pod.
func (n *node) slot(name string) (bpfmaps.SlotContent, error) {
	e, err := n.entry(name)
	if err != nil {
		return bpfmaps.SlotContent{}, err
	}
	slot, _ := bpfmaps.SplitPolicyWord(e.Ingress)
	return n.dp.Maps().ReadSlot(slot)
}

// skb is the part of struct __sk_buff a test-run takes.
type skb struct {
	_                       [9]uint32
	IngressIfindex, Ifindex uint32
	_                       [148]byte
}

var (
	fromHere  skb                                    // a packet of the pod's
	forwarded = skb{IngressIfindex: testIfindex + 1} // a packet that has come in by some other interface
)

// action is what a TC program said.
type action int32

const (
	pass action = -1 // TCX_NEXT
	drop action = 2  // TCX_DROP
)

func (n *node) program(name string) (*ebpf.Program, error) { return n.dp.Programs().Get(name) }

// send runs a program with a frame once.
func send(p *ebpf.Program, frame []byte, context *skb) (action, error) {
	ret, err := p.Run(&ebpf.RunOptions{Data: frame, Context: context})
	return action(int32(ret)), err
}

func last[T any](list []T) T { return list[len(list)-1] }
