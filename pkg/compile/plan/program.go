package plan

import (
	"fmt"
	"hash/maphash"
	"unsafe"

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

// newProgram makes a program of p, which it keeps. Its cost is not known yet.
func newProgram(d model.Direction, p *match.Program) *program {
	return &program{Program: p, direction: d, hash: hashRules(d, p.Rules), sets: match.SetNumbers(p.Rules), rules: match.RuleNumbers(p.Rules)}
}

// seed makes hashes of programs. They only narrow the search for an equal one, so that nothing depends on it.
var seed = maphash.MakeSeed()

// hashRules hashes the bytes of the rules: their type is the kernel's, all of whose bytes are in fields.
func hashRules(d model.Direction, rules []bpf.Rule) uint64 {
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(rules))), len(rules)*int(unsafe.Sizeof(bpf.Rule{})))
	return maphash.Bytes(seed, bytes) + uint64(d)
}

// isOpen reports whether a table of the program can be made.
func (prog *program) isOpen() bool { return prog.named == len(prog.IDs) && prog.open == len(prog.sets) }

// isUntouched reports whether nothing of the program was opened yet.
func (prog *program) isUntouched() bool { return prog.named == 0 && prog.open == 0 }

func tooComplex(prog *program) error {
	return fmt.Errorf("compile %s policy of %d rules and %d sets of addresses: %w", prog.direction, len(prog.Rules), len(prog.sets),
		ErrTooComplex)
}

// outgrown returns the error for a program that is limited.
func outgrown(prog *program) error {
	return fmt.Errorf("addresses in other combinations of its sets than it was made for are denied: %w", tooComplex(prog))
}
