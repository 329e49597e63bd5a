package dataplane

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile"
	"github.com/margay-project/margay/pkg/model"
)

// The steps of a plan that write maps. Each can be taken again after it failed halfway.

func (d *BPF) writeNames() error {
	for n, id := range d.plan.SetNames {
		d.sets[n] = id
		d.maps.SetNames.Set(n, bpfmaps.NewName(compile.NameText(string(id))))
	}
	for n, id := range d.plan.RuleNames {
		d.maps.RuleNames.Set(n, bpfmaps.NewName(compile.NameText(id.String())))
	}
	return errors.Join(d.maps.SetNames.Sync(), d.maps.RuleNames.Sync())
}

func (d *BPF) writeClasses() error {
	if len(d.plan.Classes) > 0 {
		if err := d.forgetClasses(true); err != nil {
			return err
		}
	}
	for _, c := range d.plan.Classes {
		for chunk, bits := range chunksOf(c.Sets) {
			d.maps.ClassSets.Set(bpf.ClassChunk{Class: c.ID, Chunk: chunk}, bits)
		}
	}
	return d.maps.ClassSets.Sync()
}

// chunksOf is the bitmap of set numbers as class_sets has it.
func chunksOf(sets []uint32) map[uint32]bpf.SetBits {
	chunks := map[uint32]bpf.SetBits{}
	for _, n := range sets {
		bits := chunks[n>>9]
		bits.Bits[n>>6&7] |= 1 << (n & 63)
		chunks[n>>9] = bits
	}
	return chunks
}

func (d *BPF) publish() error {
	var list []*compile.Table
	var contents []bpfmaps.SlotContent
	for _, t := range d.plan.Tables {
		if d.tables[t.ID].slot != 0 {
			continue
		}
		gen, err := d.gens.Next() // every flow judged by it has a later one
		if err != nil {
			return err
		}
		list = append(list, t)
		contents = append(contents, content(t, gen))
	}
	if len(list) == 0 {
		return nil
	}
	slots, err := d.slots.Publish(contents)
	for i, slot := range slots {
		if slot != 0 {
			d.tables[list[i].ID] = published{slot: slot, program: list[i].Program}
		}
	}
	return err
}

func content(t *compile.Table, gen uint32) bpfmaps.SlotContent {
	c := bpfmaps.SlotContent{Shape: t.Slot, Rules: t.Program.Rules}
	c.Shape.Classifier, c.Shape.Generation = uint32(t.ID), gen
	if !t.Interpreted() {
		c.L4, c.Rows, c.RowBlk, c.Cells, c.Outcomes = t.L4, t.Rows, t.RowBlk, t.Cells, t.Outcomes
	}
	return c
}

func (d *BPF) addRows() error {
	var errs []error
	for _, r := range d.plan.Rows {
		slot := d.tables[r.Table].slot
		if slot == 0 {
			errs = append(errs, fmt.Errorf("add row of class %d: table %d is not in the kernel", r.Class, r.Table))
			continue
		}
		errs = append(errs, d.slots.PatchRow(slot, r.Class, r.Row))
	}
	return errors.Join(errs...)
}

// writeAddrs writes changes in their order where it matters: a prefix inside another may only go once the other is what
// its addresses shall be. Changes of equal length and kind may be written together, and so may all if they are of single
// addresses only; then those that go make room for the others in a full map.
func (d *BPF) writeAddrs(changes []compile.AddrChange) error {
	nested := slices.ContainsFunc(changes, func(c compile.AddrChange) bool { return !c.Prefix.IsSingleIP() })
	for from := 0; from < len(changes); {
		to := from
		for to < len(changes) && (!nested ||
			changes[to].Prefix.Bits() == changes[from].Prefix.Bits() && changes[to].Gone == changes[from].Gone) {
			d.setAddr(changes[to])
			to++
		}
		if err := d.syncAddrs(); err != nil {
			return err
		}
		from = to
	}
	return d.syncAddrs() // what an earlier attempt left
}

// writeLeft writes what failed attempts have left, and what is to be repaired.
func (d *BPF) writeLeft() error {
	var errs []error
	for _, t := range d.allTables() {
		if t.Pending() > 0 {
			errs = append(errs, t.Sync())
		}
	}
	return errors.Join(errs...)
}

