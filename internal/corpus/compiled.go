package corpus

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// Compiled is calc and compile as an Engine: every node of the cluster has a calculation graph and a compiler, whose
// plans are carried out on a map of everything that the kernel would hold. Packets are judged by that alone: the
// remote address's class by longest prefix, then the bound table.
type Compiled struct {
	// Interpret walks the match tables instead of looking up decision tables.
	Interpret bool
	// Wide gives every policy a wide table.
	Wide bool
	// Every update is flushed on its own, after InSync, instead of all at once.
	Stepwise bool

	nodeOf map[model.EndpointID]string
	nodes  map[string]*compiledNode
}

// Name implements Engine.
func (c *Compiled) Name() string {
	name := "tables"
	switch {
	case c.Interpret:
		name = "interpreter"
	case c.Wide:
		name = "wide-tables"
	}
	if c.Stepwise {
		name += "-stepwise"
	}
	return name
}

// Load implements Engine.
func (c *Compiled) Load(updates []model.Update) error {
	c.nodeOf, c.nodes = map[model.EndpointID]string{}, map[string]*compiledNode{}
	for _, u := range updates {
		switch u := u.(type) {
		case model.EndpointUpdate:
			if u.Endpoint != nil {
				c.nodes[u.Endpoint.Node] = c.newNode(u.Endpoint.Node)
			}
		case model.NodeUpdate:
			c.nodes[u.Name] = c.newNode(u.Name)
		}
	}
	if c.Stepwise {
		updates = append([]model.Update{model.InSync{}}, updates...)
	}
	return c.Change(updates)
}

// Change applies further updates to the loaded state. Endpoints that it adds are on nodes that Load has seen.
func (c *Compiled) Change(updates []model.Update) error {
	for _, u := range updates {
		if e, ok := u.(model.EndpointUpdate); ok {
			delete(c.nodeOf, e.ID)
			if e.Endpoint != nil {
				c.nodeOf[e.ID] = e.Endpoint.Node
			}
		}
	}
	size := len(updates)
	if c.Stepwise {
		size = 1
	}
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		n := c.nodes[name]
		for batch := range slices.Chunk(updates, max(1, size)) {
			n.graph.Apply(batch)
			if err := n.flush(); err != nil {
				return fmt.Errorf("node %q: %w", name, err)
			}
		}
	}
	return nil
}

// Finish flushes until no graph has more to say by itself: members that leave a set in the flush after one in which rules fail closed for them, for
// example. Until then packets may be judged by members of before.
func (c *Compiled) Finish() error {
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		for n := c.nodes[name]; n.graph.HasMore() || len(n.graph.Turning()) > 0; {
			if err := n.flush(); err != nil {
				return fmt.Errorf("node %q: %w", name, err)
			}
		}
	}
	return nil
}

// Judge implements Engine.
func (c *Compiled) Judge(id model.EndpointID, dir model.Direction, pkt model.Packet) (model.Verdict, error) {
	return c.judge(id, dir, pkt, true)
}

// JudgeForwarded implements Engine.
func (c *Compiled) JudgeForwarded(id model.EndpointID, dir model.Direction, pkt model.Packet) (model.Verdict, error) {
	return c.judge(id, dir, pkt, false)
}

func (c *Compiled) judge(id model.EndpointID, dir model.Direction, pkt model.Packet, byNode bool) (model.Verdict, error) {
	n := c.nodes[c.nodeOf[id]]
	if n == nil {
		return model.Verdict{}, fmt.Errorf("endpoint %s is on no node", id)
	}
	b, ok := n.bindings[id]
	if !ok {
		return model.Verdict{}, fmt.Errorf("endpoint %s has no policy", id)
	}
	src, dst := n.lookup(pkt.Src), n.lookup(pkt.Dst)
	if own(b, src, pkt.Src) && own(b, dst, pkt.Dst) {
		return model.Verdict{Allow: true, By: model.RuleID{Point: model.AtSelf, Direction: dir}}, nil
	}
	remote, table := src, b.Ingress
	if dir == model.Egress {
		remote, table = dst, b.Egress
	} else if byNode && src.Flags&classes.AddrFlags(bpf.AddrHost) != 0 {
		return model.Verdict{Allow: true, By: model.RuleID{Point: model.AtHost, Direction: dir}}, nil
	}
	t := n.tables[table]
	if t == nil {
		return model.Verdict{}, fmt.Errorf("%s of %s is bound to table %d, which does not exist", dir, id, table)
	}
	if c.Interpret || t.Interpreted() {
		class, ok := n.classes[remote.Class]
		if !ok {
			return model.Verdict{}, fmt.Errorf("address entry %s has class %d, which does not exist", remote.Prefix, remote.Class)
		}
		return t.Program.Verdict(t.Program.Interpret(class, pkt)), nil
	}
	return t.Program.Verdict(t.Eval(remote.Class, pkt)), nil
}

