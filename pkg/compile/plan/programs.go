package plan

import (
	"hash/maphash"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// program is a Program and its table in the kernel; endpoint-directions with equal Programs share one.
type program struct {
	*match.Program
	direction model.Direction
	hash      uint64
	sets      []uint32 // the numbers of all sets in it, ascending
	rules     []uint32 // the numbers of all rules in it, ascending, without 0
	cost      Cost
	kept      int          // endpoint-directions that may go back to it; see Withhold
	before    *table.Table // in the kernel until the last plan put a larger table in its place
	short     error        // why that could not be done; nil: it could. Without a table: it has to be published again
	desired   int          // endpoint-directions that are to be judged by it
	named     int          // so many of its entries have the name of their rule in the kernel; then sets are opened
	open      int          // so many of its sets are open; a table is made when all are
	table     *table.Table // in the kernel; nil: not there yet
	limited   bool         // its table cannot be made again with what has come to be known since
	awaited   bool         // nobody wants it, but somebody is bound to it until what he wants is there
	foreign   bool         // found in the kernel: which row there is whose is not known
	gone      bool         // nobody wanted it at the end of a plan
}

// id is that of its table; 0 if that is not in the kernel.
func (prog *program) id() table.ID {
	if prog.table == nil {
		return 0
	}
	return prog.table.ID
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

// equal returns the program equal to p; nil if there is none. It may keep p.
func (c *Compiler) equal(d model.Direction, p *match.Program) *program {
	for _, old := range c.byHash[hashRules(d, p.Rules)] {
		if old.direction != d || !slices.Equal(old.Rules, p.Rules) {
			continue
		}
		if old.foreign && old.IDs[0].Point == 0 { // now it is known which rules these are
			old.Program = p
			old.table.Program = p
			c.sets.load(p, true)
			return old
		}
		if slices.Equal(old.IDs, p.IDs) {
			return old
		}
	}
	return nil
}

// newProgram makes a program of p, to which none is equal. It keeps p.
func (c *Compiler) newProgram(d model.Direction, p *match.Program) *program {
	prog := &program{Program: p, direction: d, hash: hashRules(d, p.Rules)}
	prog.sets, prog.rules = numbersIn(p.Rules)
	c.register(prog)
	c.sets.load(p, false)
	return prog
}

// register holds the numbers that a program uses, and lists it.
func (c *Compiler) register(prog *program) {
	prog.cost = costOf(prog.Program)
	c.sets.refer(prog.sets)
	for _, num := range prog.rules {
		c.rules.Hold(num)
	}
	c.programs = append(c.programs, prog)
	c.byHash[prog.hash] = append(c.byHash[prog.hash], prog)
}

// retire drops what a program held that nobody wants any more. Its sets are to be looked at, which hold their numbers.
func (c *Compiler) retire(prog *program) {
	prog.gone = true
	c.sets.unrefer(prog.sets)
	for _, num := range prog.rules {
		c.rules.Drop(num)
	}
	same := slices.DeleteFunc(c.byHash[prog.hash], func(p *program) bool { return p == prog })
	if len(same) == 0 {
		delete(c.byHash, prog.hash)
	} else {
		c.byHash[prog.hash] = same
	}
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
