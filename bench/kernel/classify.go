//go:build linux

package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bench/paired"
	"github.com/margay-project/margay/bench/report"
	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

// Classify measures P7: what the verdict on a first packet costs that the last of n rules denies. Denied packets leave
// no flow behind, so each of them is a first packet.
func Classify(o Options) (results []report.Result, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, engine := range []string{"table", "interpreter"} {
		r, err := o.classify(engine)
		if err != nil {
			return nil, fmt.Errorf("classify by %s: %w", engine, err)
		}
		results = append(results, r...)
	}
	return results, nil
}

const floor, again = "empty program", "again"

func (o Options) classify(engine string) (results []report.Result, err error) {
	interpret := engine == "interpreter"
	n, err := openNode(o, engine, func(c *dataplane.Config) { c.Interpret = interpret })
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	if err := o.load(n, interpret); err != nil {
		return nil, err
	}
	cases, err := o.classifyCases(n, interpret)
	if err != nil {
		return nil, err
	}
	samples, err := paired.Measure(cases, o.Rounds)
	if err != nil {
		return nil, err
	}
	one, most := podName(o.Rules[0]), podName(last(o.Rules))
	wide := fmt.Sprintf("denied first packet, by table, %d rules, each of a prefix and a port of its own", last(o.Rules))
	for _, count := range o.Rules {
		name := fmt.Sprintf("denied first packet net of the empty program, by %s, %d rules, the last fits", engine, count)
		results = append(results, report.Info("P7", name, "ns", samples.Net(podName(count), floor)))
	}
	if interpret {
		return results, nil
	}
	what := fmt.Sprintf("by table, %d rules / %d", last(o.Rules), o.Rules[0])
	return append(results,
		report.Info("P7", "empty program", "ns", samples.Cost(floor)),
		report.Info("P7", "A/A control: 1 rule, again", "ratio", samples.NetRatio(again, one, floor)),
		report.Required("P7", "denied first packet, "+what, "ratio", samples.NetRatio(most, one, floor), 1.15),
		report.Info("P7", wide+", net of the empty program", "ns", samples.Net(widePod, floor)),
		report.Info("P7", wide+" / 1", "ratio", samples.NetRatio(widePod, one, floor)),
		report.Info("P7", "established UDP packet net of the empty program, from_pod", "ns", samples.Net("from_pod", floor)),
		report.Info("P7", "established UDP packet net of the empty program, to_pod", "ns", samples.Net("to_pod", floor)),
	), nil
}

// load gives the node a pod for each rule count, and checks what the kernel has got.
func (o Options) load(n *node, interpret bool) error {
	var updates []model.Update
	for i, count := range o.Rules {
		updates = append(updates, n.addPod(podName(count), uint32(1000+i), podAddr(i)), policyFor(podName(count), rules(count)))
	}
	if !interpret {
		most := last(o.Rules)
		updates = append(updates, n.addPod(widePod, uint32(1000+len(o.Rules)), podAddr(len(o.Rules))), policyFor(widePod, wideRules(most)))
	}
	if err := n.apply(updates...); err != nil {
		return err
	}
	if !interpret {
		c, err := n.slot(widePod)
		if err != nil {
			return err
		}
		if wide := c.Shape.Flags&bpf.SlotWide != 0; !wide && last(o.Rules) >= 10_000 {
			return fmt.Errorf("the policy of many prefixes and ports is in the kernel as %+v, and not as a wide table", c.Shape)
		}
	}
	for _, count := range o.Rules {
		c, err := n.slot(podName(count))
		if err != nil {
			return err
		}
		// Two more entries: the end of the tier, and that of all.
		if c.Shape.Rules != uint32(count+2) || (c.Shape.Flags&bpf.SlotInterpret != 0) != interpret {
			return fmt.Errorf("the policy of %d rules is in the kernel as %+v", count, c.Shape)
		}
	}
	return nil
}

