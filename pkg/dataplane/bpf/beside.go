package bpf

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/bpfmaps"
)

// A BPF dataplane that comes after another one is beside it for a while: both judge all packets. The programs know no flow at first
// that began before they were attached, and an answer of such a flow seems to be one that policy denies. So what policy seems to deny
// passes them, since the other one denies it, and what it allows is recorded. Flows that began before are added from the other
// one's table: before programs are attached, and once more when all are. From then on every flow is known, and the programs
// deny, too; then the other one may go. Packets take no shortcut past it so long. Datagrams in fragments whose first one no program has
// seen may be completed for as long as the kernel keeps that one.

// fragmentsKept is how long the kernel keeps fragments by default: net.ipv4.ipfrag_time is 30 s, net.ipv6.ip6frag_time 60 s.
const fragmentsKept = time.Minute

// Carry adds the flows of another dataplane to flows.
type Carry func(to Successor) error

// Successor is what flows are added to.
type Successor struct {
	Flows *bpfmaps.Flows
	// Interfaces are the numbers of those of this node's endpoints, by address. Shares are what their flows are charged to, by interface.
	Interfaces map[netip.Addr]uint32
	Names      map[netip.Addr]string     // of the same interfaces
	Sources    map[uint32][]netip.Prefix // further sources, by interface
	Shares     map[uint32]uint32
	Node       []netip.Addr // the node's own addresses
	// Stamp is a generation that no policy is published under.
	Stamp uint32
	Quota uint32 // most open flows of a share
	// Unused: no program uses the maps yet.
	Unused bool
	// Complete: no other endpoint of this node is to be open. Before that some are not programmed yet.
	Complete bool
}

// other is the other dataplane, while there is one. It stays when the state of the kernel is read again.
type other struct {
	carry  Carry // adds its flows; nil: there is none
	unused bool  // no program that uses the maps is attached: see attempt
	// until is when fragments that have come while it judged are given up; zero: there are none.
	until time.Time
}

// enter notes that it judges all packets.
func (o *other) enter(carry Carry) { o.carry = carry }

// leave notes that it is not needed any more, and returns what enter takes should it be after all. Fragments that have come by now count until
// then.
func (o *other) leave(until time.Time) (carry Carry) {
	carry, o.carry, o.until = o.carry, nil, until
	return carry
}

// pass notes what time it is. Fragments that came while it judged may be given up by now. Endpoints have to be written afterwards.
func (o *other) pass(now time.Time) {
	if now.After(o.until) {
		o.until = time.Time{}
	}
}

func (o *other) judges() bool { return o.carry != nil }

// flags are those of endpoints while it judges, and while fragments count that came then.
func (o *other) flags() uint32 {
	switch {
	case o.judges():
		return bpf.EPBeside | bpf.EPBesideBefore // the latter alone is left, in one write
	case !o.until.IsZero():
		return bpf.EPBesideBefore
	}
	return 0
}

// found notes on how many interfaces programs that use the maps are attached.
func (o *other) found(attached int) { o.unused = attached == 0 }

// attempt notes that its flows are about to be added, and reports whether no program uses the maps. After a failed attempt one may: programs may
// be attached after it.
func (o *other) attempt() (unused bool) {
	unused, o.unused = o.unused, false
	return unused
}

// JudgeBeside says, before the first Apply of d, that another dataplane judges all packets, whose flows carry adds. It does so until JudgeAlone.
func JudgeBeside(d *BPF, carry Carry) error {
	d.kernel.other.enter(carry)
	d.kernel.heirs.follow()
	// The maps are not always new: an agent may have ended in a switch, before it had attached a program.
	attached, err := attach.ListPinned(d.kernel.maps.LinkDir())
	if err != nil {
		return fmt.Errorf("find out whether programs use the flow maps: %w", err)
	}
	d.kernel.other.found(len(attached))
	// Flows are not lost, so no packet in mid-flow is believed to be an answer for that.
	if err := d.kernel.maps.Flows.SetMidFlowGrace(0); err != nil {
		return err
	}
	return setBeside(d.kernel.endpoints, d.kernel.other.flags()) // of an agent that has not come to its end here
}

// setBeside gives all endpoints flags of those two by which another dataplane judges or has judged, and takes the rest of the two away.
func setBeside(endpoints *bpfmaps.Endpoints, flags uint32) error {
	for _, e := range endpoints.List() {
		e.Flags = e.Flags&^(bpf.EPBeside|bpf.EPBesideBefore) | flags
		if flags&bpf.EPBeside != 0 {
			e.PeerIfindex = 0
		}
		if err := endpoints.Set(e); err != nil {
			return fmt.Errorf("judge beside another dataplane, or alone: %w", err)
		}
	}
	return nil
}

// JudgeAlone has the programs deny what policy denies: after JudgeBeside, once an Apply has attached them, or at once where no other
// dataplane judges. When it returns, no other one is needed. It can be called again if it fails.
func JudgeAlone(d *BPF) error {
	if !d.kernel.other.judges() { // an agent may have ended before it came here
		return setBeside(d.kernel.endpoints, d.kernel.other.flags())
	}
	// Connections of packets that no program has seen are in the other one's table once these packets are through.
	if err := <-d.state.tables.slots.Quiesce(); err != nil {
		return err
	}
	if err := d.state.carryAll(true); err != nil {
		return err
	}
	carry := d.kernel.other.leave(time.Now().Add(fragmentsKept))
	if err := d.state.endpoints.rewrite(); err != nil {
		d.kernel.other.enter(carry)
		return fmt.Errorf("judge without another dataplane: %w", err)
	}
	return nil
}

// carry adds the flows of another dataplane, if there is one.
func (s *state) carry() error { return s.carryAll(false) }

// carryAll does so. complete: everything is enforced.
func (s *state) carryAll(complete bool) error {
	if !s.kernel.other.judges() {
		return nil
	}
	stamp, err := s.kernel.gens.Next()
	if err != nil {
		return err
	}
	to := Successor{Flows: s.kernel.maps.Flows, Interfaces: map[netip.Addr]uint32{}, Names: map[netip.Addr]string{}, Shares: map[uint32]uint32{},
		Sources: map[uint32][]netip.Prefix{}, Node: s.kernel.host.Addrs(), Stamp: stamp, Quota: s.config.FlowQuota,
		Unused: s.kernel.other.attempt(), Complete: complete}
	bound := s.endpoints.roster.bound
	for _, ep := range bound {
		if ep.policy == nil {
			continue
		}
		ifindex := s.interfaces.byName[ep.policy.Iface]
		if ifindex == 0 {
			continue
		}
		if err := s.endpoints.entries.shares.assign(ep, bound); err != nil {
			return err
		}
		to.Shares[ifindex] = ep.share - 1
		if len(ep.policy.Sources) > 0 {
			to.Sources[ifindex] = ep.policy.Sources
		}
		for _, a := range ep.policy.Addrs {
			to.Interfaces[a], to.Names[a] = ifindex, ep.policy.Iface
		}
	}
	return s.kernel.other.carry(to)
}
