package plan

import (
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

// program is a Program and its table in the kernel; endpoint-directions with equal Programs share one.
type program struct {
	*match.Program
	published
	direction model.Direction
	hash      uint64
	sets      []uint32 // the numbers of all sets in it, ascending
	rules     []uint32 // the numbers of all rules in it, ascending, without 0
	cost      Cost
	desired   int     // endpoint-directions whose desired program it is
	kept      int     // endpoint-directions that may go back to it; see Withhold
	awaited   bool    // no endpoint desires it, but one stays bound to it until that endpoint's desired program is there
	gone      bool    // it was dropped at the end of a plan
	named     int     // so many of its entries have the name of their rule in the kernel; then sets are opened
	open      int     // so many of its sets are open; a table is made when all are
	making    *making // nil: it has not begun, or is done
}

// seed makes hashes of programs. They only narrow the search for an equal one, so that nothing depends on it.
var seed = maphash.MakeSeed()

func hashRules(d model.Direction, rules []bpf.Rule) uint64 {
	h := uint64(d) + 1
	for i := range rules {
		h = h*0x9e3779b97f4a7c15 ^ maphash.Comparable(seed, rules[i])
		h ^= h >> 29
	}
	return h
}

// numbersIn returns the numbers of the sets and rules in a match table.
func numbersIn(entries []bpf.Rule) (sets, rules []uint32) {
	for i := range entries {
		r := &entries[i]
		sets = append(append(sets, r.In[:]...), r.NotIn[:]...)
		rules = append(rules, r.Id)
	}
	return distinct(sets), distinct(rules)
}

// distinct sorts numbers and removes 0 and duplicates.
func distinct(nums []uint32) []uint32 {
	slices.Sort(nums)
	nums = slices.Compact(nums)
	if len(nums) > 0 && nums[0] == 0 {
		nums = nums[1:]
	}
	return slices.Clip(nums)
}

// isOpen reports whether a table of the program can be made.
func (prog *program) isOpen() bool { return prog.named == len(prog.IDs) && prog.open == len(prog.sets) }

func tooComplex(prog *program) error {
	return fmt.Errorf("compile %s policy of %d rules and %d sets of addresses: %w", prog.direction, len(prog.Rules), len(prog.sets),
		ErrTooComplex)
}

// outgrown returns the error for a program that is limited.
func outgrown(prog *program) error {
	return fmt.Errorf("addresses in other combinations of its sets than it was made for are denied: %w", tooComplex(prog))
}
