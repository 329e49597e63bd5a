package table

import (
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/classes"
)

// addressIndex answers which entries hold for a class by their address conditions and family.
type addressIndex struct {
	rules  []bpf.Rule
	refers []uint32
	open   [2]bitmap // entries without In, by family: 4, 6
	in     [][]int32 // by index in refers: entries whose first In is that set
	notIn  [][]int32 // entries without In that have that set in NotIn
	now    bitmap    // the answer
}

// newAddressIndex makes breaks. If the builder is stopped, the index is of some of its entries.
func newAddressIndex(b *builder) *addressIndex {
	rules, refers, n := b.rules, b.t.refers, len(b.rules)
	x := &addressIndex{
		rules: rules, refers: refers,
		open:  [2]bitmap{newBitmap(n), newBitmap(n)},
		in:    make([][]int32, len(refers)),
		notIn: make([][]int32, len(refers)),
		now:   newBitmap(n),
	}
	for i := range rules {
		if i%256 == 255 && !b.spend(1024) {
			return x
		}
		r := &rules[i]
		if r.In[0] != 0 {
			s, _ := slices.BinarySearch(refers, r.In[0])
			x.in[s] = append(x.in[s], int32(i))
			continue
		}
		for f := range x.open {
			if r.Flags&familyFlags[f] != 0 {
				x.open[f].set(i)
			}
		}
		for _, number := range r.NotIn {
			if number != 0 {
				s, _ := slices.BinarySearch(refers, number)
				x.notIn[s] = append(x.notIn[s], int32(i))
			}
		}
	}
	return x
}

func familyFlag(family uint8) uint8 {
	if family == 4 {
		return bpf.RuleV4
	}
	return bpf.RuleV6
}

var familyFlags = [2]uint8{bpf.RuleV4, bpf.RuleV6}

// holding returns the entries that hold for the class. The result is valid until the next call.
func (x *addressIndex) holding(c classes.Class) bitmap {
	f := 0
	if c.Family == 6 {
		f = 1
	}
	copy(x.now, x.open[f])
	for _, number := range c.Sets {
		s, ok := slices.BinarySearch(x.refers, number)
		if !ok {
			continue
		}
		for _, i := range x.notIn[s] {
			x.now.clear(int(i))
		}
		for _, i := range x.in[s] {
			r := &x.rules[i]
			if r.Flags&familyFlags[f] != 0 && c.HasAll(r.In[1:]) && c.HasNone(r.NotIn[:]) {
				x.now.set(int(i))
			}
		}
	}
	return x.now
}
