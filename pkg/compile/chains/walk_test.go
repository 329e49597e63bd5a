package chains_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/ruleset"
	"github.com/margay-project/margay/pkg/ruleset/walk"
)

// classSet answers for the set of classes.
type classSet struct{ o *chains.Options }

func (s classSet) Lookup(set string, places []walk.Place, p *walk.Packet) (walk.Entry, bool, error) {
	if set != s.o.Names.Sets(s.o.Family).Class || len(places) != 1 {
		return walk.Entry{}, false, fmt.Errorf("there is no set %s for %v", set, places)
	}
	id := map[uint8]uint32{4: classes.None4, 6: classes.None6}[s.o.Family]
	if i := slices.Index(policytest.Remotes, p.Addr(places[0])); i >= 0 {
		id = classID(i)
	}
	v, err := s.o.Marks.Class(id)
	return walk.Entry{Mark: v.Value, Mask: v.Mask}, true, err
}

// tableOf are chains as a table, with those that slots go to.
func tableOf(t testing.TB, all book, o *chains.Options) *walk.Table {
	var b strings.Builder
	b.WriteString("*mangle\n")
	rules := map[string][]string{o.Names.Chain("ok"): {"-j ACCEPT"}, o.Names.Chain("deny"): {"-j DROP"}}
	for _, c := range lookups(t, o) {
		rules[c.Name] = c.Rules
	}
	for name, c := range all {
		rules[name] = c.Rules
	}
	for name := range rules {
		fmt.Fprintf(&b, ":%s - [0:0]\n", name)
	}
	for name, list := range rules {
		for _, r := range list {
			fmt.Fprintf(&b, "-A %s %s\n", name, r)
		}
	}
	b.WriteString("COMMIT\n")
	tables := must(ruleset.Parse(b.String()))(t)
	return walk.NewTable(&tables[0])
}

// lookups are the chains by which slots find classes.
func lookups(t testing.TB, o *chains.Options) []chains.Chain {
	static := must(chains.NewStatic(&chains.Config{Marks: o.Marks, Names: o.Names, Family: o.Family, Interfaces: "cali", Generation: chains.FirstGeneration}))(t)
	return slices.DeleteFunc(static.Mangle, func(c chains.Chain) bool {
		return c.Name != o.Names.Chain("class-in") && c.Name != o.Names.Chain("class-eg")
	})
}

func (p probe) packet(established bool) walk.Packet {
	pkt := walk.Packet{Src: p.opens.Src, Dst: p.opens.Dst, Protocol: p.opens.Protocol, Mark: p.slot << 16,
		Connection: &walk.Connection{Protocol: p.opens.Protocol}}
	if model.HasPorts(p.opens.Protocol) {
		pkt.Ports = walk.Ports{Src: p.opens.SrcPort, Dst: p.opens.DstPort}
	} else {
		pkt.ICMP = walk.ICMP{Type: p.opens.ICMPType, Code: p.opens.ICMPCode}
	}
	if p.answers {
		pkt.Src, pkt.Dst, pkt.Ports.Src, pkt.Ports.Dst = pkt.Dst, pkt.Src, pkt.Ports.Dst, pkt.Ports.Src
		pkt.Mark |= 0x40000000
		if reply, ok := map[uint8]uint8{8: 0, 13: 14, 128: 129}[pkt.ICMP.Type]; ok {
			pkt.ICMP.Type = reply
		}
	}
	if established {
		pkt.Connection.State, pkt.Connection.Mark = walk.Established, 0x00050000
	}
	return pkt
}

// The rules say what the policy says, by an evaluator that knows nothing of either.
func TestChainsDecideAsThePolicy(t *testing.T) {
	const policies, packets = 600, 12
	for _, b := range backends {
		t.Run(b.command(""), func(t *testing.T) {
			t.Parallel()
			o := optionsFor(t, b.family, b.shape)
			tried, judged := 0, map[bool]int{} // policies; packets, by whether they are allowed
			for i, p := range drawn(policies, packets, 7000) {
				if p.slot = uint32(1 + i); p.slot > o.Marks.Most() {
					t.Fatal("too many policies")
				}
				all := rendered(t, p, o)
				if all == nil {
					continue
				}
				tried++
				table := tableOf(t, all, o)
				for _, x := range p.probes {
					if x.slot = p.slot; x.opens.Src.Is4() == (b.family == 4) {
						judge(t, o, all, table, x, i%2 == 0)
						judged[x.want.Action == 1]++
					}
				}
				if t.Failed() {
					t.Fatalf("%d rules\n%s", total(all), policytest.Dump(p.program, p.numbers))
				}
			}
			if tried < policies*9/10 || judged[true] < 100 || judged[false] < 1000 {
				t.Errorf("%d of %d policies could be had, %d packets were allowed and %d denied: these are too few", tried, policies, judged[true], judged[false])
			}
		})
	}
}

func judge(t *testing.T, o *chains.Options, all book, table *walk.Table, x probe, established bool) {
	t.Helper()
	stage := walk.Stage{Table: table, Chain: o.Names.Chain(fmt.Sprintf("s%d", x.slot))}
	r, err := walk.Walk([]walk.Stage{stage}, x.packet(established), classSet{o})
	if err != nil {
		t.Errorf("%v: %v", x, err)
		return
	}
	var by []chains.Decision
	for _, s := range r.Path {
		c := all[s.Chain]
		if s.Index >= len(c.Rules) { // ok or deny
			continue
		}
		if d := c.Decides[s.Index]; d.Action != 0 {
			by = append(by, d)
		}
	}
	if len(by) != 1 || by[0] != x.want {
		t.Errorf("%v is decided by %+v, want %+v", x, by, x.want)
	}
	if allowed := r.Verdict == walk.Accept; allowed != (x.want.Action == 1) {
		t.Errorf("%v: %v, want %+v", x, r.Verdict, x.want)
	}
}
