package chains_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/ruleset/walk"
)

// oneClass answers for the set of classes as if all addresses had one value; none: they have no entry.
type oneClass struct {
	value chains.Value
	none  bool
}

func (c oneClass) Lookup(string, []walk.Place, *walk.Packet) (walk.Entry, bool, error) {
	return walk.Entry{Mark: c.value.Value, Mask: c.value.Mask}, !c.none, nil
}

// plainSlot is a slot under test with the chains that an agent has of it.
type plainSlot struct {
	t     *testing.T
	o     *chains.Options
	slot  *chains.Slot
	all   book
	prog  *match.Program
	table *table.Table
	known []classes.Class
}

// newPlainSlot makes the slot of an ingress policy; classes are made by class.
func newPlainSlot(t *testing.T, shape chains.Shape, rules ...model.MatchRule) *plainSlot {
	t.Helper()
	p := &plainSlot{t: t, o: optionsFor(t, 4, shape), all: book{}}
	n := policytest.NewNumbers()
	p.prog = must(match.Expand(policytest.OnePolicy(model.Ingress, rules...), &policytest.World{Own: []netip.Addr{policytest.Own4}}, n))(t)
	p.known = []classes.Class{{ID: classes.None4, Family: 4}, {ID: classes.None6, Family: 6}}
	sets := []uint32{}
	for id := range p.prog.NetSets {
		sets = append(sets, n.Sets[id])
	}
	slices.Sort(sets)
	p.known = append(p.known, classes.Class{ID: 2, Family: 4, Sets: sets})
	p.table = table.Build(p.prog, classes.ListOf(append(slices.Clone(p.known), classes.Class{ID: 50, Family: 4, Sets: sets[:1]})), table.Limits{})
	p.slot = must(chains.NewSlot(1, p.table, p.known, p.o))(t)
	p.all.set(p.slot.Chains())
	return p
}

// further is a class that is in the sets of the policy, or in none.
func (p *plainSlot) further(id uint32, in bool) classes.Class {
	c := classes.Class{ID: id, Family: 4, Sets: []uint32{60_000 + id}}
	if in {
		c.Sets = slices.Concat(p.known[2].Sets, c.Sets)
	}
	return c
}

// set has the slot know a class, and returns how many chains were written.
func (p *plainSlot) set(c classes.Class) int {
	p.t.Helper()
	d := must(p.slot.Set(c))(p.t)
	p.all.apply(p.t, d)
	return len(d.Set)
}

// tcp is what becomes of TCP to a port, from a class or from an address without an entry, and of the answer to it.
func (p *plainSlot) tcp(class uint32, none bool, port uint16) (passes bool) {
	p.t.Helper()
	stage := walk.Stage{Table: tableOf(p.t, p.all, p.o), Chain: p.slot.Name()}
	x := probe{slot: 1, opens: model.Packet{Src: netip.MustParseAddr("192.0.2.1"), Dst: policytest.Own4, Protocol: model.ProtoTCP, SrcPort: 1, DstPort: port}}
	lookup := oneClass{must(p.o.Marks.Class(class))(p.t), none}
	opened := must(walk.Walk([]walk.Stage{stage}, x.packet(false), lookup))(p.t).Verdict == walk.Accept
	x.answers = true
	if answered := must(walk.Walk([]walk.Stage{stage}, x.packet(true), lookup))(p.t).Verdict == walk.Accept; answered != opened {
		p.t.Errorf("class %d, port %d: opened %v, answered %v", class, port, opened, answered)
	}
	return opened
}

func (p *plainSlot) expect(what string, class uint32, port uint16, want bool) {
	p.t.Helper()
	if got := p.tcp(class, false, port); got != want {
		p.t.Errorf("%s: class %d to port %d passes: %v", what, class, port, got)
	}
}

// consistent compares what Set and Forget said with all chains of the slot.
func (p *plainSlot) consistent() {
	p.t.Helper()
	now := book{}
	now.set(p.slot.Chains())
	for name, c := range now {
		if !slices.Equal(c.Rules, p.all[name].Rules) {
			p.t.Errorf("chain %s is %q by what Set said, and %q by Chains", name, p.all[name].Rules, c.Rules)
		}
	}
	if len(now) != len(p.all) {
		p.t.Errorf("%d chains by what Set said, %d by Chains", len(p.all), len(now))
	}
	if n := total(p.all); n > p.slot.Rules() {
		p.t.Errorf("%d rules, and at most %d were announced", n, p.slot.Rules())
	}
}

var (
	tcpProtocol = model.ProtoTCP
	someNet     = model.Side{Nets: []netip.Prefix{netip.MustParsePrefix("10.64.0.0/16")}}
)

func toPorts(ports ...uint16) model.Side {
	var list []uint16
	for _, p := range ports {
		list = append(list, p, p)
	}
	return model.Side{Ports: policytest.PortsOf(list...)}
}