func (d *BPF) syncAddrs() error {
	return errors.Join(d.maps.IP4Host.Sync(), d.maps.IP6Host.Sync(), d.maps.IP4Net.Sync(), d.maps.IP6Net.Sync())
}

// setAddr records what an address shall be. Of an endpoint's own address it remembers whose it is: the interface may
// come later, or come again under another number.
func (d *BPF) setAddr(c compile.AddrChange) {
	if was, ok := d.owners[c.Prefix]; ok && (c.Gone || was.Endpoint != c.Endpoint) {
		delete(d.owners, c.Prefix)
	}
	info := bpf.AddrInfo{Class: c.Class, Flags: uint32(c.Flags)}
	if info.Flags&bpf.AddrEndpoint != 0 {
		d.owners[c.Prefix] = c
		info.Ifindex = d.ifindexOf(c.Endpoint)
	}
	if c.Gone {
		d.deleteAddr(c.Prefix)
		return
	}
	addr := c.Prefix.Addr()
	switch {
	case addr.Is4() && c.Prefix.IsSingleIP():
		d.maps.IP4Host.Set(bpfmaps.IP4(addr), info)
	case addr.Is4():
		d.maps.IP4Net.Set(bpfmaps.Net4(c.Prefix), info)
	case c.Prefix.IsSingleIP():
		d.maps.IP6Host.Set(bpfmaps.IP6(addr), info)
	default:
		d.maps.IP6Net.Set(bpfmaps.Net6(c.Prefix), info)
	}
}

// ifindexOf is the interface an endpoint is programmed on, also if an earlier agent did it and this one is about to take
// the endpoint over; 0: none.
func (d *BPF) ifindexOf(id model.EndpointID) uint32 {
	if ep := d.bound[id]; ep != nil {
		return ep.ifindex
	}
	for _, b := range d.plan.Bind {
		if b.Endpoint.ID != id {
			continue
		}
		if old, ok := d.adopted[b.Endpoint.Iface]; ok && d.bound[old] != nil {
			return d.bound[old].ifindex
		}
	}
	return 0
}

func (d *BPF) deleteAddr(p netip.Prefix) {
	addr := p.Addr()
	switch {
	case addr.Is4() && p.IsSingleIP():
		d.maps.IP4Host.Delete(bpfmaps.IP4(addr))
	case addr.Is4():
		d.maps.IP4Net.Delete(bpfmaps.Net4(p))
	case p.IsSingleIP():
		d.maps.IP6Host.Delete(bpfmaps.IP6(addr))
	default:
		d.maps.IP6Net.Delete(bpfmaps.Net6(p))
	}
}

// release gives the slots of dropped tables back.
func (d *BPF) release() error {
	for _, id := range d.plan.DropTables {
		if slot := d.tables[id].slot; slot != 0 {
			d.unused = append(d.unused, slot)
			delete(d.tables, id)
		}
	}
	return d.releaseUnused()
}

// releaseUnused gives slots back, except those that an entry in the kernel still refers to, because its endpoint could
// not be written: these have another chance with the next plan.
func (d *BPF) releaseUnused() error {
	if len(d.unused) == 0 {
		return nil
	}
	held := map[uint32]bool{}
	for _, e := range d.endpoints.List() {
		for _, word := range []uint64{e.Ingress, e.Egress} {
			slot, _ := bpfmaps.SplitPolicyWord(word)
			held[slot] = true
		}
	}
	var errs []error
	d.unused = slices.DeleteFunc(d.unused, func(slot uint32) bool {
		if held[slot] {
			return false
		}
		errs = append(errs, d.slots.Release(slot))
		return true
	})
	return errors.Join(errs...)
}

func (d *BPF) drop() error {
	for _, c := range d.plan.DropClasses {
		d.retired[c] = true
	}
	if len(d.plan.DropClasses) > 0 {
		d.quiet = d.slots.Quiesce()
	}
	return errors.Join(d.forgetClasses(false), d.dropNames())
}

// forgetClasses removes what the kernel knows of dropped classes, once no packet can still be at work with one of them:
// it looked the class up before its address changed. Until then, with wait, no class may be made, since it might get
// the number of a dropped one.
func (d *BPF) forgetClasses(wait bool) error {
	if d.quiet == nil {
		return nil
	}
	if !wait {
		select {
		case err := <-d.quiet:
			return d.forgotten(err)
		default:
			return nil
		}
	}
	return d.forgotten(<-d.quiet)
}

