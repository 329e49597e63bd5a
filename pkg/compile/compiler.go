package compile

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// Options are what can be chosen about a Compiler.
type Options struct {
	Limits Limits // of every table
}

// Compiler keeps the desired state of all local endpoints and sets, and what the kernel has of it, and turns the
// difference into Plans. It takes for granted that each Plan is carried out completely before the next. Not safe for
// concurrent use; the Tables it hands out change with the Plans that follow (Table.SetRow).
type Compiler struct {
	limits  Limits
	inSync  bool
	classes *Classes

	sets *numbering[model.SetID]
	uses map[uint32]*setUse // by set number
	// May have lost their last reference, or their last definition, since the last plan.
	review []uint32

	rules    *numbering[model.RuleID]
	oldRules map[oldRule]uint32 // found in the kernel at the start; numbers of rules not asked for yet
	oldAddrs []netip.Prefix     // found in the kernel at the start, not looked at yet

	endpoints map[model.EndpointID]*endpoint
	stale     map[model.EndpointID]bool // their programs may have to change
	claims    map[netip.Prefix][]model.EndpointID
	ifaces    map[string]model.EndpointID // of endpoints found in the kernel, whose ids may be stand-ins
	folds     map[*model.DirectionPolicy]*fold
	failed    map[EndpointDirection]error

	hosts, newHosts []netip.Prefix // this node's addresses as told by the dataplane

	programs []*program // in order of creation; those nobody wants go at the end of each plan
	byHash   map[uint64][]*program
	lastID   TableID
	// Since the last plan: sets that programs started to refer to, and names of rules that got a number.
	show      []uint32
	load      []uint32 // those whose members are in nets
	nets      map[uint32][]netip.Prefix
	ruleNames map[uint32]model.RuleID
}

// setUse says who needs a set.
type setUse struct {
	defined bool // Changes announced it and did not take it back
	orphan  bool // it was defined once, and has members still
	loaded  bool // its members are those of a Program's NetSets
	named   bool // the kernel has its name, and classes tell its members apart
	refs    int  // programs
}

// endpoint is one local endpoint.
type endpoint struct {
	id     model.EndpointID
	policy *model.EndpointPolicy // as it shall be; nil: it left
	folds  [2]*fold              // by direction; nil if policy is
	want   [2]*program           // nil if policy is, or if it could not be compiled and never could
	as     *model.EndpointPolicy // as it is in the kernel; nil: not there
	bound  [2]*program           // what judges it; nil if as is
}

func (e *endpoint) directionPolicy(d model.Direction) *model.DirectionPolicy {
	if d == model.Ingress {
		return e.policy.Ingress
	}
	return e.policy.Egress
}

// New returns a Compiler that goes on from what a kernel has already; from nil: from an empty one.
func New(o Options, from *Snapshot) *Compiler {
	c := &Compiler{
		limits:    o.Limits,
		classes:   NewClasses(),
		sets:      newNumbering[model.SetID](1<<31 - 1),
		uses:      map[uint32]*setUse{},
		rules:     newNumbering[model.RuleID](65535),
		oldRules:  map[oldRule]uint32{},
		endpoints: map[model.EndpointID]*endpoint{},
		stale:     map[model.EndpointID]bool{},
		claims:    map[netip.Prefix][]model.EndpointID{},
		ifaces:    map[string]model.EndpointID{},
		folds:     map[*model.DirectionPolicy]*fold{},
		failed:    map[EndpointDirection]error{},
		byHash:    map[uint64][]*program{},
		nets:      map[uint32][]netip.Prefix{},
		ruleNames: map[uint32]model.RuleID{},
	}
	if from != nil {
		c.adopt(from)
	}
	return c
}

// HostAddrs tells this node's own addresses, all of them; they are marked with the next Update, beside those in
// model.SetNodeAddrs.
func (c *Compiler) HostAddrs(addrs []netip.Addr) {
	c.newHosts = nil
	for _, a := range addrs {
		a = a.Unmap().WithZone("")
		c.newHosts = append(c.newHosts, netip.PrefixFrom(a, a.BitLen()))
	}
}

// Update takes changes in and returns the kernel writes they ask for. Until changes are in sync it only collects them,
// and the Plan is empty.
func (c *Compiler) Update(ch model.Changes) Plan {
	c.sets.reuse()
	c.rules.reuse()
	c.classes.Reuse()
	for _, id := range slices.Sorted(maps.Keys(ch.Sets)) {
		c.updateSet(id, ch.Sets[id])
	}
	for _, id := range slices.SortedFunc(maps.Keys(ch.Endpoints), model.EndpointID.Compare) {
		c.updateEndpoint(id, ch.Endpoints[id])
	}
	c.updateHosts()
	c.inSync = c.inSync || ch.InSync
	if !c.inSync {
		return Plan{}
	}
	return c.plan()
}