// fromEverywhere are policies that allow something from everywhere, and port 22 from some addresses, by what the plain row is.
func fromEverywhere() map[string][]model.MatchRule {
	some := model.MatchRule{Protocol: &tcpProtocol, Source: someNet, Destination: toPorts(22)}
	many := []uint16{443}
	for i := range uint16(40) {
		many = append(many, 1000+2*i)
	}
	return map[string][]model.MatchRule{
		"short": {some, {Protocol: &tcpProtocol, Destination: toPorts(443)}},
		"chain": {some, {Protocol: &tcpProtocol, Destination: toPorts(443, 445, 447)}},
		"ports": {some, {Protocol: &tcpProtocol, Destination: toPorts(many...)}},
		"but":   {{Action: model.Deny, Source: someNet, Protocol: &tcpProtocol, Destination: toPorts(22)}, {}},
	}
}

// A class that a policy takes for any other address costs it nothing, also where it allows something from everywhere. An address without
// an entry is denied there, and so is every packet if the chain is flushed that looks addresses up.
func TestClassesLikeMostCostNothing(t *testing.T) {
	for shapeName, shape := range map[string]chains.Shape{"legacy": chains.Legacy(), "nft": chains.NFT()} {
		for name, rules := range fromEverywhere() {
			t.Run(shapeName+"/"+name, func(t *testing.T) {
				p := newPlainSlot(t, shape, rules...)
				before := total(p.all)
				for id := range uint32(600) {
					if n := p.set(p.further(3+id, false)); n > 0 {
						t.Fatalf("class %d has %d chains written", 3+id, n)
					}
				}
				if n := total(p.all); n != before {
					t.Errorf("%d rules, before there were 600 classes more %d", n, before)
				}
				p.set(p.further(700, true))
				p.set(p.further(701, true))
				for _, class := range []uint32{classes.None4, 3, 500, 602} {
					p.expect("like most", class, 443, true)
					p.expect("like most", class, 22, name == "but")
				}
				for _, class := range []uint32{2, 700, 701} {
					p.expect("in the set", class, 443, true)
					p.expect("in the set", class, 22, name != "but")
				}
				if p.tcp(0, true, 443) {
					t.Error("an address without an entry may reach port 443")
				}
				p.all.apply(t, p.slot.Forget(700))
				p.set(p.further(700, false)) // the number comes again, for others
				p.expect("in no set any more", 700, 22, name == "but")
				p.consistent()
			})
		}
	}
}

// If most classes come to have another row than the one that was most frequent, that one is the plain one then.
func TestThePlainRowFollowsTheClasses(t *testing.T) {
	for shapeName, shape := range map[string]chains.Shape{"legacy": chains.Legacy(), "nft": chains.NFT()} {
		for name, rules := range fromEverywhere() {
			t.Run(shapeName+"/"+name, func(t *testing.T) {
				p := newPlainSlot(t, shape, rules...)
				written, rechosen := 0, 0
				for id := range uint32(400) {
					n := p.set(p.further(3+id, true))
					if written += n; n == 0 {
						rechosen++
					}
				}
				if rechosen < 300 {
					t.Errorf("%d of 400 classes of one kind have cost nothing", rechosen)
				}
				p.consistent()
				for id := range uint32(300) {
					p.set(p.further(1000+id, false))
					p.all.apply(t, p.slot.Forget(3+id))
				}
				p.consistent()
				for _, class := range []uint32{classes.None4, 1000, 1299} {
					p.expect("in no set", class, 22, name == "but")
					p.expect("in no set", class, 443, true)
				}
				for _, class := range []uint32{2, 303, 402} {
					p.expect("in the set", class, 22, name != "but")
					p.expect("in the set", class, 443, true)
				}
				if p.tcp(0, true, 443) {
					t.Error("an address without an entry may reach port 443")
				}
			})
		}
	}
}

// A class that there is no room for is denied, also where most may pass.
func TestAClassWithoutRoomIsDeniedWhereMostPass(t *testing.T) {
	several := []model.MatchRule{{Protocol: &tcpProtocol, Destination: toPorts(443)}}
	for i := range 9 {
		net := model.Side{Nets: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.64.%d.0/24", i))}}
		several = append(several, model.MatchRule{Protocol: &tcpProtocol, Source: net, Destination: toPorts(uint16(20+i), uint16(120+i), uint16(220+i))})
	}
	p := newPlainSlot(t, chains.Legacy(), several...)
	sets := p.known[2].Sets
	p.o.MaxRules = p.slot.Rules() + 4
	c := classes.Class{ID: 50, Family: 4, Sets: sets[:1]}
	d, err := p.slot.Set(c)
	var tooLarge *chains.TooLargeError
	if !errors.As(err, &tooLarge) {
		t.Fatalf("there is room: %v", err)
	}
	p.all.apply(t, d)
	p.expect("without room", 50, 443, false)
	p.expect("with room", classes.None4, 443, true)
	p.o.MaxRules = 0
	p.set(c)
	p.expect("with room", 50, 443, true)
	p.consistent()
}
