package dataplane

import (
	"errors"
	"fmt"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile"
	"github.com/margay-project/margay/pkg/model"
)

// The steps of a plan that write maps. Each can be taken again after it failed halfway.

func (d *BPF) writeNames() error {
	d.names.add(d.plan.SetNames, d.plan.RuleNames)
	return nil
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
	// A class that cannot be written has no address; see writeGroup. writeLeft tells of it.
	_ = d.maps.ClassSets.Sync()
	return nil
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
	if refused := d.compiler.TooLarge(d.plan); len(refused) > 0 && !d.published() {
		d.withhold(refused)
	}
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
	var failed *bpfmaps.Unpublished
	if errors.As(err, &failed) {
		causes := map[compile.TableID]error{}
		for i, cause := range failed.Causes {
			causes[list[i].ID] = cause
		}
		d.withhold(causes)
	} else if err != nil {
		d.out.rest = append(d.out.rest, err)
	}
	return nil
}

// published reports whether an earlier attempt at this step got as far as to publish something: then the tables of the
// plan have been looked at.
func (d *BPF) published() bool {
	return slices.ContainsFunc(d.plan.Tables, func(t *compile.Table) bool { return d.tables[t.ID].slot != 0 })
}

func content(t *compile.Table, gen uint32) bpfmaps.SlotContent {
	c := bpfmaps.SlotContent{Shape: t.Slot, Rules: t.Program.Rules}
	c.Shape.Classifier, c.Shape.Generation = uint32(t.ID), gen
	if !t.Interpreted() {
		c.L4, c.Rows, c.RowBlk, c.Cells, c.Outcomes = t.L4, t.Rows, t.RowBlk, t.Cells, t.Outcomes
	}
	return c
}

// enlarge makes room for rows in tables that are in the kernel.
func (d *BPF) enlarge() error {
	var slots []uint32
	var rows [][]bpf.CellBlock
	for _, t := range d.plan.Enlarged {
		slot := d.tables[t.ID].slot
		if slot != 0 && int(d.slots.Classes(slot)) < len(t.Rows)*len(t.Rows[0].Cell) {
			slots, rows = append(slots, slot), append(rows, t.Rows)
		}
	}
	if len(slots) > 0 {
		if err := d.slots.EnlargeRows(slots, rows); err != nil { // rows there is no room for are left out, see addRows
			d.out.rest = append(d.out.rest, err)
		}
	}
	return nil
}

func (d *BPF) addRows() error {
	var errs []error
	for rows := d.plan.Rows; len(rows) > 0; {
		table := rows[0].Table
		var list []bpfmaps.Row
		for len(rows) > 0 && rows[0].Table == table {
			list = append(list, bpfmaps.Row{Class: rows[0].Class, Row: rows[0].Row})
			rows = rows[1:]
		}
		slot := d.tables[table].slot
		if slot == 0 {
			continue // it could not be published, or a row of it could not be written
		}
		err := d.slots.PatchRows(slot, list)
		if errors.Is(err, bpfmaps.ErrNoRoom) {
			d.cramped(table, err)
		} else if err != nil {
			errs = append(errs, d.lose(table, err))
		}
	}
	return errors.Join(errs...)
}

// bind gives endpoints the tables the plan says. A direction with another table, or of an endpoint with other addresses,
// gets a new generation, so that its live flows are judged again.
func (d *BPF) bind() error {
	for _, b := range d.plan.Bind {
		ep := d.endpointOf(b.Endpoint)
		moved := d.readdressed(ep, b.Endpoint)
		ep.policy = b.Endpoint
		for dir, table := range [2]compile.TableID{b.Ingress, b.Egress} {
			if ep.tables[dir] == table && ep.gens[dir] != 0 && !ep.unasked && !moved {
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

// readdressed reports whether an endpoint that is in the kernel is about to get other addresses than it has there.
func (d *BPF) readdressed(ep *endpoint, now *model.EndpointPolicy) bool {
	was, ok := d.endpoints.Get(ep.ifindex)
	if !ok || ep.ifindex == 0 {
		return false
	}
	if ep.policy != nil && !slices.Equal(ep.policy.Addrs, now.Addrs) {
		return true
	}
	var want bpf.Endpoint
	addrsOf(now, &want)
	return was.Addr4 != want.Addr4 || was.Addr6 != want.Addr6
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
		errs = append(errs, d.flipOrShut(ep))
		if ep.ifindex == 0 {
			d.dirty[b.Endpoint.ID] = true // it may have been closed for want of this table
		}
	}
	return errors.Join(errs...)
}

func (d *BPF) flipOrShut(ep *endpoint) error {
	if err := d.flip(ep); err != nil {
		return d.shut(ep, err)
	}
	return nil
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
		errs = append(errs, d.flipOrShut(ep))
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
