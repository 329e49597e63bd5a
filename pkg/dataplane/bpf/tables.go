package bpf

import (
	"errors"
	"iter"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/compile/table"
)

// tables are the decision tables that are published in slots of the kernel.
type tables struct {
	kernel  *kernel
	slots   slots
	list    map[table.ID]published
	unused  []uint32 // slots to be released, once no entry in the kernel refers to them
	atOnce  uint64   // see comparedAtOnce
	classes []uint32 // space for those that addRows hands on
}

// published is a table in the kernel.
type published struct {
	slot    uint32
	program *match.Program // nil: an earlier agent's
	table   *table.Table   // with the rows that it has in the kernel, but for those that addRows is about to write; nil: an earlier agent's
	earlier *table.Table   // an earlier agent's as the compiler knows it, which learns what its rules are called from the policies; otherwise nil
	walked  bool           // rule by rule
}

// slots is the part of bpfmaps.Slots that is used here.
type slots interface {
	Publish(contents []bpfmaps.SlotContent) ([]uint32, error)
	WriteRows(slot uint32, classes []uint32, rows []bpf.CellBlock) error
	PatchRows(slot uint32, list []bpfmaps.Row) error
	EnlargeRows(slots []uint32, rows [][]bpf.CellBlock) error
	Classes(slot uint32) uint32
	Release(slot uint32) error
	Altered(m *bpfmaps.Maps, some []uint32, most uint64) (altered, left []uint32, err error)
	Repin() error
	Sum(slot uint32) (sum bpfmaps.Sum, known bool)
	Quiesce() <-chan error
	Usage() bpfmaps.SlotUsage
	Live() []uint32
	Close() error
}

func newTables(k *kernel) *tables {
	return &tables{kernel: k, list: map[table.ID]published{}, atOnce: comparedAtOnce}
}

// open opens the slots, those of a snapshot being in use, and notes which tables of it are short.
func (t *tables) open(s *plan.Snapshot) error {
	var inUse []uint32
	for _, table := range s.Tables {
		inUse = append(inUse, uint32(table.ID))
	}
	opened, err := t.kernel.maps.OpenSlots(inUse, classesOf(s))
	if err != nil {
		return err
	}
	for i := range s.Tables {
		s.Tables[i].Short = opened.Short(uint32(s.Tables[i].ID))
	}
	t.slots = opened
	return nil
}

// classesOf are the classes of a snapshot that addresses have and whose sets are known.
func classesOf(s *plan.Snapshot) []uint32 {
	had := map[uint32]bool{}
	for _, a := range s.Addrs {
		had[a.Class] = true
	}
	var ids []uint32
	for _, class := range s.Classes {
		if had[class.ID] {
			ids = append(ids, class.ID)
		}
	}
	return ids
}

// slot is that of a table; 0: it is not in the kernel.
func (t *tables) slot(id table.ID) uint32 { return t.list[id].slot }

// someOf reports whether one of the tables is in the kernel.
func (t *tables) someOf(list []*table.Table) bool {
	return slices.ContainsFunc(list, func(table *table.Table) bool { return t.slot(table.ID) != 0 })
}

// walked are the tables in the kernel that are walked rule by rule, in no order.
func (t *tables) walked() (ids []table.ID) {
	for id, p := range t.list {
		if p.walked {
			ids = append(ids, id)
		}
	}
	return ids
}

// toWalk are those of the tables that are not in the kernel and would be walked.
func (t *tables) toWalk(list []*table.Table) (ids []table.ID) {
	for _, table := range list {
		if table.Interpreted() && t.slot(table.ID) == 0 {
			ids = append(ids, table.ID)
		}
	}
	return ids
}

// refuse says the same of all tables.
func refuse(ids []table.ID, why error) map[table.ID]error {
	refused := map[table.ID]error{}
	for _, id := range ids {
		refused[id] = why
	}
	return refused
}

// publish publishes those of the tables that are not in the kernel. refused are those that the kernel did not take, rest
// has the errors of writes on which nothing depends. After an error none was tried.
func (t *tables) publish(list []*table.Table) (refused map[table.ID]error, rest, err error) {
	missing := slices.DeleteFunc(slices.Clone(list), func(table *table.Table) bool { return t.slot(table.ID) != 0 })
	if len(missing) == 0 {
		return nil, nil, nil
	}
	gen, err := t.kernel.gens.Next() // no flow is stamped with it, and each table has a slot of its own: all may have the same
	if err != nil {
		return nil, nil, err
	}
	var contents []bpfmaps.SlotContent
	for _, table := range missing {
		contents = append(contents, content(table, gen))
	}
	slots, err := t.slots.Publish(contents)
	for i, slot := range slots {
		if slot != 0 {
			t.list[missing[i].ID] = published{slot: slot, program: missing[i].Program, table: missing[i], walked: missing[i].Interpreted()}
		}
	}
	var failed *bpfmaps.Unpublished
	if !errors.As(err, &failed) {
		return nil, err, nil
	}
	refused = map[table.ID]error{}
	for i, cause := range failed.Causes {
		refused[missing[i].ID] = cause
	}
	return refused, nil, nil
}

