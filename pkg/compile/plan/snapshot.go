package plan

import (
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// Snapshot is what a restarted agent has read back from the kernel, the work of an earlier one that may have stopped
// between any two writes.
type Snapshot struct {
	Sets    map[uint32]string // set number -> NameText of its id
	Rules   map[uint32]string // rule number -> NameText of its id
	Classes []classes.Class   // Family is not used: it is that of the class's addresses
	// Addrs are all address entries: prefix, class and flags.
	Addrs []classes.AddrChange
	// Tables are those that endpoints are bound to. Their ids are the dataplane's choice, from 1. An endpoint bound to
	// one that is not here, because it could not be read, is bound anew or unbound by the first plan.
	Tables    []SnapshotTable
	Endpoints []SnapshotEndpoint
}

// SnapshotTable is the match table of a compiled policy in the kernel.
type SnapshotTable struct {
	ID        table.ID
	Direction model.Direction
	Rules     []bpf.Rule
}

// SnapshotEndpoint is an endpoint that the kernel knows. An endpoint of the datastore with the same ID, or else with
// the same Iface, is taken to be it: an ID the kernel does not keep may be made up. Addrs may be incomplete; then the
// endpoint is bound again, to the same tables.
type SnapshotEndpoint struct {
	ID              model.EndpointID
	Iface           string
	Addrs           []netip.Addr
	Ingress, Egress table.ID
}

// maxNameText is the most bytes a name in the kernel has, without the zero at its end.
const maxNameText = len(bpf.Name{}.Text) - 1

// NameText returns the text by which the kernel's maps know a set or rule: its id, or if that is too long as much of it
// as fits, "~" and a digest of all of it.
func NameText(id string) string {
	if len(id) <= maxNameText {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	digest := "~" + base64.RawURLEncoding.EncodeToString(sum[:18])
	return id[:maxNameText-len(digest)] + digest
}

// oldRule is all that is known of a rule found in the kernel. Rules of both directions may have the same text.
type oldRule struct {
	text      string
	direction model.Direction
}

// setNumber returns the number of the set.
func (c *Compiler) setNumber(id model.SetID) uint32 {
	if text := NameText(string(id)); text != string(id) && !c.sets.Has(id) {
		if num, ok := c.sets.Find(model.SetID(text)); ok { // from the kernel, where it had to be cut short
			c.sets.Rename(num, id)
		}
	}
	return c.sets.Number(id)
}

// ruleNumber returns the number of the rule, or 0 if there is none left.
func (c *Compiler) ruleNumber(id model.RuleID) uint32 {
	if len(c.oldRules) > 0 && !c.rules.Has(id) {
		old := oldRule{NameText(id.String()), id.Direction}
		if num, ok := c.oldRules[old]; ok {
			delete(c.oldRules, old)
			c.rules.Rename(num, id)
		}
	}
	return c.rules.Number(id)
}

// adopt makes the snapshot the state that the first plan starts from.
func (c *Compiler) adopt(s *Snapshot) {
	sets, rules := s.names()
	c.sets.Claim(slices.Collect(maps.Keys(sets)))
	for _, num := range slices.Sorted(maps.Keys(sets)) {
		c.sets.Assign(sets[num], num)
		c.sets.Hold(num)
		*c.use(num) = setUse{named: true, orphan: true}
		c.sets.Hold(num)
		c.review = append(c.review, num)
		c.classes.Show(num)
	}
	c.rules.Claim(slices.Collect(maps.Keys(rules)))
	for _, num := range slices.Sorted(maps.Keys(rules)) {
		c.rules.Assign(placeholder(num, rules[num]), num)
		c.rules.SetKnown(num)
	}
	c.classes.Adopt(s.Classes, s.Addrs)
	for _, a := range s.Addrs {
		c.oldAddrs = append(c.oldAddrs, a.Prefix)
	}
	tables := map[table.ID]*program{}
	for _, t := range s.Tables {
		if len(t.Rules) > 0 {
			tables[t.ID] = c.adoptTable(t, rules)
		}
	}
	for _, e := range s.Endpoints {
		for _, id := range []table.ID{e.Ingress, e.Egress} {
			c.lastID = max(c.lastID, id)
			if id != 0 && tables[id] == nil { // it could not be read
				c.lostTables = append(c.lostTables, id)
			}
		}
		c.endpoints[e.ID] = &endpoint{
			id: e.ID,
			applied: applied{
				policy:   &model.EndpointPolicy{ID: e.ID, Iface: e.Iface, Addrs: e.Addrs},
				programs: [2]*program{model.Ingress: tables[e.Ingress], model.Egress: tables[e.Egress]},
			},
		}
		c.stale[e.ID] = true
		c.ifaces[e.Iface] = e.ID
	}
}

// names returns the names of all numbers in the snapshot; those that have none get one that is nobody else's.
func (s *Snapshot) names() (sets map[uint32]model.SetID, rules map[uint32]string) {
	sets, rules = map[uint32]model.SetID{}, maps.Clone(s.Rules)
	if rules == nil {
		rules = map[uint32]string{}
	}
	var usedSets, usedRules []uint32
	for _, class := range s.Classes {
		usedSets = append(usedSets, class.Sets...)
	}
	for _, t := range s.Tables {
		inSets, inRules := numbersIn(t.Rules)
		usedSets, usedRules = append(usedSets, inSets...), append(usedRules, inRules...)
	}
	for _, num := range distinct(usedSets) {
		sets[num] = model.SetID("@unnamed-" + strconv.Itoa(int(num)))
	}
	taken := map[model.SetID]bool{}
	for _, num := range slices.Sorted(maps.Keys(s.Sets)) {
		if id := model.SetID(s.Sets[num]); !taken[id] {
			sets[num], taken[id] = id, true
		} else {
			sets[num] = model.SetID("@unnamed-" + strconv.Itoa(int(num)))
		}
	}
	for _, num := range usedRules {
		if _, ok := rules[num]; !ok {
			rules[num] = "@unnamed-" + strconv.Itoa(int(num))
		}
	}
	return sets, rules
}

// placeholder stands for a rule of which nothing is known but its text. No real RuleID equals it.
func placeholder(num uint32, text string) model.RuleID {
	return model.RuleID{Tier: text, Index: int(num)}
}

// adoptTable takes over a table in the kernel. How its rows are numbered there does not matter, since it is never
// written to: the first new class makes another take its place.
func (c *Compiler) adoptTable(t SnapshotTable, names map[uint32]string) *program {
	p := &match.Program{Rules: t.Rules, IDs: make([]model.RuleID, len(t.Rules))}
	for i := range t.Rules {
		num := t.Rules[i].Id
		p.IDs[i] = model.RuleID{Direction: t.Direction}
		if text, ok := names[num]; ok {
			p.IDs[i] = placeholder(num, text)
			p.IDs[i].Direction = t.Direction
			c.oldRules[oldRule{text, t.Direction}] = num
		}
	}
	prog := &program{Program: p, direction: t.Direction, hash: hashRules(t.Direction, t.Rules), foreign: true}
	prog.sets, prog.rules = numbersIn(t.Rules)
	for _, num := range prog.sets {
		p.Sets = append(p.Sets, c.sets.Key(num))
	}
	if prog.table = table.Build(p, c.classes.All(), c.limits); prog.table == nil { // made when limits were others
		prog.table = table.Build(p, nil, table.Limits{Interpret: true})
	}
	prog.table.ID = t.ID
	c.lastID = max(c.lastID, t.ID)
	c.register(prog)
	return prog
}

// known returns the record of an endpoint that is new to the Compiler: that of the one found in the kernel with its
// interface, if there was one.
func (c *Compiler) known(id model.EndpointID, iface string) *endpoint {
	old, ok := c.ifaces[iface]
	if !ok {
		return &endpoint{id: id}
	}
	delete(c.ifaces, iface)
	e := c.endpoints[old]
	if e == nil || e.desired.policy != nil {
		return &endpoint{id: id}
	}
	delete(c.endpoints, old)
	delete(c.stale, old)
	as := *e.applied.policy
	as.ID = id
	e.id, e.applied.policy = id, &as
	return e
}

// keepOld is for the first plan: the addresses found in the kernel stay members of the sets that are about to go.
func (c *Compiler) keepOld() {
	if c.oldAddrs == nil {
		return
	}
	going := map[uint32]bool{}
	for num, u := range c.uses {
		if u.orphan {
			going[num] = true
		}
	}
	for _, p := range c.oldAddrs {
		c.classes.Keep(p, going)
	}
	c.oldAddrs = nil
	clear(c.oldRules)
	clear(c.ifaces)
}
