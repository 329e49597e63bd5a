package chains

// Dispatch is a tree from the numbers of slots to their chains, for one direction. A packet with another number falls off its end,
// and the chain that it returns to drops it. Not safe for concurrent use.
type Dispatch struct {
	tree  tree
	slots slotNames
}

// slotNames lead to the first chains of slots.
type slotNames struct{ names Names }

func (s slotNames) lead(number uint16) []line {
	return []line{{verdict: "-g " + s.names.slot(uint32(number))}}
}

// Direction names a tree of slots.
type Direction string

// The trees: of egress and of ingress slots.
const (
	EgressSlots  Direction = "eg"
	IngressSlots Direction = "in"
)

// NewDispatch makes the tree of a direction.
func NewDispatch(d Direction, o *Options) *Dispatch {
	return &Dispatch{tree{name: o.Names.Chain(string(d)), marks: o.Marks, bits: o.Shape.Bits}, slotNames{o.Names}}
}

// Name returns the name of the first chain.
func (d *Dispatch) Name() string { return d.tree.name }

// Chains returns all chains.
func (d *Dispatch) Chains() []Chain { return append([]Chain{d.first()}, d.tree.others(d.slots)...) }

func (d *Dispatch) first() Chain { return d.tree.first(nil, d.slots) }

// Add makes the tree lead to a slot. The Delta must be written together with the slot's chains or after them.
func (d *Dispatch) Add(number uint32) (Delta, error) {
	if err := d.tree.marks.check("slot", number); err != nil {
		return Delta{}, err
	}
	n := uint16(number)
	if _, ok := d.tree.get(n); ok {
		return Delta{}, nil
	}
	before := d.tree.now(n)
	d.tree.set(n, n)
	return d.since(before), nil
}

// Remove makes the tree lead to a slot no longer.
func (d *Dispatch) Remove(number uint32) Delta {
	if number > d.tree.marks.Most() {
		return Delta{}
	}
	n := uint16(number)
	if _, ok := d.tree.get(n); !ok {
		return Delta{}
	}
	before := d.tree.now(n)
	d.tree.remove(n)
	return d.since(before)
}

func (d *Dispatch) since(before past) Delta {
	set, gone := d.tree.since(before, d.slots)
	return Delta{Set: append([]Chain{d.first()}, set...), Gone: gone}
}
