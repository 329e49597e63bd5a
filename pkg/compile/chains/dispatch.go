package chains

import "fmt"

// Dispatch is a tree from the numbers of slots to their chains, for one direction. A packet with another number falls off its end,
// and the chain that it returns to drops it. Not safe for concurrent use.
type Dispatch struct{ tree tree }

// Direction names a tree of slots.
type Direction string

// The trees: of egress and of ingress slots.
const (
	EgressSlots  Direction = "eg"
	IngressSlots Direction = "in"
)

// NewDispatch makes the tree of a direction.
func NewDispatch(d Direction, o *Options) *Dispatch {
	names := o.Names
	lead := func(number uint16) []line { return []line{{verdict: "-g " + names.Chain(fmt.Sprintf("s%d", number))}} }
	return &Dispatch{tree{name: names.Chain(string(d)), marks: o.Marks, bits: o.Shape.Bits, lead: lead}}
}

// Name returns the name of the first chain.
func (d *Dispatch) Name() string { return d.tree.name }

// Chains returns all chains.
func (d *Dispatch) Chains() []Chain { return d.tree.chains(d.tree.root(), nil) }

// Add makes the tree lead to a slot. The Delta must be written together with the slot's chains or after them.
func (d *Dispatch) Add(number uint32) (Delta, error) {
	if err := d.tree.marks.check("slot", number); err != nil {
		return Delta{}, err
	}
	if _, ok := d.tree.get(uint16(number)); ok {
		return Delta{}, nil
	}
	return d.change(uint16(number), func() { d.tree.set(uint16(number), uint16(number)) }), nil
}

// Remove makes the tree lead to a slot no longer.
func (d *Dispatch) Remove(number uint32) Delta {
	if number > d.tree.marks.Most() {
		return Delta{}
	}
	if _, ok := d.tree.get(uint16(number)); !ok {
		return Delta{}
	}
	return d.change(uint16(number), func() { d.tree.remove(uint16(number)) })
}

func (d *Dispatch) change(number uint16, do func()) Delta {
	set, gone := d.tree.change(number, do)
	body, _ := d.tree.lines(d.tree.root())
	return Delta{Set: append([]Chain{d.tree.marks.made(d.tree.name, body)}, set...), Gone: gone}
}
