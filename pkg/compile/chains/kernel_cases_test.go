package chains_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

func TestChainsInTheKernelDecideAsThePolicy(t *testing.T) {
	const perLoad, packets = 24, 5
	loads := 10
	for _, b := range backends {
		t.Run(b.command(""), func(t *testing.T) {
			n := newNode(t, b)
			n.classifyRemotes()
			tried, refused := 0, 0
			for load := range loads {
				all, slots := book{}, []uint32(nil)
				var probes [][]probe
				for _, p := range drawn(perLoad, packets, 1000*load) {
					c := rendered(t, p, n.o)
					if c == nil {
						refused++
						continue
					}
					for name, chain := range c {
						all[name] = chain
					}
					slots = append(slots, p.slot)
					var mine []probe
					for _, x := range p.probes {
						if x.opens.Src.Is4() == (n.family == 4) {
							mine = append(mine, x)
						}
					}
					probes = append(probes, mine)
					tried += len(mine)
				}
				n.load(all, slots)
				if n.check(all, probes); t.Failed() {
					t.FailNow()
				}
			}
			t.Logf("%d packets of %d policies, %d refused", tried, loads*perLoad, refused)
			if refused > loads*perLoad/10 || tried < loads*perLoad {
				t.Error("these are too few packets, or too few policies")
			}
		})
	}
}

// The longest ways that there can be are still such that iptables-nft takes them: all levels of both trees, rows that have
// thousands of ports in common, and searches for ports as deep as they get.
func TestDeepestChainsFitEveryBackend(t *testing.T) {
	for _, b := range backends {
		if b.family == 6 {
			continue // the same graph
		}
		t.Run(b.command(""), func(t *testing.T) {
			n := newNode(t, b)
			p := deepPolicy(t)
			entries := map[netip.Prefix]uint32{}
			for i, c := range p.known[2:] {
				entries[cidr(i)] = c.ID
			}
			run(t, "", "ipset", "destroy")
			n.classify(entries)
			all := book{}
			all.set(must(chains.NewSlot(p.slot, p.table, p.known, n.o))(t).Chains())
			// Two chains come before the slots in earnest.
			n.load(all, []uint32{1, 2, 33, 40, 1024, 1025, 4096, p.slot - 1, p.slot}, "first", "second")
			if n.check(all, [][]probe{p.probes}); t.Failed() {
				t.FailNow()
			}
			if depth := longest(all, n.o.Names.Chain("s8191"), map[string]int{}); b.name == "nft" && depth != 3+3+3 {
				t.Errorf("chains are %d deep; the test is about %d", depth, 3+3+3)
			}
		})
	}
}

// longest is how many chains there are one after the other from a chain on.
func longest(all book, name string, known map[string]int) int {
	if n, ok := known[name]; ok {
		return n
	}
	most := 0
	for _, r := range all[name].Rules {
		if _, to, ok := strings.Cut(r, "-g "); ok {
			if _, ok := all[to]; ok {
				most = max(most, longest(all, to, known))
			}
		}
	}
	known[name] = most + 1
	return most + 1
}

// farApart are classes such that a tree over them has all of its levels.
var farApart = []uint32{2, 33, 34, 1000, 1024, 1057, 5000, 8100, 8188, 8189}

// deepPolicy has 40 CIDRs with three ports each, and 3,000 ports for everybody.
func deepPolicy(t *testing.T) *policy {
	numbers, w := policytest.NewNumbers(), &policytest.World{Own: []netip.Addr{policytest.Own4, policytest.Own6}}
	rules := largePolicy(40, 3000)
	for i := range 40 {
		at := uint16(1 + 2*i)
		rules.Tiers[0].Policies[0].Rules[i].Destination.Ports = policytest.PortsOf(at, at, at+100, at+100, at+200, at+200)
	}
	prog := must(match.Expand(rules, w, numbers))(t)
	p := &policy{slot: 8191, dir: model.Ingress, numbers: numbers, program: prog,
		known: []classes.Class{{ID: classes.None4, Family: 4}, {ID: classes.None6, Family: 6}}}
	for i := range 40 {
		c := w.ClassOf(prog, numbers, cidr(i).Addr())
		c.ID = uint32(2000 + 37*i)
		if i < len(farApart) {
			c.ID = farApart[i]
		}
		p.known = append(p.known, c)
	}
	p.table = table.Build(prog, classes.ListOf(p.known), table.Limits{Wide: true})
	for _, x := range []struct {
		from int
		port uint16
	}{{0, 1}, {1, 3}, {7, 215}, {7, 2}, {9, 11998}, {9, 12000}, {39, 6002}} {
		pkt := model.Packet{Src: cidr(x.from).Addr(), Dst: policytest.Own4, Protocol: model.ProtoTCP, SrcPort: 5, DstPort: x.port}
		want := decisionOf(prog, prog.Interpret(p.known[2+x.from], pkt))
		if len(p.probes) < 10 {
			p.probes = append(p.probes, probe{slot: p.slot, opens: pkt, want: want}, probe{slot: p.slot, opens: pkt, answers: true, want: want})
		}
	}
	return p
}
