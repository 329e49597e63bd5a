package chains

import (
	"fmt"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// Options are the parameters of all slots of one family.
type Options struct {
	Marks    Marks
	Names    Names
	Family   uint8 // 4 or 6
	Shape    Shape
	MaxRules int // bounds the rules of one slot; 0: the constant MaxRules
}

// MaxRules bounds the rules of one slot. Legacy iptables needs 0.3 s for a transaction of so many.
const MaxRules = 65_536

// TooLargeError reports that the chains of a policy would exceed a bound. Nothing was made.
type TooLargeError struct {
	What       string // the unit of the bound: "rules" or "entries to look at"
	Need, Most int    // Need: 0 if it was not counted to the end
}

func (e *TooLargeError) Error() string {
	if e.Need == 0 {
		return fmt.Sprintf("more than %d %s", e.Most, e.What)
	}
	return fmt.Sprintf("%d %s; at most %d are possible", e.Need, e.What, e.Most)
}

// Slot is the policy of one direction as chains of one family. It follows the classes of addresses: Set and Forget return the chains
// that change. It does not keep texts. Not safe for concurrent use.
type Slot struct {
	w    writer
	rows rows
	dir  model.Direction
	tree tree
	used map[uint16]*rowInfo // rows that have been computed
	// plain is the row of classes that are not in the tree: mostly that of addresses in no set. If it allows something, the tree has
	// number 0, which is no class's, and denies it.
	plain    uint16
	known    classSet
	size     int          // of the rows in use, in rules
	bases    map[int]bool // by number of a shared part: its chains have been returned
	baseSize int          // in rules
	profiles int          // the number of profiles whose chains have been returned
	fault    error        // see Err
}

// Err returns the error of a row that was readable when the slot was made and is not any more; nil: there is none. Such a row denies.
// The error stays; a new slot is needed.
func (s *Slot) Err() error { return s.fault }

// Delta are the chains that differ after a change. Chains that are gone are referred to by none that is left.
type Delta struct {
	Set  []Chain
	Gone []string
}

// NewSlot makes the slot with a number of a table. known are classes; those of the other family are left out.
func NewSlot(number uint32, t *table.Table, known []classes.Class, o *Options) (*Slot, error) {
	if err := o.Marks.check("slot", number); err != nil {
		return nil, err
	}
	if err := o.Shape.check(o.Marks); err != nil {
		return nil, err
	}
	s := &Slot{dir: t.Direction, used: map[uint16]*rowInfo{}, known: classSet{}, bases: map[int]bool{}}
	pro := &profiles{}
	s.w = writer{o: o, name: o.Names.Chain(fmt.Sprintf("s%d", number)), effects: newEffects(t.Program), pro: pro}
	if t.Interpreted() {
		s.w.source = slices.ContainsFunc(t.Program.Rules, func(r bpf.Rule) bool { return r.Nsports > 0 })
		s.rows = newProgramRows(t.Program, o.Family, s.w.effects, pro)
	} else {
		s.w.source = t.Slot.Flags&bpf.SlotSourcePorts != 0
		s.rows = newTableRows(t, o.Family, s.w.effects, pro)
	}
	s.tree = tree{name: s.w.name, marks: o.Marks, bits: o.Shape.Bits, lead: s.lead}
	return s, fill(s, known)
}

// Name returns the name of the slot's first chain.
func (s *Slot) Name() string { return s.w.name }
