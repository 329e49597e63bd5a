package bpf

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/verify"
)

// compiled is a random policy with what the kernel would have of it.
type compiled struct {
	world   *policytest.World
	policy  *model.DirectionPolicy
	content bpfmaps.SlotContent
	names   map[uint32]string
	sets    map[uint32][]uint32
	entries []verify.Entry
}

func drawCompiled(t *rapid.T) *compiled {
	c := &compiled{world: policytest.DrawWorld(t), policy: policytest.DrawPolicy(t), names: map[uint32]string{}, sets: map[uint32][]uint32{}}
	numbers := policytest.NewNumbers()
	program, err := match.Expand(c.policy, c.world, numbers)
	if err != nil {
		t.Fatal(err)
	}
	for id, n := range numbers.Rules {
		c.names[n] = id.String()
	}
	members := map[uint32][]netip.Prefix{}
	for _, id := range program.Sets {
		members[numbers.Sets[id]] = c.world.Sets[id]
		if nets, ok := program.NetSets[id]; ok {
			members[numbers.Sets[id]] = nets
		}
	}
	lim := rapid.SampledFrom([]table.Limits{{}, {Wide: true}, {Interpret: true}}).Draw(t, "kind of table")
	built := table.Build(program, classes.ListOf(c.classify(members)), lim)
	c.content = bpfmaps.SlotContent{Shape: built.Slot, Rules: program.Rules, L4: built.L4, Rows: built.Rows, RowBlk: built.RowBlk,
		Cells: built.Cells, Outcomes: built.Outcomes}
	return c
}

// classify gives each prefix of a member its class, naively.
func (c *compiled) classify(members map[uint32][]netip.Prefix) []classes.Class {
	all := policytest.Prefixes("0.0.0.0/0", "::/0")
	for _, list := range members {
		all = append(all, list...)
	}
	known := []classes.Class{{ID: classes.None4, Family: 4}, {ID: classes.None6, Family: 6}}
	for _, p := range all {
		class := classes.Class{Family: verify.Family(p.Addr())}
		for n, list := range members {
			if slices.ContainsFunc(list, func(m netip.Prefix) bool { return m.Bits() <= p.Bits() && m.Contains(p.Addr()) }) {
				class.Sets = append(class.Sets, n)
			}
		}
		slices.Sort(class.Sets)
		i := slices.IndexFunc(known, func(k classes.Class) bool { return k.Family == class.Family && slices.Equal(k.Sets, class.Sets) })
		if i < 0 {
			i = len(known)
			class.ID = uint32(i)
			known = append(known, class)
			c.sets[class.ID] = class.Sets
		}
		c.entries = append(c.entries, verify.Entry{Prefix: p, Class: known[i].ID})
	}
	return known
}

// read is what is read back of a content. The evaluators in Go stand in for the programs.
func (c *compiled) read(t *rapid.T, content bpfmaps.SlotContent) *readPolicy {
	p, err := newReadPolicy(content, func(n uint32) (string, error) { return c.names[n], nil })
	if err != nil {
		t.Fatal(err)
	}
	p.egress = c.policy.Direction == model.Egress
	p.ask = func(list []bpf.Asked) error {
		for i := range list {
			c.answer(p, &list[i])
		}
		return nil
	}
	return p
}

// answer answers a question as the programs would.
func (c *compiled) answer(p *readPolicy, a *bpf.Asked) {
	remote := netip.AddrFrom16(a.Addr)
	if a.Family == 4 {
		remote = netip.AddrFrom4([4]byte(a.Addr[:4]))
	}
	pkt := model.Packet{Src: remote, Dst: remote, Protocol: a.Proto, SrcPort: a.Sport, DstPort: a.L4, ICMPType: uint8(a.L4 >> 8), ICMPCode: uint8(a.L4)}
	class := c.classOf(remote)
	o := p.table.Eval(class, pkt)
	if p.table.Interpreted() || a.ByRules != 0 {
		o = p.program.Interpret(classes.Class{ID: class, Family: a.Family, Sets: c.sets[class]}, pkt)
	}
	a.Class, a.RuleId, a.Rule, a.Nlogs, a.Npasses, a.Log, a.Pass = class, o.Id, o.Rule, o.Nlogs, o.Npasses, o.Log, o.Pass
	if o.Action == bpf.RuleAllow {
		a.Allow = 1
	}
}

// classOf is the class of an address.
func (c *compiled) classOf(a netip.Addr) uint32 {
	best := verify.Entry{}
	for _, e := range c.entries {
		if e.Prefix.Contains(a) && (!best.Prefix.IsValid() || e.Prefix.Bits() > best.Prefix.Bits()) {
			best = e
		}
	}
	return best.Class
}

