package corpus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	bpfplane "github.com/margay-project/margay/pkg/dataplane/bpf"
	"github.com/margay-project/margay/pkg/model"
)

// testIfindex is the interface test-run packets come from: every namespace's loopback.
const testIfindex = 1

// Kernel is an Engine: the whole product down to the BPF programs, which are run with real packets by test-run. Loading
// the next state changes the last one, by the plan an agent would make of it.
type Kernel struct {
	dp     *bpfplane.BPF
	host   *bpfplane.FakeHost
	events *bpfmaps.Events
	name   string

	endpoints map[model.EndpointID]*model.EndpointPolicy
	members   map[model.SetID][]netip.Prefix
	nodes     map[netip.Addr]string // names by address
	on        map[model.EndpointID]string
	staged    kernelStaged
}

// NewKernel opens an engine with maps of its own below bpffs. With interpret, every policy is walked rule by rule in
// the kernel instead of being looked up in tables; with wide, every policy has a wide table.
func NewKernel(bpffs string, interpret, wide bool) (*Kernel, error) {
	c := dataplane.Defaults()
	c.BPFFS, c.Interpret, c.Wide, c.NoShortcut, c.EventRate, c.AllowEncap = bpffs, interpret, wide, true, 1<<30, true
	c.MapSizes = map[string]uint32{}
	for _, name := range []string{bpf.MargayMapIp4Host, bpf.MargayMapIp6Host, bpf.MargayMapIp4Net, bpf.MargayMapIp6Net,
		bpf.MargayMapClassSets, bpf.MargayMapCt4, bpf.MargayMapCt6} {
		c.MapSizes[name] = 8192
	}
	k := &Kernel{host: bpfplane.NewFakeHost(), name: "kernel", members: map[model.SetID][]netip.Prefix{}}
	switch {
	case interpret:
		k.name = "kernel-interpreter"
	case wide:
		k.name = "kernel-wide"
	}
	dp, err := bpfplane.OpenBPF(c, k.host, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		return nil, err
	}
	k.dp = dp
	if k.events, err = dp.Maps().Events.Open(); err != nil {
		return nil, errors.Join(err, dp.Close())
	}
	return k, nil
}

// Close lets go of the maps.
func (k *Kernel) Close() error { return errors.Join(k.events.Close(), k.dp.Close()) }

// Name implements Engine.
func (k *Kernel) Name() string { return k.name }

// Load implements Engine.
func (k *Kernel) Load(updates []model.Update) error {
	graph := calc.New("")
	graph.Apply(updates)
	k.place(updates)
	now := graph.Flush()
	if !now.InSync {
		return errors.New("the updates do not end with InSync")
	}
	// Where packets are translated is not for TC programs to judge; as engines are asked, no address is.
	delete(now.Sets, model.SetServiceAddrs)
	delete(now.Sets, model.SetNodeAddrs)
	ch := model.Changes{InSync: true, Endpoints: map[model.EndpointID]*model.EndpointPolicy{}, Sets: map[model.SetID]*model.SetChange{}}
	for id := range k.endpoints {
		ch.Endpoints[id] = nil
	}
	k.host.Ifaces = map[string]uint32{}
	ifindex := uint32(1000)
	k.endpoints = map[model.EndpointID]*model.EndpointPolicy{}
	for _, ep := range graph.LocalEndpoints() {
		// Endpoints of several nodes may share an interface name here.
		own := *ep
		own.Iface = fmt.Sprintf("cali%d", ifindex)
		k.host.Ifaces[own.Iface] = ifindex
		k.endpoints[ep.ID], ch.Endpoints[ep.ID] = &own, &own
		ifindex++
	}
	k.diffSets(now.Sets, ch.Sets)
	return k.apply(ch)
}

// finishWithin bounds how long the dataplane may go on with what it leaves for later.
const finishWithin = time.Minute

// apply has the dataplane apply changes and finish what it leaves for later, staged policies among it. Nothing makes it rest in between:
// it rests for changes that come in meanwhile, and there are none.
func (k *Kernel) apply(ch model.Changes) error {
	err := k.dp.Apply(context.Background(), ch)
	for began := time.Now(); err == nil && k.dp.Unfinished(); {
		if time.Since(began) > finishWithin {
			return fmt.Errorf("apply changes of %d endpoints and %d sets: a large or staged policy, or the names of rules, are not written after %v",
				len(ch.Endpoints), len(ch.Sets), finishWithin)
		}
		err = k.dp.Apply(context.Background(), model.Changes{InSync: true})
	}
	return err
}