func (o Options) classifyCases(n *node, interpret bool) ([]paired.Case, error) {
	toPod, err := n.program(bpf.MargayProgToPod)
	if err != nil {
		return nil, err
	}
	empty, err := n.program(bpf.MargayProgEmpty)
	if err != nil {
		return nil, err
	}
	syn := testutil.TCP{SrcPort: 40000, DstPort: deniedPort, Flags: testutil.SYN}
	frame := testutil.Packet{Src: stranger, Dst: podAddr(0), L4: syn}.Bytes()
	cases := []paired.Case{{Name: floor, Ops: o.Repeat, Run: o.repeat(n, empty, nil, frame, pass)}}
	for i, count := range o.Rules {
		e, err := n.entry(podName(count))
		if err != nil {
			return nil, err
		}
		syn := testutil.Packet{Src: stranger, Dst: podAddr(i), L4: syn}.Bytes()
		ops := o.Repeat
		if interpret {
			ops = max(10, o.Repeat/max(1, count/10))
		}
		c := paired.Case{Name: podName(count), Ops: ops, Run: o.repeat(n, toPod, &e, syn, drop)}
		cases = append(cases, c)
		if i == 0 {
			c.Name = again
			cases = append(cases, c)
		}
	}
	if !interpret {
		e, err := n.entry(widePod)
		if err != nil {
			return nil, err
		}
		syn := testutil.Packet{Src: stranger, Dst: podAddr(len(o.Rules)), L4: syn}.Bytes()
		cases = append(cases, paired.Case{Name: widePod, Ops: o.Repeat, Run: o.repeat(n, toPod, &e, syn, drop)})
	}
	slices.Reverse(cases[1:])
	if interpret {
		return cases, nil
	}
	established, err := o.established(n, podName(o.Rules[0]), 0, 1)
	return append(cases, established...), err
}

// established opens a UDP flow of the i-th pod, whose egress is free, and measures its packets: from the pod, and to it.
// flows are the flows that there are then.
func (o Options) established(n *node, pod string, i int, flows uint32) ([]paired.Case, error) {
	e, err := n.entry(pod)
	if err != nil {
		return nil, err
	}
	fromPod, err := n.program(bpf.MargayProgFromPod)
	if err != nil {
		return nil, err
	}
	toPod, err := n.program(bpf.MargayProgToPod)
	if err != nil {
		return nil, err
	}
	own, remote := podAddr(i), netip.MustParseAddr("20.200.0.1")
	there := testutil.Packet{Src: own, Dst: remote, L4: testutil.UDP{SrcPort: 4000, DstPort: 53}, Payload: make([]byte, 64)}.Bytes()
	back := testutil.Packet{Src: remote, Dst: own, L4: testutil.UDP{SrcPort: 53, DstPort: 4000}, Payload: make([]byte, 64)}.Bytes()
	if err := n.dp.SetKernel(e); err != nil {
		return nil, err
	}
	for i, step := range []struct {
		program *ebpf.Program
		frame   []byte
		context *skb
	}{{fromPod, there, &fromHere}, {toPod, back, &forwarded}, {fromPod, there, &fromHere}} {
		got, err := send(step.program, step.frame, step.context)
		if err != nil {
			return nil, err
		}
		if got != pass {
			return nil, fmt.Errorf("packet %d of a UDP flow: the program says %d", i, got)
		}
	}
	use, err := n.dp.Maps().Flows.Use(context.Background())
	if err != nil {
		return nil, err
	}
	if use[bpf.MargayMapCt4].Entries != flows {
		return nil, fmt.Errorf("the UDP flow is not established: %v", use)
	}
	return []paired.Case{
		{Name: "from_pod", Ops: o.Repeat, Run: o.repeat(n, fromPod, &e, there, pass)},
		{Name: "to_pod", Ops: o.Repeat, Run: o.repeat(n, toPod, &e, back, pass)},
	}, nil
}

// repeat runs a program over and over with one frame, as a packet of the pod ep, and checks what it says.
func (o Options) repeat(n *node, p *ebpf.Program, ep *bpf.Endpoint, frame []byte, want action) func(int) (time.Duration, error) {
	return func(ops int) (time.Duration, error) {
		if ep != nil {
			if err := n.dp.SetKernel(*ep); err != nil {
				return 0, err
			}
		}
		began, err := threadCPU()
		if err != nil {
			return 0, err
		}
		ret, err := p.Run(&ebpf.RunOptions{Data: frame, Context: &forwarded, Repeat: uint32(ops)})
		if err != nil {
			return 0, err
		}
		if got := action(int32(ret)); got != want {
			return 0, fmt.Errorf("the program says %d, want %d", got, want)
		}
		ended, err := threadCPU()
		return ended - began, err
	}
}

// threadCPU is the CPU time of the calling thread.
func threadCPU() (time.Duration, error) {
	var ts unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return time.Duration(ts.Nano()), err
}
