package bpfmaps

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
)

const (
	stateOpen = uint8(bpf.MargayCtStateCT_OPEN)
	openedByB = uint8(bpf.MargayCtFlagsCT_OPENER_B)
)

// NewFlow is a flow that opener has opened. Its ends, and in its entry the flag of who opened it, follow from that.
func NewFlow(opener, responder netip.AddrPort, proto uint8, e bpf.CtEntry) Flow {
	e.Flags &^= openedByB
	if lower(opener, responder) {
		return Flow{A: opener, B: responder, Proto: proto, Entry: e}
	}
	e.Flags |= openedByB
	return Flow{A: responder, B: opener, Proto: proto, Entry: e}
}

// Ends are the flow's two ends, its opener first.
func (f Flow) Ends() (opener, responder netip.AddrPort) {
	if f.Entry.Flags&openedByB != 0 {
		return f.B, f.A
	}
	return f.A, f.B
}

// lower reports whether a is the lower one of two ends, as src_is_a in conntrack.h has it: by words as the CPU reads them.
func lower(a, b netip.AddrPort) bool {
	x, y := a.Addr().AsSlice(), b.Addr().AsSlice()
	for i := 0; i+4 <= min(len(x), len(y)); i += 4 {
		if v, w := binary.NativeEndian.Uint32(x[i:]), binary.NativeEndian.Uint32(y[i:]); v != w {
			return v < w
		}
	}
	return a.Port() < b.Port()
}

// Room says what flows that are added are charged to.
type Room struct {
	// Unused: no program uses the tables yet, so open flows can be charged.
	Unused bool
	// Share is the share of a flow, by the interface that it is charged to.
	Share func(ifindex uint32) (number uint32, ok bool)
	Quota uint32 // most open flows of one share; 0: no limit of its own
}

// Adder puts flows into the tables. Open ones are charged as the programs do it, which only works while none of them uses the tables.
// Else, and beyond what a share may have, a flow is added that is not charged and that nothing evicts; one that was open has the timeout of
// an open flow, as the programs do it with one that a share has no room for. A share gets so many of these as it may have half-open ones;
// further ones are left out.
type Adder struct {
	flows   *Flows
	share   func(ifindex uint32) (number uint32, ok bool)
	charges *charges
}

// NewAdder returns an Adder that adds flows within room.
func (f *Flows) NewAdder(room Room) (*Adder, error) {
	c, err := f.newCharges(room)
	return &Adder{f, room.Share, c}, err
}

// Add adds the flows that are not there yet, and returns how many. Place and Kept of their entries are set here.
func (a *Adder) Add(list []Flow) (added int, err error) {
	for _, flow := range list {
		number, ok := a.share(chargedTo(&flow.Entry))
		if !ok || number >= bpf.Shares || !a.charges.admit(&flow.Entry, number) {
			continue
		}
		switch err := a.flows.add(flow); {
		case err == nil:
			added++
		case errors.Is(err, ebpf.ErrKeyExist):
			a.charges.withdraw(&flow.Entry, number)
		default:
			return added, errors.Join(err, a.charges.write(a.flows.shares))
		}
	}
	return added, a.charges.write(a.flows.shares)
}

func (f *Flows) add(flow Flow) error {
	var err error
	name := bpf.MargayMapCt4
	if flow.A.Addr().Is4() {
		key := bpf.Ct4Key{A: flow.A.Addr().As4(), B: flow.B.Addr().As4(), Pa: flow.A.Port(), Pb: flow.B.Port(), Proto: flow.Proto}
		err = f.ct4.Update(&key, &flow.Entry, ebpf.UpdateNoExist)
	} else {
		key := bpf.Ct6Key{A: flow.A.Addr().As16(), B: flow.B.Addr().As16(), Pa: flow.A.Port(), Pb: flow.B.Port(), Proto: flow.Proto}
		name, err = bpf.MargayMapCt6, f.ct6.Update(&key, &flow.Entry, ebpf.UpdateNoExist)
	}
	if err != nil {
		return fmt.Errorf("write map %s: %w", name, err)
	}
	return nil
}

// chargedTo is the interface that a flow is charged to, as share_of in quota.h has it.
func chargedTo(e *bpf.CtEntry) uint32 {
	if e.OpenerIf != 0 {
		return e.OpenerIf
	}
	return e.ResponderIf
}

// charges are what flows that are added take of the shares.
type charges struct {
	before, counts []bpf.Share // by share; the last one is what all have in common
	half           []uint32    // half-open flows that were added, by share
	limits         bpf.Config
	quota          uint32
	open           bool // open flows may be charged
}

func (f *Flows) newCharges(room Room) (*charges, error) {
	counts, err := f.Shares()
	if err != nil {
		return nil, err
	}
	c := &charges{before: append([]bpf.Share{}, counts...), counts: counts, half: make([]uint32, bpf.Shares), quota: room.Quota, open: room.Unused}
	divide(&c.limits, min(f.ct4.MaxEntries(), f.ct6.MaxEntries()))
	return c, nil
}

// admit charges a share with a flow, and writes into its entry how; false: there is no room.
func (c *charges) admit(e *bpf.CtEntry, number uint32) bool {
	e.Place, e.Kept = 0, 0
	s, common := &c.counts[number], &c.counts[bpf.Shares]
	lent := s.Open >= c.limits.OpenShare
	room := !lent || s.Open-c.limits.OpenShare < c.limits.OpenCommon-min(common.Open, c.limits.OpenCommon)
	if e.State&stateOpen != 0 && c.open && room && (c.quota == 0 || s.Open < c.quota) {
		if s.Open++; lent {
			common.Open++
		}
		e.Kept = number + 1
		return true
	}
	if c.half[number] >= c.limits.HalfShare {
		return false
	}
	c.half[number]++
	return true
}

// withdraw is the reverse of admit.
func (c *charges) withdraw(e *bpf.CtEntry, number uint32) {
	if e.Kept == 0 {
		c.half[number]--
		return
	}
	if c.counts[number].Open--; c.counts[number].Open >= c.limits.OpenShare {
		c.counts[bpf.Shares].Open--
	}
}

// write writes the counts that differ.
func (c *charges) write(shares *ebpf.Map) error {
	for i, s := range c.counts {
		if s == c.before[i] {
			continue
		}
		if err := shares.Put(uint32(i), s); err != nil {
			return fmt.Errorf("write map %s key %d: %w", bpf.MargayMapShares, i, err)
		}
		c.before[i] = s
	}
	return nil
}