// place remembers which addresses are nodes', and which endpoints run there.
func (k *Kernel) place(updates []model.Update) {
	k.nodes, k.on = map[netip.Addr]string{}, map[model.EndpointID]string{}
	for _, u := range updates {
		switch u := u.(type) {
		case model.NodeUpdate:
			if u.Node != nil {
				for _, a := range u.Node.Addrs {
					k.nodes[a] = u.Name
				}
			}
		case model.EndpointUpdate:
			if u.Endpoint != nil {
				k.on[u.ID] = u.Endpoint.Node
			}
		}
	}
}

// diffSets turns sets as they are now into changes of what the dataplane has.
func (k *Kernel) diffSets(now, ch map[model.SetID]*model.SetChange) {
	for id := range k.members {
		if now[id] == nil {
			ch[id] = &model.SetChange{Gone: true}
			delete(k.members, id)
		}
	}
	for id, set := range now {
		old, had := k.members[id]
		k.members[id] = set.Added
		if !had {
			ch[id] = set
			continue
		}
		var change model.SetChange
		for _, p := range set.Added {
			if !slices.Contains(old, p) {
				change.Added = append(change.Added, p)
			}
		}
		for _, p := range old {
			if !slices.Contains(set.Added, p) {
				change.Removed = append(change.Removed, p)
			}
		}
		if len(change.Added)+len(change.Removed) > 0 {
			ch[id] = &change
		}
	}
}

// Judge implements Engine.
func (k *Kernel) Judge(id model.EndpointID, dir model.Direction, pkt model.Packet) (model.Verdict, error) {
	from, unjudged := k.origin(id, dir, pkt)
	return k.judge(id, dir, pkt, from, unjudged)
}

// JudgeForwarded implements Engine.
func (k *Kernel) JudgeForwarded(id model.EndpointID, dir model.Direction, pkt model.Packet) (model.Verdict, error) {
	from, unjudged := k.origin(id, dir, pkt)
	if unjudged == model.AtHost {
		from, unjudged = testIfindex+1, 0
	}
	return k.judge(id, dir, pkt, from, unjudged)
}

// judge runs a program for a packet from an interface. unjudged is why no policy is asked about it, if none is.
func (k *Kernel) judge(id model.EndpointID, dir model.Direction, pkt model.Packet, from uint32, unjudged model.Point) (model.Verdict, error) {
	entry, ok := k.dp.Kernel(id)
	if !ok {
		return model.Verdict{}, fmt.Errorf("endpoint %s is not in the kernel", id)
	}
	if err := k.stage(entry.Ifindex); err != nil {
		return model.Verdict{}, err
	}
	entry.Ifindex = testIfindex
	// Of several addresses of one family a packet may have any.
	if own := pkt.Src; dir == model.Egress {
		if own.Is4() {
			entry.Addr4 = own.As4()
		} else {
			entry.Addr6 = own.As16()
		}
	}
	if err := k.dp.SetKernel(entry); err != nil {
		return model.Verdict{}, err
	}
	allow, err := k.run(dir, pkt, from)
	if err != nil {
		return model.Verdict{}, err
	}
	if unjudged != 0 {
		return model.Verdict{Allow: allow, By: model.RuleID{Point: unjudged, Direction: dir}}, nil
	}
	word := entry.Ingress
	if dir == model.Egress {
		word = entry.Egress
	}
	return k.explain(id, dir, word, allow)
}

// origin is the interface the packet came in by, and, if no policy is asked about such traffic, why.
func (k *Kernel) origin(id model.EndpointID, dir model.Direction, pkt model.Packet) (ifindex uint32, unjudged model.Point) {
	own := k.endpoints[id].Addrs
	if slices.Contains(own, pkt.Src) && slices.Contains(own, pkt.Dst) {
		return testIfindex, model.AtSelf
	}
	if node, ok := k.nodes[pkt.Src]; ok && dir == model.Ingress && node == k.on[id] {
		return 0, model.AtHost // made on this node
	}
	return testIfindex + 1, 0 // forwarded
}

