package chains

import (
	"fmt"

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
	o      *Options
	top    []line // the first of the slot, if it has a tree
	rows   *rowChains
	layout *layout
}

// Err returns the error of a row that was readable when the slot was made and is not any more; nil: there is none. Such a row denies.
// The error stays; a new slot is needed.
func (s *Slot) Err() error { return s.rows.fault }

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
	r := newRowChains(o.Names.slot(number), t, o)
	s := &Slot{o: o, top: lookup(t.Direction, o), rows: r,
		layout: &layout{rows: r, tree: tree{name: r.name(), marks: o.Marks, bits: o.Shape.Bits}}}
	return s, s.fill(known)
}

// lookup returns the rules that replace the slot's number in the mark by the class of the other end. The number is cleared first: so
// it is 0 if the address has no entry, or if the chain with the lookup was flushed.
func lookup(d model.Direction, o *Options) []line {
	name := classIngress
	if d == model.Egress {
		name = classEgress
	}
	return []line{{verdict: fmt.Sprintf("-j MARK --set-xmark 0x0/%#x", o.Marks.number())}, {verdict: "-j " + o.Names.Chain(name)}}
}

// fill gives each class of the family its row.
func (s *Slot) fill(known []classes.Class) error {
	count := map[uint16]int{}
	var leaves []leafOf
	var none uint16 // the row of addresses without a class of their own
	for _, c := range known {
		if c.Family != s.o.Family {
			continue
		}
		if _, err := s.o.Marks.Class(c.ID); err != nil {
			return err
		}
		row := s.rows.of(c)
		if count[row]++; c.ID == classes.None4 || c.ID == classes.None6 {
			none = row
		}
		leaves = append(leaves, leafOf{numberOf(c.ID), row})
	}
	if err := s.rows.check(); err != nil {
		return err
	}
	for _, row := range sortedKeys(count) {
		if _, err := s.rows.info(row); err != nil {
			return err
		}
	}
	s.layout.fill(leaves, mostFrequent(count, none))
	return s.check(0)
}

// Name returns the name of the slot's first chain.
func (s *Slot) Name() string { return s.rows.name() }

// Rules returns an upper bound for the rules of the slot.
func (s *Slot) Rules() int { return s.layout.rules() + s.rows.shared() + 8 }

// check returns an error if the slot with some rules more is too large.
func (s *Slot) check(more int) error {
	most := s.o.MaxRules
	if most == 0 {
		most = MaxRules
	}
	if n := s.Rules() + more; n > most {
		return &TooLargeError{"rules", n, most}
	}
	return nil
}

// first returns the slot's first chain.
func (s *Slot) first() Chain { return s.layout.first(s.top) }

// Chains returns all chains of the slot. Packets enter the first one.
func (s *Slot) Chains() []Chain {
	s.rows.repeat()
	return append(append([]Chain{s.first()}, s.layout.chains()...), s.rows.common()...)
}