func (d *BPF) forgotten(err error) error {
	if d.quiet = nil; err != nil {
		d.quiet = d.slots.Quiesce() // the next attempt waits anew
		return fmt.Errorf("wait for packets to leave: %w", err)
	}
	var keys []bpf.ClassChunk
	for key := range d.maps.ClassSets.All() {
		if d.retired[key.Class] {
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		d.maps.ClassSets.Delete(key)
	}
	clear(d.retired)
	return d.maps.ClassSets.Sync()
}

func (d *BPF) dropNames() error {
	for _, n := range d.plan.DropSets {
		delete(d.sets, n)
		d.maps.SetNames.Delete(n)
	}
	for _, n := range d.plan.DropRules {
		d.maps.RuleNames.Delete(n)
	}
	return errors.Join(d.maps.SetNames.Sync(), d.maps.RuleNames.Sync(), d.maps.ZeroRuleStats(d.plan.DropRules))
}

// bind gives endpoints the tables the plan says. A direction with another table gets a new generation, so that its live
// flows are judged again.
func (d *BPF) bind() error {
	for _, b := range d.plan.Bind {
		ep := d.endpointOf(b.Endpoint)
		ep.policy = b.Endpoint
		for dir, table := range [2]compile.TableID{b.Ingress, b.Egress} {
			if ep.tables[dir] == table && ep.gens[dir] != 0 && !ep.unasked {
				continue
			}
			gen, err := d.gens.Next()
			if err != nil {
				return err
			}
			ep.tables[dir], ep.gens[dir] = table, gen
		}
		ep.unasked = false
		d.dirty[b.Endpoint.ID] = true
	}
	return d.update()
}

// endpointOf is the record of an endpoint: its own, that of the interface an earlier agent programmed, or a new one.
func (d *BPF) endpointOf(p *model.EndpointPolicy) *endpoint {
	if ep := d.bound[p.ID]; ep != nil {
		return ep
	}
	old, ok := d.adopted[p.Iface]
	ep := d.bound[old]
	if ok && ep != nil {
		delete(d.bound, old)
	} else {
		d.numbers++
		ep = &endpoint{number: d.numbers}
	}
	delete(d.adopted, p.Iface)
	d.bound[p.ID] = ep
	return ep
}

// grow binds endpoints to tables with the same policy and more rows. Their flows need no new judgement.
func (d *BPF) grow() error {
	var errs []error
	for _, b := range d.plan.Grow {
		ep := d.endpointOf(b.Endpoint)
		ep.tables = [2]compile.TableID{b.Ingress, b.Egress}
		errs = append(errs, d.flip(ep))
	}
	return errors.Join(errs...)
}

// announce notes in the kernel that addresses are about to move which live flows were allowed for. Should this agent
// die before they are judged again, the next one has all of them judged again.
func (d *BPF) announce() error {
	if len(d.plan.Rejudge) == 0 {
		return nil
	}
	return d.gens.Announce()
}

func (d *BPF) rejudge() error {
	var errs []error
	for _, j := range d.plan.Rejudge {
		ep := d.bound[j.Endpoint]
		if ep == nil {
			continue
		}
		gen, err := d.gens.Next()
		if err != nil {
			return err
		}
		ep.gens[j.Direction] = gen
		errs = append(errs, d.flip(ep))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return d.gens.Done()
}

func (d *BPF) unbind() error {
	var errs []error
	for _, id := range d.plan.Unbind {
		ep := d.bound[id]
		if ep == nil {
			continue
		}
		if err := d.withdraw(ep); err != nil {
			errs = append(errs, fmt.Errorf("endpoint %s: %w", id, err))
			continue
		}
		delete(d.bound, id)
		delete(d.dirty, id)
	}
	return errors.Join(errs...)
}

// words are the endpoint's two policy words; not ok while one of its tables is not in the kernel.
func (d *BPF) words(ep *endpoint) (words [2]uint64, ok bool) {
	for dir := range words {
		slot := d.tables[ep.tables[dir]].slot
		if slot == 0 || ep.gens[dir] == 0 {
			return words, false
		}
		words[dir] = bpfmaps.PolicyWord(slot, ep.gens[dir])
	}
	return words, true
}
