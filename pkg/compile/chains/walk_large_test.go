package chains_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// portPolicy has many rules for ports, most of them for everybody and some for one address, some for source ports.
func portPolicy(rng *rand.Rand, rules int, sports bool) *model.DirectionPolicy {
	var list []model.MatchRule
	for range rules {
		proto := []uint8{model.ProtoTCP, model.ProtoTCP, model.ProtoUDP, model.ProtoSCTP}[rng.IntN(4)]
		lo := uint16(rng.IntN(400))
		r := model.MatchRule{Action: []model.Action{model.Allow, model.Allow, model.Deny, model.Log}[rng.IntN(4)], Protocol: &proto,
			Destination: model.Side{Ports: policytest.PortsOf(lo, lo+uint16(rng.IntN(3)))}}
		if rng.IntN(4) == 0 {
			a := policytest.Remotes[rng.IntN(len(policytest.Remotes))]
			r.Source.Nets = []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}
		}
		if sports && rng.IntN(12) == 0 {
			at := uint16(rng.IntN(20))
			r.Source.Ports = policytest.PortsOf(at, at+uint16(rng.IntN(9)))
		}
		list = append(list, r)
	}
	return policytest.OnePolicy(model.Ingress, list...)
}

func portProbe(rng *rand.Rand, slot uint32, prog *match.Program, c classes.Class, from netip.Addr) probe {
	own := policytest.Own4
	if from.Is6() {
		own = policytest.Own6
	}
	pkt := model.Packet{Src: from, Dst: own, Protocol: []uint8{model.ProtoTCP, model.ProtoUDP, model.ProtoSCTP}[rng.IntN(3)],
		SrcPort: uint16(rng.IntN(30)), DstPort: uint16(rng.IntN(405))}
	o := prog.Interpret(c, pkt)
	return probe{slot: slot, opens: pkt, answers: rng.IntN(2) == 0, want: decisionOf(prog, o)}
}

// Rows with many ports share chains, and search for ports in trees.
func TestManyPortsAreDecidedAsThePolicySays(t *testing.T) {
	for _, b := range backends {
		t.Run(b.command(""), func(t *testing.T) {
			t.Parallel()
			o := optionsFor(t, b.family, b.shape)
			shared := 0
			for seed := range uint64(24) {
				rng := rand.New(rand.NewPCG(seed, 1))
				numbers, w := policytest.NewNumbers(), &policytest.World{Own: []netip.Addr{policytest.Own4, policytest.Own6}}
				rules := []int{10, 40, 150, 150}[seed%4]
				prog := must(match.Expand(portPolicy(rng, rules, seed%3 == 2), w, numbers))(t)
				p := &policy{slot: uint32(1 + seed), dir: model.Ingress, numbers: numbers, program: prog,
					known: []classes.Class{{ID: classes.None4, Family: 4}, {ID: classes.None6, Family: 6}}}
				for i, a := range policytest.Remotes {
					c := w.ClassOf(prog, numbers, a)
					c.ID = classID(i)
					p.known = append(p.known, c)
				}
				limits := table.Limits{Wide: seed%2 == 0, Interpret: seed%8 == 5 && rules < 150}
				if p.table = table.Build(prog, classes.ListOf(p.known), limits); p.table == nil {
					t.Fatal("the policy is past the limits")
				}
				all := rendered(t, p, o)
				for name := range all {
					if name == o.Names.Chain(fmt.Sprintf("s%d-b%d", p.slot, 1)) {
						shared++
					}
				}
				walked := tableOf(t, all, o)
				for i, a := range policytest.Remotes {
					for range 60 {
						if a.Is4() == (b.family == 4) {
							judge(t, o, all, walked, portProbe(rng, p.slot, prog, p.known[2+i], a), false)
						}
					}
				}
				if t.Failed() {
					t.Fatalf("seed %d, %d rules\n%s", seed, total(all), policytest.Dump(prog, numbers))
				}
			}
			if shared == 0 {
				t.Error("no rows share chains")
			}
		})
	}
}

// Only answers go against a flow: other types of ICMP are denied there, whatever policy allows them to open.
func TestOnlyAnswersOfICMPGoAgainstAFlow(t *testing.T) {
	icmp := func(typ uint8) model.MatchRule {
		proto := model.ProtoICMP
		return model.MatchRule{Protocol: &proto, ICMP: &model.ICMPMatch{Type: typ}}
	}
	o := optionsFor(t, 4, chains.Legacy())
	numbers, w := policytest.NewNumbers(), &policytest.World{Own: []netip.Addr{policytest.Own4, policytest.Own6}}
	prog := must(match.Expand(policytest.OnePolicy(model.Ingress, icmp(8), icmp(3)), w, numbers))(t)
	p := &policy{slot: 1, known: []classes.Class{{ID: classes.None4, Family: 4}, {ID: classID(0), Family: 4}}}
	p.table = table.Build(prog, classes.ListOf(p.known), table.Limits{})
	all := rendered(t, p, o)
	walked := tableOf(t, all, o)
	for typ, want := range map[uint8]chains.Decision{
		8: {Action: 1, Entry: 0, ID: prog.Rules[0].Id}, 3: {Action: 2, Entry: match.NoRule}, 13: {Action: 2, Entry: 2, ID: prog.Rules[2].Id},
	} {
		seen := probe{slot: 1, opens: model.Packet{Src: policytest.Remotes[0], Dst: policytest.Own4, Protocol: model.ProtoICMP, ICMPType: typ}, answers: true, want: want}
		judge(t, o, all, walked, seen, false)
	}
}
