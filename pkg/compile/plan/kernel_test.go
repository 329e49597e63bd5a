package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// kernel is what a Plan is carried out on: every map that the programs read, and what they do with them.
type kernel struct {
	addrs     policytest.Entries
	setNames  map[uint32]string
	ruleNames map[uint32]string
	classes   map[uint32]classes.Class
	tables    map[table.ID]*table.Table
	bound     map[model.EndpointID]Binding
	refuses   bool // not everything that plans name is there: what is missing denies

	// unrecorded are classes of addresses whose sets no restarted agent finds: tables that it makes have no row for them, and deny.
	unrecorded map[uint32]bool
}

func newKernel() *kernel {
	return &kernel{
		addrs:     policytest.Entries{},
		setNames:  map[uint32]string{},
		ruleNames: map[uint32]string{},
		classes:   map[uint32]classes.Class{classes.None4: {ID: classes.None4, Family: 4}, classes.None6: {ID: classes.None6, Family: 6}},
		tables:    map[table.ID]*table.Table{},
		bound:     map[model.EndpointID]Binding{},

		unrecorded: map[uint32]bool{},
	}
}

// write is one write to the kernel.
type write struct {
	what string
	do   func()
}

// writes returns the writes of a plan in their order. A write that the kernel could not do as the plan means it panics.
func (k *kernel) writes(p Plan) (all []write) {
	add := func(do func(), format string, args ...any) {
		all = append(all, write{fmt.Sprintf(format, args...), do})
	}
	for num, id := range p.SetNames {
		add(func() { k.setNames[num] = NameText(string(id)) }, "name set %d %s", num, id)
	}
	for num, id := range p.RuleNames {
		add(func() { k.ruleNames[num] = NameText(id.String()) }, "name rule %d %v", num, id)
	}
	for _, c := range p.Classes {
		must(k.classes[c.ID].Family == 0, "class %v is there", c)
		add(func() { k.classes[c.ID] = c; delete(k.unrecorded, c.ID) }, "class %v", c)
	}
	for _, t := range p.Tables {
		must(k.tables[t.ID] == nil, "table %d is there", t.ID)
		mine := *t
		mine.Rows = slices.Clone(t.Rows)
		add(func() { k.tables[t.ID] = &mine }, "table %d", t.ID)
	}
	for _, t := range p.Enlarged {
		add(func() {
			mine := k.tables[t.ID]
			must(mine != nil && len(mine.Rows) < len(t.Rows), "enlarge table %d", t.ID)
			mine.Rows = append(mine.Rows, make([]bpf.CellBlock, len(t.Rows)-len(mine.Rows))...)
		}, "enlarge table %d", t.ID)
	}
	for _, r := range p.Rows {
		add(func() {
			must(k.tables[r.Table] != nil, "row in missing table: %v", r)
			must(k.tables[r.Table].SetRow(r.Class, r.Row), "no room for row %v", r)
		}, "row %+v", r)
	}
	bind := func(b Binding) { k.bound[b.Endpoint.ID] = b }
	for _, b := range p.Grow {
		add(func() { must(k.bound[b.Endpoint.ID].Endpoint != nil, "grow unbound"); bind(b) }, "grow %v %d %d", b.Endpoint.ID, b.Ingress, b.Egress)
	}
	for _, a := range p.Addrs {
		add(func() { k.addrs.Write(a) }, "addr %v", a)
	}
	for _, b := range p.Bind {
		add(func() { bind(b) }, "bind %v %d %d", b.Endpoint.ID, b.Ingress, b.Egress)
	}
	for _, id := range p.Unbind {
		add(func() { must(k.refuses || k.bound[id].Endpoint != nil, "unbind unbound %v", id); delete(k.bound, id) }, "unbind %v", id)
	}
	for _, id := range p.DropTables {
		add(func() { must(k.refuses || k.tables[id] != nil, "drop missing table %d", id); delete(k.tables, id) }, "drop table %d", id)
	}
	for _, a := range p.LateAddrs {
		add(func() { k.addrs.Write(a) }, "late addr %v", a)
	}
	for _, id := range p.DropClasses {
		add(func() { must(k.classes[id].Family != 0, "drop missing class %d", id); delete(k.classes, id) }, "drop class %d", id)
	}
	for _, num := range p.DropSets {
		add(func() { must(k.setNames[num] != "", "drop missing set %d", num); delete(k.setNames, num) }, "drop set %d", num)
	}
	for _, num := range p.DropRules {
		add(func() { must(k.ruleNames[num] != "", "drop missing rule %d", num); delete(k.ruleNames, num) }, "drop rule %d", num)
	}
	return all
}

