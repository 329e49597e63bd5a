package table

import (
	"math/rand/v2"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

// mixedPolicy is one policy of n rules of all kinds that meet often: few ports, sets and protocols.
func mixedPolicy(n int, rng *rand.Rand) *model.DirectionPolicy {
	policy := policytest.OnePolicy(model.Ingress)
	for tier := range 3 {
		p := &model.PolicyRules{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: setName(tier)}}
		for i := range n / 3 {
			r := model.MatchRule{Index: i, Action: []model.Action{model.Allow, model.Deny, model.Allow, model.Deny, model.Pass, model.Log}[rng.IntN(6)]}
			if rng.IntN(3) > 0 {
				r.Protocol = policytest.Ref([]uint8{6, 17, 132, 6, 17, 47}[rng.IntN(6)])
			}
			if rng.IntN(8) > 0 {
				for range 1 + rng.IntN(3) {
					r.Source.In = append(r.Source.In, setOf(rng.IntN(20)))
				}
			}
			if rng.IntN(4) == 0 {
				r.Source.NotIn = []model.SetID{setOf(rng.IntN(20))}
			}
			if rng.IntN(8) > 0 {
				lo := uint16(rng.IntN(100))
				r.Destination.Ports = policytest.PortsOf(lo, lo+uint16(rng.IntN(10)))
			}
			if rng.IntN(20) == 0 {
				r.Source.Ports = policytest.PortsOf(uint16(rng.IntN(5)), 5)
			}
			p.Rules = append(p.Rules, r)
		}
		policy.Tiers = append(policy.Tiers, model.TierPolicy{Name: setName(tier), Default: model.Pass, Policies: []*model.PolicyRules{p}})
	}
	policy.Tiers = policy.Tiers[1:]
	return policy
}

func setName(i int) string { return string(setOf(i)) }

func TestLargeTablesAgreeWithTheInterpreter(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 0))
		n := policytest.NewNumbers()
		prog, err := match.Expand(mixedPolicy(150, rng), policytest.ExpandWorld, n)
		if err != nil {
			t.Fatal(err)
		}
		known := []classes.Class{{ID: classes.None4, Family: 4}, {ID: classes.None6, Family: 6}}
		for id := range uint32(60) {
			c := classes.Class{ID: id + 2, Family: 4 + 2*uint8(rng.IntN(2))}
			for set := range uint32(len(n.Sets)) {
				if rng.IntN(3) == 0 {
					c.Sets = append(c.Sets, set+1)
				}
			}
			known = append(known, c)
		}
		table, wide := Build(prog, classes.ListOf(known), Limits{}), Build(prog, classes.ListOf(known), Limits{Wide: true})
		if table.Interpreted() || wide.Interpreted() || wide.Slot.Flags&bpf.SlotWide == 0 {
			t.Fatalf("seed %d: interpreted", seed)
		}
		sameUse(t, table, wide)
		used := newBitmap(len(prog.Rules))
		for _, c := range known {
			for range 100 {
				pkt := model.Packet{Src: policytest.Own4, Dst: policytest.Own4, Protocol: []uint8{6, 17, 132, 47, 1, 58, 4}[rng.IntN(7)]}
				if c.Family == 6 {
					pkt.Src, pkt.Dst = policytest.Own6, policytest.Own6
				}
				if model.HasPorts(pkt.Protocol) {
					pkt.SrcPort, pkt.DstPort = uint16(rng.IntN(8)), uint16(rng.IntN(115))
				}
				want, got := prog.Interpret(c, pkt), table.Eval(c.ID, pkt)
				if got != want {
					t.Fatalf("seed %d: %+v of class %+v: table says %+v, interpreter %+v\n%s", seed, pkt, c, got, want, policytest.Dump(prog, n))
				}
				if got := wide.Eval(c.ID, pkt); got != want {
					t.Fatalf("seed %d: %+v of class %+v: wide table says %+v, interpreter %+v\n%s", seed, pkt, c, got, want, policytest.Dump(prog, n))
				}
				used.set(int(want.Rule))
			}
		}
		for i := range prog.Rules {
			if used.has(i) && !table.seen.used.has(i) {
				t.Errorf("seed %d: entry %d decides, but is not marked used", seed, i)
			}
		}
	}
}

func TestManyOverlappingRangesAgreeWithTheInterpreter(t *testing.T) {
	// Every port has hundreds of entries: the columns are dense.
	prog, n := expand(t, nestedRanges(700)...)
	class := classes.Class{ID: 2, Family: 4, Sets: []uint32{n.Sets[setOf(37)]}}
	table := Build(prog, classes.ListOf([]classes.Class{class}), Limits{})
	allowed := false
	for port := 0; port < 65536; port += 7 {
		pkt := tcpTo(uint16(port))
		if got, want := table.Eval(class.ID, pkt), prog.Interpret(class, pkt); got != want {
			t.Fatalf("port %d: table says %+v, interpreter %+v", port, got, want)
		}
		allowed = allowed || table.Eval(class.ID, pkt).Action == bpf.RuleAllow
	}
	if !allowed {
		t.Error("no packet was allowed")
	}
}

// nestedRanges are rules for ranges of ports, each inside the one before.
func nestedRanges(n int) []model.MatchRule {
	rules := make([]model.MatchRule, n)
	for i := range rules {
		rules[i] = model.MatchRule{
			Protocol: policytest.Ref(model.ProtoTCP), Source: model.Side{In: []model.SetID{setOf(i % 50)}},
			Destination: model.Side{Ports: policytest.PortsOf(uint16(i), uint16(60000-i))},
		}
	}
	return rules
}
