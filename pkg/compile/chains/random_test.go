package chains_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/ruleset"
)

// probe is one packet for one slot: as the flow is opened, or the answer to that.
type probe struct {
	slot    uint32
	opens   model.Packet
	answers bool
	want    chains.Decision
}

// policy is a random policy with its table, the packets to try, and what they are to be decided by.
type policy struct {
	slot    uint32
	dir     model.Direction
	table   *table.Table
	known   []classes.Class
	numbers *policytest.Numbers
	program *match.Program
	probes  []probe
}

// classID is the same for an address under all policies, so that one set of addresses serves all of them.
func classID(i int) uint32 { return uint32(2 + 37*i) }

// drawPolicy draws a policy with some packets.
func drawPolicy(slot uint32, kind table.Limits, packets int) *rapid.Generator[*policy] {
	return rapid.Custom(func(t *rapid.T) *policy {
		w, dp, n := policytest.DrawWorld(t), policytest.DrawPolicy(t), policytest.NewNumbers()
		w.Own = []netip.Addr{policytest.Own4, policytest.Own6}
		prog, err := match.Expand(dp, w, n)
		if err != nil {
			t.Fatal(err)
		}
		p := &policy{slot: slot, dir: dp.Direction, numbers: n, program: prog,
			known: []classes.Class{{ID: classes.None4, Family: 4}, {ID: classes.None6, Family: 6}}}
		byAddr := map[netip.Addr]classes.Class{}
		for i, a := range policytest.Remotes {
			c := w.ClassOf(prog, n, a)
			c.ID = classID(i)
			byAddr[a] = c
			p.known = append(p.known, c)
		}
		if p.table = table.Build(prog, classes.ListOf(p.known), kind); p.table == nil {
			t.Fatal("the policy is past the limits")
		}
		for range packets {
			pkt := policytest.DrawPacket(t, w, dp.Direction)
			remote := pkt.Src
			if dp.Direction == model.Egress {
				remote = pkt.Dst
			}
			outcome := prog.Interpret(byAddr[remote], pkt)
			x := probe{slot: slot, opens: pkt, want: decisionOf(prog, outcome)}
			p.probes = append(p.probes, x)
			if x.answers = true; answered(pkt) {
				p.probes = append(p.probes, x)
			}
		}
		return p
	})
}

// answered reports whether the kernel takes some packet for an answer to pkt.
func answered(pkt model.Packet) bool {
	v4 := pkt.Src.Is4()
	return pkt.Protocol == model.ProtoICMP && v4 && pkt.ICMPType == 8 ||
		pkt.Protocol == model.ProtoICMPv6 && !v4 && pkt.ICMPType == 128 ||
		!(pkt.Protocol == model.ProtoICMP && v4 || pkt.Protocol == model.ProtoICMPv6 && !v4)
}

func decisionOf(p *match.Program, o bpf.Outcome) chains.Decision {
	d := chains.Decision{Action: o.Action, Entry: o.Rule, ID: o.Id}
	if int(o.Rule) < len(p.IDs) {
		d.Entry = uint16(slices.Index(p.IDs, p.IDs[o.Rule]))
	}
	return d
}

// book is what an agent has of the chains in the kernel.
type book map[string]chains.Chain

func (b book) set(list []chains.Chain) {
	for _, c := range list {
		b[c.Name] = c
	}
}

func (b book) apply(t testing.TB, d chains.Delta) {
	b.set(d.Set)
	for _, name := range d.Gone {
		if _, ok := b[name]; !ok {
			t.Errorf("chain %s is gone, but was not there", name)
		}
		delete(b, name)
	}
}

// rendered are the chains of a policy: of a slot that knew half of the classes when it was made, and had them in another
// order and wrong ones meanwhile. Nil: the policy cannot be had.
func rendered(t testing.TB, p *policy, o *chains.Options) book {
	half := len(p.known) / 2
	s, err := chains.NewSlot(p.slot, p.table, p.known[:half], o)
	if _, ok := err.(chains.ICMPTypeError); ok {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	b := book{}
	b.set(s.Chains())
	set := func(c classes.Class) bool {
		d, err := s.Set(c)
		if _, ok := err.(chains.ICMPTypeError); ok {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		b.apply(t, d)
		return true
	}
	for _, c := range p.known[half:] {
		if !set(c) {
			return nil
		}
	}
	for i, c := range p.known {
		if i%3 == 1 {
			b.apply(t, s.Forget(c.ID))
		}
	}
	if unused := b.unreached(s.Name()); len(unused) > 0 {
		t.Errorf("no rule leads to the chains %v after classes were forgotten", unused)
	}
	for _, c := range p.known {
		if !set(c) {
			return nil
		}
	}
	again := book{}
	again.set(s.Chains())
	for name, c := range again {
		if !slices.Equal(b[name].Rules, c.Rules) || !slices.Equal(b[name].Decides, c.Decides) {
			t.Errorf("chain %s is %q by what Set said, and %q by Chains", name, b[name].Rules, c.Rules)
		}
	}
	if extra := len(b) - len(again); extra != 0 {
		t.Errorf("%d chains more by what Set said than by Chains: %v", extra, slices.Sorted(maps.Keys(b)))
	}
	if n := total(b); n > s.Rules() {
		t.Errorf("%d rules, and at most %d were announced", n, s.Rules())
	}
	return b
}

// unreached returns the chains of rows to which no rule leads, from the first one on. In a kernel they would stay. Chains that rows share
// stay as long as the slot.
func (b book) unreached(first string) []string {
	rest := maps.Clone(b)
	for todo := []string{first}; len(todo) > 0; todo = todo[1:] {
		for _, r := range rest[todo[0]].Rules {
			if to, _ := ruleset.Target(r); to != "" {
				todo = append(todo, to)
			}
		}
		delete(rest, todo[0])
	}
	maps.DeleteFunc(rest, func(name string, _ chains.Chain) bool {
		return !strings.HasPrefix(strings.ToLower(name), strings.ToLower(first)+"-r")
	})
	return slices.Sorted(maps.Keys(rest))
}

func total(b book) (n int) {
	for _, c := range b {
		n += len(c.Rules)
	}
	return n
}

func optionsFor(t testing.TB, family uint8, shape chains.Shape) *chains.Options {
	marks, err := chains.NewMarks(chains.DefaultMask)
	if err != nil {
		t.Fatal(err)
	}
	return &chains.Options{Marks: marks, Names: chains.Names{World: chains.WorldA}, Family: family, Shape: shape}
}

// drawn are n random policies, with tables of all kinds.
func drawn(n, packets, seed int) (out []*policy) {
	kinds := []table.Limits{{}, {Wide: true}, {Interpret: true}}
	for i := range n {
		out = append(out, drawPolicy(uint32(1+i*61), kinds[i%len(kinds)], packets).Example(seed+i))
	}
	return out
}

func (p probe) String() string {
	return fmt.Sprintf("slot %d, answer %v, %+v", p.slot, p.answers, p.opens)
}