func (c *Compiler) updateSet(id model.SetID, change *model.SetChange) {
	switch id {
	case model.SetServiceAddrs:
		c.updateMarks(markService, change)
		return
	case model.SetNodeAddrs:
		c.updateMarks(markNode, change)
		return
	}
	num := c.setNumber(id)
	u := c.use(num)
	if change == nil {
		if u.defined {
			u.defined, u.orphan = false, true
			c.review = append(c.review, num)
		}
		return
	}
	switch {
	case u.orphan: // defined anew: all of its members are to come
		u.defined, u.orphan = true, false
		c.classes.Empty(num)
		c.staleAll()
	case !u.defined:
		u.defined = true
		c.sets.hold(num)
	}
	for _, p := range change.Removed {
		c.classes.Remove(p, num)
	}
	for _, p := range change.Added {
		c.classes.Add(p, num)
	}
}

// updateMarks applies a change of a set that no rule refers to.
func (c *Compiler) updateMarks(m marks, change *model.SetChange) {
	if change == nil {
		c.classes.clear(m)
		return
	}
	for _, p := range change.Removed {
		c.classes.mark(p, m, false)
	}
	for _, p := range change.Added {
		c.classes.mark(p, m, true)
	}
}

func (c *Compiler) updateHosts() {
	for _, p := range c.hosts {
		if !slices.Contains(c.newHosts, p) {
			c.classes.mark(p, markHost, false)
		}
	}
	for _, p := range c.newHosts {
		if !slices.Contains(c.hosts, p) {
			c.classes.mark(p, markHost, true)
		}
	}
	c.hosts = c.newHosts
}

func (c *Compiler) updateEndpoint(id model.EndpointID, policy *model.EndpointPolicy) {
	e := c.endpoints[id]
	if e == nil {
		if policy == nil {
			return
		}
		e = c.known(id, policy.Iface)
		c.endpoints[id] = e
	}
	was := e.policy
	e.policy = policy
	c.stale[id] = true
	for d := range e.folds {
		old := e.folds[d]
		e.folds[d] = nil
		if policy != nil {
			e.folds[d] = c.fold(e.directionPolicy(model.Direction(d)))
		}
		c.unfold(old)
	}
	c.claim(e, was)
}

// claim gives the endpoint its addresses. If several endpoints claim one address, the first by id has it.
func (c *Compiler) claim(e *endpoint, was *model.EndpointPolicy) {
	var old, now []netip.Prefix
	if was != nil {
		old = singles(was.Addrs)
	}
	if e.policy != nil {
		now = singles(e.policy.Addrs)
	}
	if was != nil && e.policy != nil && was.Iface == e.policy.Iface && slices.Equal(old, now) {
		return
	}
	for _, p := range slices.Compact(slices.SortedFunc(slices.Values(slices.Concat(old, now)), netip.Prefix.Compare)) {
		var first model.EndpointID
		ids := c.claims[p]
		if len(ids) > 0 {
			first = ids[0]
		}
		ids = slices.DeleteFunc(ids, func(id model.EndpointID) bool { return id == e.id })
		if slices.Contains(now, p) {
			ids = append(ids, e.id)
			slices.SortFunc(ids, model.EndpointID.Compare)
		}
		switch {
		case len(ids) == 0:
			delete(c.claims, p)
			c.classes.Disown(p)
			continue
		case ids[0] != first || first == e.id:
			c.classes.Own(p, ids[0])
		}
		c.claims[p] = ids
	}
}

func singles(addrs []netip.Addr) []netip.Prefix {
	var all []netip.Prefix
	for _, a := range addrs {
		all = append(all, netip.PrefixFrom(a, a.BitLen()))
	}
	return all
}

func (c *Compiler) use(num uint32) *setUse {
	u := c.uses[num]
	if u == nil {
		u = &setUse{}
		c.uses[num] = u
	}
	return u
}

// staleAll makes the next plan look at every endpoint.
func (c *Compiler) staleAll() {
	for id := range c.endpoints {
		c.stale[id] = true
	}
}

// staleLocal makes it look at the endpoints whose own addresses have joined or left sets.
func (c *Compiler) staleLocal() {
	some, all := c.classes.Local()
	if all {
		c.staleAll()
		return
	}
	for _, p := range some {
		for _, id := range c.claims[p] {
			c.stale[id] = true
		}
	}
}

// retarget finds out which programs the stale endpoints shall have, and returns those endpoints by id.
func (c *Compiler) retarget() []*endpoint {
	c.staleLocal()
	var all []*endpoint
	for id := range c.stale {
		all = append(all, c.endpoints[id])
	}
	clear(c.stale)
	slices.SortFunc(all, func(a, b *endpoint) int { return cmp.Or(a.id.Compare(b.id)) })
	for _, e := range all {
		c.target(e)
	}
	return all
}

func (c *Compiler) target(e *endpoint) {
	var want [2]*program
	l := c.localOf(e.policy)
	for d := range want {
		at := EndpointDirection{e.id, model.Direction(d)}
		delete(c.failed, at)
		if e.policy == nil {
			continue
		}
		prog, err := c.expand(e.folds[d], l)
		if err != nil {
			c.failed[at] = err
			prog = e.bound[d] // keep what was enforced, or nothing
		}
		want[d] = prog
	}
	if want[0] == nil || want[1] == nil {
		want = [2]*program{}
	}
	for d, prog := range want {
		if prog != nil {
			prog.want++
		}
		if old := e.want[d]; old != nil {
			old.want--
		}
		e.want[d] = prog
	}
}
