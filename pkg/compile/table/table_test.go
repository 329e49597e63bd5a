package table

import (
	"math/bits"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

func expand(tb testing.TB, rules ...model.MatchRule) (*match.Program, *policytest.Numbers) {
	tb.Helper()
	n := policytest.NewNumbers()
	prog, err := match.Expand(policytest.OnePolicy(model.Ingress, rules...), policytest.ExpandWorld, n)
	if err != nil {
		tb.Fatal(err)
	}
	return prog, n
}

func tcpTo(port uint16) model.Packet {
	return model.Packet{Src: policytest.Remotes[0], Dst: policytest.Own4, Protocol: model.ProtoTCP, SrcPort: 40000, DstPort: port}
}

// webRules allow the set web on port 80 and the set admin on every port.
func webRules() []model.MatchRule {
	return []model.MatchRule{
		{Protocol: policytest.Ref(model.ProtoTCP), Source: model.Side{In: []model.SetID{"web"}}, Destination: model.Side{Ports: policytest.PortsOf(80, 80)}},
		{Source: model.Side{In: []model.SetID{"admin"}}},
	}
}

func TestAClassGetsARowInPlaceIfAnotherHasTheSameSets(t *testing.T) {
	prog, n := expand(t, webRules()...)
	web := n.Sets["web"]
	unrelated := uint32(99)
	table := Build(prog, classes.ListOf([]classes.Class{{ID: 7, Family: 4, Sets: []uint32{web}}}), Limits{})
	if want := []uint32{web, n.Sets["admin"]}; !slices.Equal(table.Refers(), want) {
		t.Errorf("refers to sets %v, want %v", table.Refers(), want)
	}

	same := classes.Class{ID: 8, Family: 4, Sets: []uint32{web, unrelated}}
	if got := table.Eval(same.ID, tcpTo(80)); got != match.NoOutcome() {
		t.Errorf("a class without a row: %+v, want no outcome", got)
	}
	row, ok := table.Row(same)
	if !ok || !table.SetRow(same.ID, row) {
		t.Fatal("a class with the sets of a known one has no row")
	}
	if got := table.Eval(same.ID, tcpTo(80)); got.Action != bpf.RuleAllow {
		t.Errorf("after SetRow: %+v, want allow", got)
	}
	for _, c := range []classes.Class{
		{ID: 9, Family: 6, Sets: []uint32{web}},
		{ID: 9, Family: 4, Sets: []uint32{web, n.Sets["admin"]}},
	} {
		if row, ok := table.Row(c); ok {
			t.Errorf("class %+v is unlike all known ones, but has row %d", c, row)
		}
	}
	if _, ok := table.Row(classes.Class{ID: classes.None6, Family: 6}); !ok {
		t.Error("the IPv6 class without sets has no row")
	}
}

func TestRowsHaveRoomForMoreClasses(t *testing.T) {
	prog, _ := expand(t)
	for _, most := range []uint32{1, 31, 32, 95, 96, 127, 1000, 5000} {
		table := Build(prog, classes.ListOf([]classes.Class{{ID: most, Family: 4}}), Limits{})
		blocks := len(table.Rows)
		if bits.OnesCount(uint(blocks)) != 1 {
			t.Errorf("classes up to %d: %d blocks, not a power of two", most, blocks)
		}
		if used := int(most)/32 + 1; blocks*3 < used*4 || blocks > used*4 {
			t.Errorf("classes up to %d: %d blocks for %d", most, blocks, used)
		}
		last := uint32(blocks*32 - 1)
		if !table.SetRow(last, 1) {
			t.Errorf("class %d does not fit %d blocks", last, blocks)
		}
		if table.SetRow(last+1, 1) {
			t.Errorf("class %d fits %d blocks", last+1, blocks)
		}
	}
}

func TestRowsAreComparedByWhatTheyAllow(t *testing.T) {
	prog, n := expand(t, webRules()...)
	web, admin := n.Sets["web"], n.Sets["admin"]
	known := []classes.Class{{ID: 2, Family: 4, Sets: []uint32{web}}, {ID: 3, Family: 4, Sets: []uint32{admin}}, {ID: 4, Family: 6, Sets: []uint32{web}}}
	table := Build(prog, classes.ListOf(known), Limits{})
	row := func(c classes.Class) uint16 {
		r, ok := table.Row(c)
		if !ok {
			t.Fatalf("class %+v has no row", c)
		}
		return r
	}
	none, webRow, adminRow := row(classes.Class{ID: classes.None4, Family: 4}), row(known[0]), row(known[1])
	for _, c := range []struct {
		name     string
		from, to uint16
		want     bool
	}{
		{"web to none", webRow, none, true}, {"none to web", none, webRow, false}, {"web to admin", webRow, adminRow, false},
		{"admin to web", adminRow, webRow, true}, {"web to the row of unknown classes", webRow, 0, true}, {"web to web", webRow, webRow, false},
	} {
		if got := table.Narrower(c.from, c.to); got != c.want {
			t.Errorf("%s: narrower %v, want %v", c.name, got, c.want)
		}
	}
	if webRow == adminRow || webRow != row(known[2]) {
		t.Error("web is like web of the other family, and not like admin")
	}
}

func TestAnInterpretedTableIsCautious(t *testing.T) {
	prog, n := expand(t, webRules()...)
	table := Build(prog, classes.ListOf(nil), Limits{Interpret: true})
	if !table.Narrower(0, 0) {
		t.Error("an interpreted table says it knows rows")
	}
	if row, ok := table.Row(classes.Class{ID: 5, Family: 4, Sets: []uint32{n.Sets["web"]}}); row != 0 || !ok || !table.SetRow(5, 0) {
		t.Error("an interpreted table wants rows")
	}
	if table.Shadowed() != nil || table.Bytes() != 0 {
		t.Error("an interpreted table has cells")
	}
	if want := (bpf.Slot{Rules: 4, Sports: 1, Flags: bpf.SlotInterpret}); table.Slot != want {
		t.Errorf("slot %+v, want %+v", table.Slot, want)
	}
}

// shape says what Build has made of a policy.
func shape(t *Table) string {
	switch {
	case t == nil:
		return "refused"
	case t.Interpreted():
		return "interpreted"
	case t.Slot.Flags&bpf.SlotWide != 0:
		return "wide"
	}
	return "dense"
}

func TestLimitsChangeTheKindOfTable(t *testing.T) {
	prog, known := sized(t, 100)
	fits, wide := Build(prog, classes.ListOf(known), Limits{}), Build(prog, classes.ListOf(known), Limits{Wide: true})
	rows, blocks, outcomes, size := int(fits.Slot.Rows), len(fits.Cells), len(fits.Outcomes), fits.Bytes()
	for _, c := range []struct {
		name   string
		limits Limits
		want   string
	}{
		{"exactly what is needed", Limits{Rows: rows, Blocks: blocks, Outcomes: outcomes, Bytes: size}, "dense"},
		{"a row too few", Limits{Rows: rows - 1}, "interpreted"},
		{"a block too few", Limits{Blocks: blocks - 1}, "wide"},
		{"an outcome too few", Limits{Outcomes: outcomes - 1}, "interpreted"},
		{"a byte too few", Limits{Bytes: size - 1}, "wide"},
		{"a byte too few for a wide one", Limits{Bytes: wide.Bytes() - 1}, "interpreted"},
		{"and the walk is too long", Limits{Bytes: wide.Bytes() - 1, Walk: walkOf(prog.Rules) - 1}, "refused"},
		{"exactly the walk", Limits{Bytes: wide.Bytes() - 1, Walk: walkOf(prog.Rules)}, "interpreted"},
		{"forced", Limits{Interpret: true}, "interpreted"},
	} {
		if got := shape(Build(prog, classes.ListOf(known), c.limits)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// portPairs are rules for one source and one destination port each.
func portPairs(n int) []model.MatchRule {
	rules := make([]model.MatchRule, n)
	for i := range rules {
		rules[i] = model.MatchRule{
			Protocol:    policytest.Ref(model.ProtoTCP),
			Source:      model.Side{Ports: policytest.PortsOf(1000+2*uint16(i), 1000+2*uint16(i))},
			Destination: model.Side{Ports: policytest.PortsOf(2000+2*uint16(i), 2000+2*uint16(i))},
		}
	}
	return rules
}

func TestPairsOfPorts(t *testing.T) {
	for _, c := range []struct {
		n      int
		limits Limits
		want   string
	}{{200, Limits{}, "dense"}, {300, Limits{Walk: 400}, "interpreted"}, {300, Limits{}, "refused"}} {
		prog, _ := expand(t, portPairs(c.n)...)
		if got := shape(Build(prog, classes.ListOf(nil), c.limits)); got != c.want {
			t.Errorf("%d pairs, limits %+v: %s, want %s", c.n, c.limits, got, c.want)
		}
	}
}

func TestManySourcePortClassesAreRefused(t *testing.T) {
	var rules []model.MatchRule
	for i := range uint16(2000) {
		rules = append(rules, model.MatchRule{Protocol: policytest.Ref(model.ProtoUDP), Source: model.Side{Ports: policytest.PortsOf(2*i+1, 2*i+1)}})
	}
	prog, _ := expand(t, rules...)
	if got := shape(Build(prog, classes.ListOf(nil), Limits{})); got != "refused" {
		t.Error(got)
	}
}

func TestAPolicyThatTakesTooLongToCompileIsRefused(t *testing.T) {
	prog, _ := expand(t, nestedRanges(6000)...)
	if got := shape(Build(prog, classes.ListOf(nil), Limits{})); got != "refused" {
		t.Error("6,000 nested ranges:", got)
	}

	prog, _ = expand(t, nestedRanges(1200)...)
	var known []classes.Class
	for id := range uint32(1 << 14) {
		c := classes.Class{ID: id + 2, Family: 4}
		for set := range uint32(14) {
			if id>>set&1 != 0 {
				c.Sets = append(c.Sets, set+1)
			}
		}
		known = append(known, c)
	}
	if got := shape(Build(prog, classes.ListOf(known[:100]), Limits{})); got != "dense" {
		t.Error("1,200 nested ranges, 100 classes:", got)
	}
	if got := shape(Build(prog, classes.ListOf(known), Limits{Bytes: 1 << 40})); got != "refused" {
		t.Error("1,200 nested ranges, 16,384 classes:", got)
	}
}

func TestBuildDoesNotDependOnTheOrderOfClasses(t *testing.T) {
	prog, known := sized(t, 200)
	a := Build(prog, classes.ListOf(known), Limits{})
	slices.Reverse(known)
	b := Build(prog, classes.ListOf(known), Limits{})
	if diff := cmp.Diff(a, b, cmp.AllowUnexported(Table{}, byKind{}, seen{}), cmpopts.IgnoreFields(Table{}, "Program")); diff != "" {
		t.Errorf("the tables differ:\n%s", diff)
	}
}

func TestShadowedRulesAreThoseThatCouldMatchButNeverDo(t *testing.T) {
	web := model.Side{In: []model.SetID{"web"}}
	prog, n := expand(t,
		model.MatchRule{Source: web, Protocol: policytest.Ref(model.ProtoTCP)},
		model.MatchRule{Source: web, Protocol: policytest.Ref(model.ProtoTCP), Destination: model.Side{Ports: policytest.PortsOf(80, 80)}}, // shadowed
		model.MatchRule{Source: model.Side{In: []model.SetID{"empty"}}},                                                                    // no member now
		model.MatchRule{Action: model.Log},
		model.MatchRule{Action: model.Pass, Destination: model.Side{Ports: policytest.PortsOf(80, 90)}}, // for others than web
		model.MatchRule{Protocol: policytest.Ref(model.ProtoUDP)},
		model.MatchRule{Protocol: policytest.Ref(model.ProtoUDP), Action: model.Log, Destination: model.Side{Ports: policytest.PortsOf(53, 53)}}, // shadowed
		model.MatchRule{},
		model.MatchRule{Action: model.Deny}, // shadowed
	)
	table := Build(prog, classes.ListOf([]classes.Class{{ID: 2, Family: 4, Sets: []uint32{n.Sets["web"]}}}), Limits{})
	var got []int
	for _, id := range table.Shadowed() {
		got = append(got, id.Index)
	}
	if diff := cmp.Diff([]int{1, 6, 8}, got); diff != "" {
		t.Errorf("shadowed rules (-want +got):\n%s", diff)
	}
}

func TestWhatIsMissingInATableDenies(t *testing.T) {
	prog, _ := expand(t, model.MatchRule{})
	for _, c := range []struct {
		name  string
		strip func(*Table)
	}{
		{"nothing", nil},
		{"pages", func(t *Table) { t.L4 = nil }},
		{"second-level pages", func(t *Table) { t.L4 = t.L4[:bpf.L4Indexes] }},
		{"rows", func(t *Table) { t.Rows = nil }},
		{"row blocks", func(t *Table) { t.RowBlk = nil }},
		{"cells", func(t *Table) { t.Cells = nil }},
		{"outcomes", func(t *Table) { t.Outcomes = nil }},
	} {
		table := Build(prog, classes.ListOf(nil), Limits{})
		want := uint8(bpf.RuleAllow)
		if c.strip != nil {
			c.strip(table)
			want = bpf.RuleDeny
		}
		if got := table.Eval(classes.None4, tcpTo(80)).Action; got != want {
			t.Errorf("without %s: action %d, want %d", c.name, got, want)
		}
	}
}

func TestAVerdictKeepsTheFirstPassesAndLogsAndCountsAll(t *testing.T) {
	var rules []model.MatchRule
	for range 6 {
		rules = append(rules, model.MatchRule{Action: model.Log})
	}
	p := policytest.OnePolicy(model.Ingress, rules...)
	for range 8 {
		p.Tiers = append(p.Tiers, model.TierPolicy{Name: "t", Default: model.Pass, Policies: p.Tiers[0].Policies[:1]})
	}
	p.Tiers = p.Tiers[1:]
	p.Tiers[7].Default = model.Deny
	prog, err := match.Expand(p, policytest.ExpandWorld, policytest.NewNumbers())
	if err != nil {
		t.Fatal(err)
	}
	o := Build(prog, classes.ListOf(nil), Limits{}).Eval(classes.None4, tcpTo(80))
	if o.Nlogs != 48 || o.Npasses != 7 {
		t.Errorf("%d logs and %d passes, want 48 and 7", o.Nlogs, o.Npasses)
	}
	v := prog.Verdict(o)
	if len(v.Logged) != 4 || len(v.Passed) != 6 || v.Allow || v.By.Point != model.AtEndOfTier {
		t.Errorf("verdict %+v, want 4 logs, 6 passes, and the end of the last tier", v)
	}
	if got := prog.Verdict(match.NoOutcome()); got.Allow || got.By != (model.RuleID{}) {
		t.Errorf("verdict of no outcome: %+v, want a denial by nothing", got)
	}
}