func must(ok bool, format string, args ...any) {
	if !ok {
		panic(fmt.Sprintf(format, args...))
	}
}

// judge is what the program on an endpoint does with a packet. bound is false if the endpoint is not known, or not by
// this address: nothing passes.
func (k *kernel) judge(id model.EndpointID, d model.Direction, pkt model.Packet) (v model.Verdict, bound bool, err error) {
	b, ok := k.bound[id]
	if !ok {
		return v, false, nil
	}
	t := k.tables[[]table.ID{b.Ingress, b.Egress}[d]]
	if t == nil && k.refuses {
		return v, false, nil
	}
	if t == nil {
		return v, true, fmt.Errorf("%v is bound to a missing table: %+v", id, b)
	}
	remote, own := pkt.Src, pkt.Dst
	if d == model.Egress {
		remote, own = own, remote
	}
	if !slices.Contains(b.Endpoint.Addrs, own) {
		return v, false, nil
	}
	at := k.addrs.Lookup(remote)
	class, ok := k.classes[at.Class]
	if !ok {
		return v, true, fmt.Errorf("%v has class %d, which does not exist", remote, at.Class)
	}
	for _, num := range class.Sets {
		if k.setNames[num] == "" && !k.unrecorded[class.ID] { // only rows are asked about such a class
			return v, true, fmt.Errorf("class %v has set %d, which has no name", class, num)
		}
	}
	var out bpf.Outcome
	if t.Interpreted() {
		out = t.Program.Interpret(class, pkt)
	} else {
		row, ok := t.RowOf(class.ID)
		if (!ok || row == 0) && (k.refuses || k.unrecorded[class.ID]) {
			return v, true, nil
		}
		if !ok || row == 0 {
			return v, true, fmt.Errorf("%v has class %v, for which table %d has no row", remote, class, t.ID)
		}
		out = t.Eval(class.ID, pkt)
	}
	if out.Rule == match.NoRule {
		return v, true, fmt.Errorf("packet %+v reaches no rule in table %d", pkt, t.ID)
	}
	if text := k.ruleNames[out.Id]; text == "" && (out.Id != 0 || !isShadow(id)) {
		return v, true, fmt.Errorf("rule %d has no name", out.Id)
	}
	return t.Program.Verdict(out), true, nil
}

// garbage reports what is there that nothing refers to, or is missing though something does.
func (k *kernel) garbage() error {
	tables, sets, rules := map[table.ID]bool{}, map[uint32]bool{}, map[uint32]bool{}
	classes := map[uint32]bool{classes.None4: true, classes.None6: true}
	for _, b := range k.bound {
		tables[b.Ingress], tables[b.Egress] = true, true
	}
	for _, a := range k.addrs {
		classes[a.Class] = true
	}
	for id := range tables {
		inSets, inRules := match.SetNumbers(k.tables[id].Program.Rules), match.RuleNumbers(k.tables[id].Program.Rules)
		for _, num := range inSets {
			sets[num] = true
		}
		for _, num := range inRules {
			rules[num] = true
		}
	}
	for _, c := range k.classes {
		for _, num := range c.Sets {
			if !sets[num] {
				return fmt.Errorf("class %v has set %d, which no table refers to", c, num)
			}
		}
	}
	if err := sameKeys("tables", tables, k.tables); err != nil {
		return err
	}
	if err := sameKeys("classes", classes, k.classes); err != nil {
		return err
	}
	if err := sameKeys("sets", sets, k.setNames); err != nil {
		return err
	}
	return sameKeys("rules", rules, k.ruleNames)
}

func sameKeys[K ~uint32, V any](what string, want map[K]bool, got map[K]V) error {
	w, g := slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))
	if !slices.Equal(w, g) {
		return fmt.Errorf("%s in the kernel: %v, in use: %v", what, g, w)
	}
	return nil
}