func (c *compiled) verify(t *rapid.T, p verify.Policy) verify.Result {
	atoms := verify.NewAtoms()
	atoms.AddPolicy(c.policy)
	regions := verify.NewRegions(atoms, func() error { return nil })
	for _, id := range atoms.Sets() {
		regions.AddMembers(id, c.world.Sets[id])
	}
	regions.AddEntries(c.entries)
	for _, a := range c.world.Own {
		regions.Ask(a)
	}
	pairs, err := regions.Pairs()
	if err != nil {
		t.Fatal(err)
	}
	comparison := verify.Comparison{Atoms: atoms, Pairs: pairs, Of: regions.Of, Pause: func() error { return nil }}
	r, err := comparison.Compare(c.policy, c.world.Own, p, 1)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// outcome is how a policy that was read judges a packet.
func (c *compiled) outcome(p *readPolicy, pkt model.Packet) bpf.Outcome {
	remote := pkt.Src
	if c.policy.Direction == model.Egress {
		remote = pkt.Dst
	}
	if pkt.Protocol == model.ProtoICMP && remote.Is6() || pkt.Protocol == model.ProtoICMPv6 && remote.Is4() {
		pkt.ICMPCode = pkt.Protocol // the key of programs for the ICMP of the other family, see verify.Question
	}
	class := c.classOf(remote)
	o := p.table.Eval(class, pkt)
	if p.table.Interpreted() {
		o = p.program.Interpret(classes.Class{ID: class, Family: verify.Family(remote), Sets: c.sets[class]}, pkt)
	}
	if o.Action != bpf.RuleAllow {
		o.Action = bpf.RuleDeny // as programs read it
	}
	return bpf.Outcome{Id: o.Id, Action: o.Action, Nlogs: o.Nlogs, Npasses: o.Npasses} // another entry of the same rule is as good
}

// TestVerifyAgreesWithTheCompiler: verification shares nothing with the compiler, and both are right.
func TestVerifyAgreesWithTheCompiler(t *testing.T) {
	questions := 0
	rapid.Check(t, func(t *rapid.T) {
		c := drawCompiled(t)
		r := c.verify(t, c.read(t, c.content))
		if len(r.Differences) > 0 {
			t.Fatalf("%+v", r.Differences[0])
		}
		questions += r.Questions
	})
	t.Logf("%d questions", questions)
	if questions == 0 {
		t.Error("nothing was asked")
	}
}

// TestVerifyFindsDamagedPolicies: whatever is altered, if a packet is judged otherwise, it is found.
func TestVerifyFindsDamagedPolicies(t *testing.T) {
	found, without := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		c := drawCompiled(t)
		good := c.read(t, c.content)
		damaged := c.content
		switch which := rapid.IntRange(0, 5).Draw(t, "part"); {
		case which == 0 || c.content.Shape.Flags&bpf.SlotInterpret != 0:
			damaged.Rules = slices.Clone(c.content.Rules)
			r := &damaged.Rules[rapid.IntRange(0, len(damaged.Rules)-1).Draw(t, "rule")]
			switch rapid.IntRange(0, 4).Draw(t, "field") {
			case 0:
				r.Action = rapid.Uint8().Draw(t, "action")
			case 1:
				r.Ndports, r.Dport[0].Lo, r.Dport[0].Hi = rapid.Uint8().Draw(t, "ranges"), 80, rapid.Uint16().Draw(t, "last")
			case 2:
				r.Flags ^= rapid.Uint8Range(1, 15).Draw(t, "flags")
			case 3:
				r.In[0] = rapid.Uint32Range(0, 9).Draw(t, "set")
			default:
				r.Jump = rapid.Uint16().Draw(t, "jump")
			}
		case which == 1:
			damaged.Outcomes = slices.Clone(c.content.Outcomes)
			damaged.Outcomes[rapid.IntRange(0, len(damaged.Outcomes)-1).Draw(t, "outcome")].Action ^= 3
		case which == 2:
			damaged.Rows = alter(t, c.content.Rows)
		case which == 3:
			damaged.RowBlk = alter(t, c.content.RowBlk)
		case which == 4:
			damaged.Cells = alter(t, c.content.Cells)
		default:
			damaged.L4 = slices.Clone(c.content.L4)
			page := &damaged.L4[rapid.IntRange(0, len(damaged.L4)-1).Draw(t, "page")]
			page.Col[rapid.SampledFrom([]int{0, 1, 31, 53, 80, 81, 255}).Draw(t, "key")] = rapid.Uint16Range(0, 300).Draw(t, "column")
		}
		bad := c.read(t, damaged)
		r := c.verify(t, bad)
		differs := false
		for range 200 {
			pkt := policytest.DrawPacket(t, c.world, c.policy.Direction)
			if differs = differs || c.outcome(good, pkt) != c.outcome(bad, pkt); differs && len(r.Differences) == 0 {
				t.Fatalf("%+v: %+v is not found, was %+v", pkt, c.outcome(bad, pkt), c.outcome(good, pkt))
			}
		}
		if differs {
			found++
		} else {
			without++
		}
	})
	t.Logf("%d found, %d were seen to have no effect", found, without)
}

func alter(t *rapid.T, blocks []bpf.CellBlock) []bpf.CellBlock {
	blocks = slices.Clone(blocks)
	b := &blocks[rapid.IntRange(0, len(blocks)-1).Draw(t, "block")]
	b.Cell[rapid.IntRange(0, len(b.Cell)-1).Draw(t, "cell")] = rapid.Uint16Range(0, 40).Draw(t, "value")
	return blocks
}
