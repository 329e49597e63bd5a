package dataplane

import (
	"log/slog"
	"maps"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile"
	"github.com/margay-project/margay/pkg/model"
)

// names are the names of sets and rules in the kernel. Only people read them, and an agent that starts, which does
// without: a name that cannot be written holds up no policy.
type names struct {
	maps    *bpfmaps.Maps
	log     *slog.Logger
	sets    map[uint32]model.SetID // by number, of those that tables in the kernel refer to
	missing bool                   // some could not be written, and the log knows
	written bool                   // since the last goOn
}

func newNames(m *bpfmaps.Maps, log *slog.Logger) *names {
	return &names{maps: m, log: log, sets: map[uint32]model.SetID{}}
}

// adopt makes what is in the maps the names that are wanted, and returns their texts by number.
func (n *names) adopt() (sets, rules map[uint32]string, err error) {
	if sets, err = texts(n.maps.SetNames); err != nil {
		return nil, nil, err
	}
	for num, text := range sets {
		n.sets[num] = model.SetID(text)
	}
	rules, err = texts(n.maps.RuleNames)
	return sets, rules, err
}

func texts(t *bpfmaps.Table[uint32, bpf.Name]) (map[uint32]string, error) {
	byNumber := map[uint32]string{}
	if err := t.Adopt(); err != nil {
		return nil, err
	}
	for num, name := range t.All() {
		byNumber[num] = bpfmaps.NameText(name)
	}
	return byNumber, nil
}

// add writes the names of new numbers.
func (n *names) add(sets map[uint32]model.SetID, rules map[uint32]model.RuleID) {
	maps.Copy(n.sets, sets)
	for num, id := range sets {
		n.maps.SetNames.Set(num, bpfmaps.NewName(compile.NameText(string(id))))
	}
	for num, id := range rules {
		n.maps.RuleNames.Set(num, bpfmaps.NewName(compile.NameText(id.String())))
	}
	if len(sets)+len(rules) > 0 {
		n.write()
	}
}

// drop removes the names of numbers that nothing refers to any more.
func (n *names) drop(sets, rules []uint32) {
	for _, num := range sets {
		delete(n.sets, num)
		n.maps.SetNames.Delete(num)
	}
	for _, num := range rules {
		n.maps.RuleNames.Delete(num)
	}
	if len(sets)+len(rules) > 0 {
		n.write()
	}
}

// namesAtOnce is how many names are written before other things come first again, which takes some 3 ms.
const namesAtOnce = 512

// goOn writes some of the names that are left, if none have been written since its last call.
func (n *names) goOn() {
	if !n.written && n.unfinished() {
		n.write()
	}
	n.written = false
}

// unfinished reports whether names are left that there was no time for.
func (n *names) unfinished() bool { return !n.missing && n.Missing() > 0 }

// write writes what is pending, or some of it. The log says once that some cannot be.
func (n *names) write() {
	n.written = true
	for _, t := range []*bpfmaps.Table[uint32, bpf.Name]{n.maps.SetNames, n.maps.RuleNames} {
		err := t.SyncSome(namesAtOnce)
		if err != nil && !n.missing {
			n.log.Warn("names of sets and rules do not fit into the kernel, show and a restarted agent do without; policy is enforced all the same",
				"map", t.Name(), "missing", t.Pending(), "err", err)
		}
		n.missing = n.missing || err != nil
	}
	if n.Missing() == 0 {
		n.missing = false
	}
}

// Missing is the number of names that are not written.
func (n *names) Missing() int { return n.maps.SetNames.Pending() + n.maps.RuleNames.Pending() }

// reread looks for what others have changed, and repairs it as far as it can be.
func (n *names) reread() int {
	sets, _ := n.maps.SetNames.Resync()
	rules, _ := n.maps.RuleNames.Resync()
	n.write()
	return sets.Len() + rules.Len()
}