// snapshot reads back what a restarted agent finds, and frees the tables nobody is bound to.
func (k *kernel) snapshot(standIns bool) *Snapshot {
	for id := range k.unrecorded { // without an address nothing of it is left
		if !k.isUsed(id) {
			delete(k.classes, id)
			delete(k.unrecorded, id)
		}
	}
	s := &Snapshot{Sets: maps.Clone(k.setNames), Rules: maps.Clone(k.ruleNames)}
	for _, c := range k.classes {
		if k.unrecorded[c.ID] {
			continue
		}
		c.Family = 0
		s.Classes = append(s.Classes, c)
	}
	for _, a := range k.addrs {
		a.Endpoint = model.EndpointID{}
		s.Addrs = append(s.Addrs, a)
	}
	live := map[table.ID]bool{}
	maps.DeleteFunc(k.bound, func(id model.EndpointID, _ Binding) bool { return isShadow(id) }) // an agent that starts has them no more
	for id, b := range k.bound {
		if standIns {
			delete(k.bound, id)
			id = model.WorkloadID("", b.Endpoint.Iface)
			as := *b.Endpoint
			as.ID = id
			b.Endpoint = &as
			k.bound[id] = b
		}
		s.Endpoints = append(s.Endpoints, SnapshotEndpoint{
			ID: id, Iface: b.Endpoint.Iface, Addrs: b.Endpoint.Addrs, Ingress: b.Ingress, Egress: b.Egress,
		})
		live[b.Ingress], live[b.Egress] = true, true
	}
	for id, t := range k.tables {
		if !live[id] {
			delete(k.tables, id)
			continue
		}
		k.tables[id] = turned(t)
		short := false
		for _, c := range s.Classes {
			row, _ := t.RowOf(c.ID)
			short = short || row == 0 && !t.Interpreted() && k.isUsed(c.ID)
		}
		s.Tables = append(s.Tables, SnapshotTable{ID: id, Direction: t.Direction, Rules: t.Program.Rules, Short: short})
	}
	return s
}

// isUsed reports whether an address has the class.
func (k *kernel) isUsed(class uint32) bool {
	for _, a := range k.addrs {
		if a.Class == class {
			return true
		}
	}
	return false
}

// forgetClasses has restarted agents not find the sets of some classes that addresses have: there was no room for them.
func (k *kernel) forgetClasses(some func(class uint32) bool) {
	for _, a := range k.addrs {
		if a.Class > classes.None6 && some(a.Class) {
			k.unrecorded[a.Class] = true
		}
	}
}

// isUnrecorded reports whether an address has a class whose sets no restarted agent finds.
func (k *kernel) isUnrecorded(a netip.Addr) bool { return k.unrecorded[k.addrs.Lookup(a).Class] }

// more reports whether another plan has to follow this one.
func (k *kernel) more(p Plan) bool {
	return p.More || p.FollowUp && slices.ContainsFunc(slices.Collect(maps.Values(k.addrs)), func(a classes.AddrChange) bool { return k.unrecorded[a.Class] })
}

// turned returns an equal table in which the rows, but for row 0, have other numbers: those in a kernel depend on what
// was compiled before.
func turned(t *table.Table) *table.Table {
	if t.Interpreted() {
		return t
	}
	const perBlock = len(bpf.CellBlock{}.Cell)
	last, width := int(t.Slot.Rows)-1, int(t.Slot.Blocks)
	other := func(row uint16) uint16 {
		if row == 0 {
			return 0
		}
		return uint16(last + 1 - int(row))
	}
	out := *t
	out.Rows, out.RowBlk = slices.Clone(t.Rows), slices.Clone(t.RowBlk)
	for i := range out.Rows {
		for j, row := range out.Rows[i].Cell {
			out.Rows[i].Cell[j] = other(row)
		}
	}
	for row := range last + 1 {
		for b := range width {
			to, from := int(other(uint16(row)))*width+b, row*width+b
			out.RowBlk[to/perBlock].Cell[to%perBlock] = t.RowBlk[from/perBlock].Cell[from%perBlock]
		}
	}
	return &out
}

// takeOver gives endpoints with made-up ids the ids that the plan has for their interfaces, as the dataplane would.
func (k *kernel) takeOver(ids map[string]model.EndpointID) {
	for id, b := range k.bound {
		real, ok := ids[b.Endpoint.Iface]
		if !ok || real == id || isShadow(id) {
			continue
		}
		delete(k.bound, id)
		as := *b.Endpoint
		as.ID = real
		b.Endpoint = &as
		k.bound[real] = b
	}
}

func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
