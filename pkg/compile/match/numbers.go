package match

import (
	"math/bits"
	"slices"

	"github.com/margay-project/margay/bpf"
)

// SetNumbers returns the numbers of the sets in a match table, ascending, each once.
func SetNumbers(entries []bpf.Rule) []uint32 {
	var found distinct
	for i := range entries {
		r := &entries[i]
		for j := range r.In {
			found.add(r.In[j])
			found.add(r.NotIn[j])
		}
	}
	return found.ascending()
}

// DenyingSets returns the numbers of the sets in a match table that may deny their members something: if such a set lost a member, the table
// might allow more. They ascend, each once.
func DenyingSets(entries []bpf.Rule) []uint32 {
	var found distinct
	for i := range entries {
		r := &entries[i]
		for j := range r.In {
			if r.Action != bpf.RuleAllow && r.Action != bpf.RuleLog {
				found.add(r.In[j])
			}
			if r.Action != bpf.RuleDeny && r.Action != bpf.RuleLog {
				found.add(r.NotIn[j])
			}
		}
	}
	return found.ascending()
}

// RuleNumbers returns the numbers of the rules in a match table, ascending, each once, without 0.
func RuleNumbers(entries []bpf.Rule) []uint32 {
	var found distinct
	for i := range entries {
		found.add(entries[i].Id)
	}
	return found.ascending()
}

// mostInWords is the highest number that distinct keeps as a bit: more than policies of one node can have. Others are only
// in a damaged table of the kernel.
const mostInWords = 1 << 20

// distinct collects numbers, but not 0.
type distinct struct {
	words []uint64 // a bit for each number
	count int      // of bits that are set
	rest  []uint32 // numbers from mostInWords on, in the order of their mention
}

func (d *distinct) add(number uint32) {
	if number == 0 {
		return
	}
	if number >= mostInWords {
		d.rest = append(d.rest, number)
		return
	}
	at, bit := int(number/64), uint64(1)<<(number%64)
	if missing := at + 1 - len(d.words); missing > 0 {
		d.words = append(d.words, make([]uint64, missing)...)
	}
	if d.words[at]&bit == 0 {
		d.words[at] |= bit
		d.count++
	}
}

// ascending returns the numbers; nil: there are none.
func (d *distinct) ascending() []uint32 {
	if d.count+len(d.rest) == 0 {
		return nil
	}
	slices.Sort(d.rest)
	d.rest = slices.Compact(d.rest)
	all := make([]uint32, 0, d.count+len(d.rest))
	for at, word := range d.words {
		for ; word != 0; word &= word - 1 {
			all = append(all, uint32(at*64+bits.TrailingZeros64(word)))
		}
	}
	return append(all, d.rest...)
}