func content(t *table.Table, gen uint32) bpfmaps.SlotContent {
	c := bpfmaps.SlotContent{Shape: t.Slot, Rules: t.Program.Rules}
	c.Shape.Classifier, c.Shape.Generation = uint32(t.ID), gen
	if !t.Interpreted() {
		c.L4, c.Rows, c.RowBlk, c.Cells, c.Outcomes = t.L4, t.Rows, t.RowBlk, t.Cells, t.Outcomes
	}
	return c
}

// enlarge makes room for rows in tables that are in the kernel.
func (t *tables) enlarge(list []*table.Table) error {
	var slots []uint32
	var rows [][]bpf.CellBlock
	for _, table := range list {
		slot := t.slot(table.ID)
		if slot != 0 && int(t.slots.Classes(slot)) < len(table.Rows)*len(table.Rows[0].Cell) {
			slots, rows = append(slots, slot), append(rows, table.Rows)
		}
	}
	if len(slots) == 0 {
		return nil
	}
	return t.slots.EnlargeRows(slots, rows)
}

// byTable are the changes of rows, those of each table together, in their order.
func byTable(changes []plan.RowChange) iter.Seq2[table.ID, []plan.RowChange] {
	return func(yield func(table.ID, []plan.RowChange) bool) {
		for rest := changes; len(rest) > 0; {
			n := 1
			for n < len(rest) && rest[n].Table == rest[0].Table {
				n++
			}
			if !yield(rest[0].Table, rest[:n]) {
				return
			}
			rest = rest[n:]
		}
	}
}

// addRows adds rows to a table, if it is in the kernel: it may have been refused, or lost, or may have none. bpfmaps.ErrNoRoom: it is as it
// was.
func (t *tables) addRows(id table.ID, changes []plan.RowChange) error {
	p := t.list[id]
	switch {
	case p.slot == 0 || p.walked:
		return nil
	case p.table == nil:
		rows := make([]bpfmaps.Row, len(changes))
		for i, c := range changes {
			rows[i] = bpfmaps.Row{Class: c.Class, Row: c.Row}
		}
		return t.slots.PatchRows(p.slot, rows)
	}
	t.classes = t.classes[:0]
	for _, c := range changes {
		t.classes = append(t.classes, c.Class)
	}
	return t.slots.WriteRows(p.slot, t.classes, p.table.Rows)
}

// lose forgets a table that is not as it should be. Its slot is released once no endpoint refers to it.
func (t *tables) lose(id table.ID) {
	if slot := t.slot(id); slot != 0 {
		t.unused = append(t.unused, slot)
	}
	delete(t.list, id)
}

// holders have entries in the kernel that refer to slots.
type holders interface{ hold(held map[uint32]bool) }

// release gives the slots of dropped tables back.
func (t *tables) release(dropped []table.ID, h holders) error {
	for _, id := range dropped {
		t.lose(id)
	}
	return t.releaseUnused(h)
}

// releaseUnused gives slots back, except those that an entry in the kernel still refers to, because its endpoint could
// not be written: these have another chance with the next plan.
func (t *tables) releaseUnused(h holders) error {
	if len(t.unused) == 0 {
		return nil
	}
	held := map[uint32]bool{}
	h.hold(held)
	var errs []error
	t.unused = slices.DeleteFunc(t.unused, func(slot uint32) bool {
		if held[slot] {
			return false
		}
		errs = append(errs, t.slots.Release(slot))
		return true
	})
	return errors.Join(errs...)
}

// altered are the tables in some slots that are not as they were published. left are the slots for which there was no time.
func (t *tables) altered(list []*table.Table, some []uint32) (altered []*table.Table, left []uint32, err error) {
	slots, left, err := t.slots.Altered(t.kernel.maps, some, t.atOnce)
	for _, table := range list {
		if slot := t.slot(table.ID); slot != 0 && slices.Contains(slots, slot) {
			altered = append(altered, table)
		}
	}
	return altered, left, err
}

// republish publishes a table that is in the kernel once more. Its old slot is released once no endpoint refers to it. The table may be
// published in spite of an error: its slot is not pinned then.
func (t *tables) republish(table *table.Table) (published bool, err error) {
	gen, err := t.kernel.gens.Next()
	if err != nil {
		return false, err
	}
	slots, err := t.slots.Publish([]bpfmaps.SlotContent{content(table, gen)})
	if len(slots) == 0 || slots[0] == 0 {
		return false, err
	}
	entry := t.list[table.ID]
	t.unused = append(t.unused, entry.slot)
	entry.slot = slots[0]
	t.list[table.ID] = entry
	return true, err
}
