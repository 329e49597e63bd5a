package chains

import (
	"fmt"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/table"
)

// rowChains are the chains of a slot's rows, and those that rows share. It keeps sizes, and makes texts when they are wanted. It does
// not know which rows are in use.
type rowChains struct {
	w        writer
	rows     rows
	read     map[uint16]*rowInfo
	bases    map[int]bool // by number of a shared part: its chains have been returned
	baseSize int          // in rules
	profiles int          // the number of profiles whose chains have been returned
	fault    error        // see Slot.Err
}

// rowInfo has the properties of a row that are kept without its text.
type rowInfo struct {
	to      target // of all packets, if uniform
	uniform bool
	denies  bool // all packets
	short   int  // the number of lines that can replace its chains; 0: they cannot
	size    int  // in rules
}

// newRowChains returns the chains of the rows of a table.
func newRowChains(name string, t *table.Table, o *Options) *rowChains {
	w := writer{o: o, name: name, effects: newEffects(t.Program), pro: &profiles{}}
	var list rows
	if t.Interpreted() {
		w.source = slices.ContainsFunc(t.Program.Rules, func(r bpf.Rule) bool { return r.Nsports > 0 })
		list = newProgramRows(t.Program, o.Family, w.effects, w.pro)
	} else {
		w.source = t.Slot.Flags&bpf.SlotSourcePorts != 0
		list = newTableRows(t, o.Family, w.effects, w.pro)
	}
	return &rowChains{w: w, rows: list, read: map[uint16]*rowInfo{}, bases: map[int]bool{}}
}

// name returns the name of the slot's first chain, with which those of all others begin.
func (r *rowChains) name() string { return r.w.name }

// known returns the rowInfo of a row that info has read.
func (r *rowChains) known(row uint16) *rowInfo { return r.read[row] }

// of returns the row of a class.
func (r *rowChains) of(c classes.Class) uint16 { return r.rows.of(c) }

// check returns an error if row 0 does not deny: packets from addresses without a class have it.
func (r *rowChains) check() error {
	i, err := r.info(0)
	if err != nil {
		return err
	}
	if !i.denies {
		return fmt.Errorf("make the chains of %s: row 0 of its table, for addresses without a class, does not deny", r.w.name)
	}
	return nil
}

// info returns the rowInfo of a row, and computes it at the first call.
func (r *rowChains) info(row uint16) (*rowInfo, error) {
	if i := r.read[row]; i != nil {
		return i, nil
	}
	l, err := r.rows.leaf(row)
	if err != nil {
		return nil, err
	}
	i := &rowInfo{to: l.rest(), uniform: l.uniform() && l.rest().isEffect()}
	if i.uniform {
		i.denies = r.w.effects.list[i.to].Action == bpf.RuleDeny
	} else {
		i.short = len(r.w.short(l))
		i.size = r.w.size(l)
	}
	for index := range l {
		if rest := l[index].rest; rest.isBase() {
			if err := r.countBase(rest.base()); err != nil {
				return nil, err
			}
		}
	}
	r.read[row] = i
	return i, nil
}

func (r *rowChains) countBase(b int) error {
	if _, ok := r.bases[b]; ok {
		return nil
	}
	l, err := r.rows.common(b)
	if err != nil {
		return err
	}
	r.bases[b] = false
	r.baseSize += r.w.size(l)
	return nil
}

// chains returns a row's own chains.
func (r *rowChains) chains(row uint16) []Chain { return r.w.row(row, r.leaf(row)) }

// jump returns the line that leads to them.
func (r *rowChains) jump(row uint16) []line {
	return []line{{verdict: "-g " + r.w.rowName(row, opener)}}
}

// short returns the lines that can replace them. They have no line for the packets that none of them matches.
func (r *rowChains) short(row uint16) []line { return r.w.short(r.leaf(row)) }

// send returns the line for all packets, or for those that no other line of the row matches.
func (r *rowChains) send(i *rowInfo) []line { return r.w.send("", i.to, opener) }

// leaf returns the contents of a row that info has read.
func (r *rowChains) leaf(row uint16) *leaf { return r.intact(r.rows.leaf(row)) }

// intact returns the leaf. If there was an error, it notes that and returns a leaf that denies everything.
func (r *rowChains) intact(l *leaf, err error) *leaf {
	if err == nil {
		return l
	}
	if r.fault == nil {
		r.fault = fmt.Errorf("make the chains of %s: %w", r.w.name, err)
	}
	return &leaf{}
}

// common returns the chains that rows share and that were not returned before.
func (r *rowChains) common() (out []Chain) {
	for _, b := range sortedKeys(r.bases) {
		if r.bases[b] {
			continue
		}
		r.bases[b] = true
		out = append(out, r.w.base(b, r.intact(r.rows.common(b)))...) // countBase has read it before
	}
	for ; r.profiles < len(r.w.pro.list); r.profiles++ {
		out = append(append(out, r.w.profile(r.profiles, opener)...), r.w.profile(r.profiles, answerer)...)
	}
	return out
}

// repeat makes common return all chains again.
func (r *rowChains) repeat() {
	r.profiles = 0
	for b := range r.bases {
		r.bases[b] = false
	}
}

// shared returns an upper bound for the rules of the chains that rows share.
func (r *rowChains) shared() int {
	n := r.baseSize
	for _, p := range r.w.pro.list {
		n += 2 * searchRules(len(p.keys.spans), r.w.o.Shape.arity(len(p.keys.spans), 1))
	}
	return n
}
