package table

import (
	"fmt"
	"slices"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

// wideRules are n rules, each for a set and a port of its own, with change made to every one. Classes are one for each
// set, numbered from 2, and those that also are in the sets of around.
func wideRules(tb testing.TB, n int, change func(i int, r *model.MatchRule), around ...model.MatchRule) (*match.Program, []classes.Class) {
	tb.Helper()
	rules := slices.Clone(around)
	for i := range n {
		r := model.MatchRule{Action: model.Allow, Protocol: policytest.Ref(model.ProtoTCP),
			Source: model.Side{In: []model.SetID{setOf(i)}}, Destination: model.Side{Ports: policytest.PortsOf(uint16(i+1), uint16(i+1))}}
		if change != nil {
			change(i, &r)
		}
		rules = append(rules, r)
	}
	for i := range rules {
		rules[i].Index = i
	}
	policy := policytest.OnePolicy(model.Ingress)
	policy.Tiers[0].Policies[0].Rules = rules
	num := policytest.NewNumbers()
	prog, err := match.Expand(policy, oneAddress, num)
	if err != nil {
		tb.Fatal(err)
	}
	var known []classes.Class
	for i := range n {
		c := classes.Class{ID: uint32(i) + 2, Family: 4, Sets: []uint32{num.Set(setOf(i))}}
		for _, r := range around {
			for _, s := range r.Source.In {
				c.Sets = append(c.Sets, num.Set(s))
			}
		}
		slices.Sort(c.Sets)
		c.Sets = slices.Compact(c.Sets)
		known = append(known, c)
	}
	return prog, known
}

// around is a rule for a set that all classes are in, and for many ports.
func around(n int) model.MatchRule {
	r := model.MatchRule{Action: model.Allow, Protocol: policytest.Ref(model.ProtoTCP), Source: model.Side{In: []model.SetID{"around"}},
		Destination: model.Side{Ports: &model.PortMatch{}}}
	for i := range n {
		port := uint16(30000 + 2*i)
		r.Destination.Ports.Ranges = append(r.Destination.Ports.Ranges, model.PortRange{Lo: port, Hi: port})
	}
	return r
}

func TestWideTablesAgreeWithTheInterpreter(t *testing.T) {
	const n = 4000
	for name, c := range map[string]struct {
		change func(i int, r *model.MatchRule)
		around []model.MatchRule
	}{
		"a port of each set": {},
		"a range of each set": {change: func(i int, r *model.MatchRule) {
			r.Destination.Ports = policytest.PortsOf(uint16(i+1), uint16(i+30))
		}},
		"every port but one of each set": {change: func(i int, r *model.MatchRule) {
			r.Source.In, r.Source.NotIn = []model.SetID{"around"}, []model.SetID{setOf(i)}
		}, around: []model.MatchRule{around(1)}},
		"inside a set with many ports": {around: []model.MatchRule{around(500)}},
		"denied": {change: func(i int, r *model.MatchRule) {
			r.Action = []model.Action{model.Allow, model.Deny, model.Log, model.Pass}[i%4]
		}},
	} {
		t.Run(name, func(t *testing.T) {
			prog, known := wideRules(t, n, c.change, c.around...)
			table := Build(prog, classes.ListOf(known), Limits{})
			if shape(table) != "wide" {
				t.Fatal(shape(table))
			}
			t.Logf("%d bytes, slot %+v", table.Bytes(), table.Slot)
			allowed := 0
			for i, c := range append(known[:len(known):len(known)], classes.Class{ID: classes.None4, Family: 4}, classes.Class{ID: classes.None6, Family: 6}) {
				for _, port := range []int{i, i + 1, i + 2, i + 29, i + 30, i + 31, 30000, 30001, 30998, 31000, 65535, i * 16 % 65536} {
					pkt := tcpTo(uint16(port))
					want, got := prog.Interpret(c, pkt), table.Eval(c.ID, pkt)
					if got != want {
						t.Fatalf("class %v, port %d: table says %+v, interpreter %+v", c, port, got, want)
					}
					if got.Action == bpf.RuleAllow {
						allowed++
					}
				}
			}
			if allowed < n/4 {
				t.Errorf("only %d packets are allowed", allowed)
			}
		})
	}
}

// sameUse checks that two tables of one policy say the same about its rules.
func sameUse(t *testing.T, a, b *Table) {
	t.Helper()
	if !slices.Equal(a.Shadowed(), b.Shadowed()) {
		t.Errorf("shadowed: %v and %v", a.Shadowed(), b.Shadowed())
	}
	for i := range a.Program.Rules {
		if a.seen.holds.has(i) != b.seen.holds.has(i) {
			t.Errorf("entry %d: holds for some class: %v and %v", i, a.seen.holds.has(i), b.seen.holds.has(i))
		}
	}
}

func TestWideRowsAreComparedByWhatTheyAllow(t *testing.T) {
	prog, known := wideRules(t, 100, nil, around(300))
	areComparedByWhatTheyAllow(t, prog, known)
	for i := range prog.Rules { // now exceptions deny
		switch r := &prog.Rules[i]; r.Action {
		case bpf.RuleAllow:
			r.Action = bpf.RuleDeny
		case bpf.RuleDeny:
			r.Action = bpf.RuleAllow
		}
	}
	areComparedByWhatTheyAllow(t, prog, known)
}

func areComparedByWhatTheyAllow(t *testing.T, prog *match.Program, known []classes.Class) {
	t.Helper()
	table := Build(prog, classes.ListOf(append(known, classes.Class{ID: 900, Family: 4, Sets: known[0].Sets[:1]})), Limits{Wide: true})
	dense := Build(prog, classes.ListOf(append(known, classes.Class{ID: 900, Family: 4, Sets: known[0].Sets[:1]})), Limits{})
	if shape(table) != "wide" || shape(dense) != "dense" {
		t.Fatal(shape(table), shape(dense))
	}
	row := func(t *Table, class uint32) uint16 { n, _ := cell(t.Rows, int(class)); return n }
	for _, from := range []uint32{classes.None4, 2, 3, 900} {
		for _, to := range []uint32{classes.None4, 2, 3, 900} {
			got, want := table.Narrower(row(table, from), row(table, to)), dense.Narrower(row(dense, from), row(dense, to))
			if got != want {
				t.Errorf("class %d to %d: narrower %v, want %v", from, to, got, want)
			}
		}
	}
}

// Comparing rows ends after a number of cells, however many exceptions the rows have. Then rows that differ may be narrower.
func TestComparingWideRowsIsBounded(t *testing.T) {
	prog, known := wideRules(t, 1000, nil, around(3000))
	table := Build(prog, classes.ListOf(known), Limits{Wide: true})
	from, _ := cell(table.Rows, int(classes.None4))
	to, _ := cell(table.Rows, 2)
	if from == to || table.Narrower(to, to) || table.Narrower(from, to) == table.Narrower(to, from) {
		t.Fatalf("rows %d and %d: want two of which one allows more", from, to)
	}
	if !table.Narrower(to, from) {
		from, to = to, from // so that it takes a look at all cells to see that nothing is lost
	}
	spent := func(cells int) (narrower bool, took int) {
		c := Comparison{Table: table, Cells: cells}
		narrower = c.Narrower(from, to)
		return narrower, cells - c.Cells
	}
	narrower, took := spent(1 << 20)
	if narrower || took < 1 {
		t.Fatalf("a comparison takes %d cells and says that it is narrower: %v", took, narrower)
	}
	if narrower, _ := spent(took); narrower {
		t.Errorf("with the %d cells that it takes the comparison says that rows may be narrower", took)
	}
	if narrower, spent := spent(took - 1); !narrower || spent != took-1 {
		t.Errorf("with a cell less: narrower %v, %d cells", narrower, spent)
	}
	c := Comparison{Table: table}
	if c.Narrower(to, to) {
		t.Error("a row is narrower than itself")
	}
}

// What compiling takes grows as the policy does, not as its square: 8 times the rules take less than 16 times the steps.
func TestCompilingAWidePolicyTakesStepsInProportion(t *testing.T) {
	steps := func(n int) int {
		prog, known := wideRules(t, n, nil)
		b := &builder{breaks: endless(), lim: Limits{}.withDefaults(), rules: prog.Rules, t: newTable(prog)}
		if !b.columns.find(b.rules, b.breaks) || !b.sports.find(b.rules, b.breaks) || !b.number(classes.ListOf(known)) {
			t.Fatal("no columns")
		}
		return b.planWide(b.columns.work(n)).steps
	}
	few, many := steps(2000), steps(16000)
	t.Logf("%d and %d steps", few, many)
	if many > 16*few {
		t.Errorf("%d steps for 2,000 rules, %d for 16,000", few, many)
	}
}

func BenchmarkBuildWide(b *testing.B) {
	for _, n := range []int{1000, 4000, 16000, 60000} {
		prog, known := wideRules(b, n, nil)
		b.Run(fmt.Sprint(n, " rules"), func(b *testing.B) {
			all := classes.ListOf(known)
			b.ReportAllocs()
			for b.Loop() {
				if shape(Build(prog, all, Limits{})) == "refused" {
					b.Fatal("refused")
				}
			}
		})
	}
}
