package chains

import "fmt"

// Dispatch is a tree from the numbers of slots to their chains, for one direction. It drops what has another number.
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

// Name is the name of the first chain.
func (d *Dispatch) Name() string { return d.tree.name }

// Chains are all chains.
func (d *Dispatch) Chains() []Chain { return d.tree.chains(d.tree.root(), nil) }

// Add leads packets to a slot's chains, which must be there by then.
func (d *Dispatch) Add(number uint32) (Delta, error) {
	if err := d.tree.marks.check("slot", number); err != nil {
		return Delta{}, err
	}
	if _, ok := d.tree.get(uint16(number)); ok {
		return Delta{}, nil
	}
	return d.change(uint16(number), func() { d.tree.set(uint16(number), uint16(number)) }), nil
}

// Remove leads no packet to a slot any more.
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