// run sends one packet through the hook it would pass and reports whether it got through.
func (k *Kernel) run(dir model.Direction, pkt model.Packet, from uint32) (allow bool, err error) {
	name, context := bpf.MargayProgToPod, &skb{IngressIfindex: from}
	if dir == model.Egress {
		name, context = bpf.MargayProgFromPod, &skb{}
	}
	program, err := k.dp.Programs().Get(name)
	if err != nil {
		return false, err
	}
	ret, err := program.Run(&ebpf.RunOptions{Data: frame(pkt), Context: context})
	if err != nil {
		return false, fmt.Errorf("run %s: %w", name, err)
	}
	return int32(ret) == -1, k.forget()
}

// forget removes the flow the packet may have made: the next packet is a first packet again.
func (k *Kernel) forget() error {
	for _, name := range []string{bpf.MargayMapCt4, bpf.MargayMapCt6} {
		m := k.dp.Maps().Map(name)
		key, err := m.NextKeyBytes(nil)
		for ; err == nil && key != nil; key, err = m.NextKeyBytes(nil) {
			if err := m.Delete(key); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// explain reads the event of the verdict and names what it tells.
func (k *Kernel) explain(id model.EndpointID, dir model.Direction, word uint64, allow bool) (model.Verdict, error) {
	k.events.SetDeadline(time.Now())
	event, err := k.events.Read()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return model.Verdict{}, errors.New("the program judged the packet without an event")
	}
	if err != nil {
		return model.Verdict{}, err
	}
	slot, generation := bpfmaps.SplitPolicyWord(word)
	if event.Slot != slot || event.Generation != generation || (event.Reason == 0) != allow {
		return model.Verdict{}, fmt.Errorf("allowed %v by slot %d generation %d, but the event says %+v", allow, slot, generation, event)
	}
	inspector := k.dp.Inspector()
	program := inspector.Program(inspector.Detail(id).Tables[dir])
	if program == nil {
		return model.Verdict{}, fmt.Errorf("the policy of %s is not known", id)
	}
	return program.Verdict(outcome(&event)), k.noteStaged(dir, &event)
}

// outcome is what the event tells, in the form the tables have it.
func outcome(e *bpf.Event) bpf.Outcome {
	action := bpf.RuleAllow
	if e.Reason != 0 {
		action = bpf.RuleDeny
	}
	return bpf.Outcome{Rule: e.Rule, Action: action, Nlogs: e.Nlogs, Npasses: e.Npasses, Log: e.Log, Pass: e.Pass}
}

// skb is the part of struct __sk_buff a test-run takes.
type skb struct {
	Len, PktType, Mark, QueueMapping, Protocol, VlanPresent, VlanTci, VlanProto, Priority uint32
	IngressIfindex, Ifindex                                                               uint32
	Rest                                                                                  [148]byte
}

// frame is the first packet of the flow.
func frame(p model.Packet) []byte {
	out := testutil.Packet{Src: p.Src, Dst: p.Dst}
	icmp := uint8(testutil.ProtoICMP)
	if p.Src.Is6() {
		icmp = testutil.ProtoICMPv6
	}
	switch p.Protocol {
	case testutil.ProtoTCP:
		out.L4 = testutil.TCP{SrcPort: p.SrcPort, DstPort: p.DstPort, Flags: testutil.SYN}
	case testutil.ProtoUDP:
		out.L4 = testutil.UDP{SrcPort: p.SrcPort, DstPort: p.DstPort}
	case testutil.ProtoSCTP:
		out.L4 = testutil.SCTP{SrcPort: p.SrcPort, DstPort: p.DstPort}
	case icmp:
		// Errors must quote a packet; no flow is known for this one.
		quote := testutil.Packet{Src: p.Dst, Dst: p.Src, L4: testutil.UDP{SrcPort: 1, DstPort: 1}}
		out.L4 = testutil.ICMP{Type: p.ICMPType, Code: p.ICMPCode, ID: 1, Quote: testutil.Quoting(quote)}
	default:
		out.L4 = testutil.Raw(p.Protocol)
	}
	return out.Bytes()
}