func own(b plan.Binding, entry classes.AddrChange, addr netip.Addr) bool {
	return entry.Flags&classes.AddrFlags(bpf.AddrEndpoint) != 0 && slices.Contains(b.Endpoint.Addrs, addr)
}

// compiledNode is one node: its agent's pure half, and what the kernel holds.
type compiledNode struct {
	graph    *calc.Graph
	compiler *plan.Compiler

	addrs    map[netip.Prefix]classes.AddrChange
	classes  map[uint32]classes.Class
	tables   map[table.ID]*table.Table
	bindings map[model.EndpointID]plan.Binding
}

func (c *Compiled) newNode(name string) *compiledNode {
	return &compiledNode{
		graph:    calc.New(name),
		compiler: plan.New(plan.Options{Limits: table.Limits{Wide: c.Wide}}, nil),
		addrs:    map[netip.Prefix]classes.AddrChange{},
		classes: map[uint32]classes.Class{
			classes.None4: {ID: classes.None4, Family: 4},
			classes.None6: {ID: classes.None6, Family: 6},
		},
		tables:   map[table.ID]*table.Table{},
		bindings: map[model.EndpointID]plan.Binding{},
	}
}

// flush carries out what the graph says, in as many plans as that takes.
func (n *compiledNode) flush() error {
	plan := n.compiler.Update(n.graph.Flush())
	for {
		if err := n.carryOut(plan); err != nil || !plan.More {
			return err
		}
		plan = n.compiler.Update(model.Changes{InSync: true})
	}
}

// lookup returns the entry that the kernel would find for an address.
func (n *compiledNode) lookup(a netip.Addr) classes.AddrChange {
	for bits := a.BitLen(); bits >= 0; bits-- {
		if e, ok := n.addrs[netip.PrefixFrom(a, bits).Masked()]; ok {
			return e
		}
	}
	if a.Is4() {
		return classes.AddrChange{Class: classes.None4}
	}
	return classes.AddrChange{Class: classes.None6}
}

// carryOut does the plan's writes in their order. It keeps its own copy of what compilers go on to change, so that a
// row that a plan forgets is missing here too.
func (n *compiledNode) carryOut(p plan.Plan) error {
	for _, c := range p.Classes {
		n.classes[c.ID] = c
	}
	for _, t := range p.Tables {
		kept := *t
		kept.Rows = slices.Clone(t.Rows)
		n.tables[t.ID] = &kept
	}
	for _, t := range p.Enlarged {
		if kept := n.tables[t.ID]; kept != nil {
			kept.Rows = append(kept.Rows, make([]bpf.CellBlock, len(t.Rows)-len(kept.Rows))...)
		}
	}
	for _, r := range p.Rows {
		t := n.tables[r.Table]
		if t == nil || !t.SetRow(r.Class, r.Row) {
			return fmt.Errorf("the plan gives table %d a row for class %d, which it cannot have", r.Table, r.Class)
		}
	}
	n.bind(p.Grow)
	n.move(p.Addrs)
	n.bind(p.Bind)
	for _, id := range p.Unbind {
		delete(n.bindings, id)
	}
	for _, id := range p.DropTables {
		delete(n.tables, id)
	}
	n.move(p.LateAddrs)
	for _, id := range p.DropClasses {
		delete(n.classes, id)
	}
	return nil
}

func (n *compiledNode) bind(all []plan.Binding) {
	for _, b := range all {
		n.bindings[b.Endpoint.ID] = b
	}
}

func (n *compiledNode) move(all []classes.AddrChange) {
	for _, a := range all {
		if a.Gone {
			delete(n.addrs, a.Prefix)
			continue
		}
		n.addrs[a.Prefix] = a
	}
}
