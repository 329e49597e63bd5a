package bpf

import (
	"errors"
	"log/slog"
	"maps"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/model"
)

// names are the names of sets, rules and endpoints in the kernel. Only people read them, and an agent that starts, which does
// without: a name that cannot be written holds up no policy.
type names struct {
	maps *bpfmaps.Names
	log  *slog.Logger
	sets map[uint32]model.SetID // by number, of those that tables in the kernel refer to
	// endpoints have names in the kernel, by interface; the zero id: an earlier agent named it.
	endpoints map[uint32]model.EndpointID

	missing bool // some could not be written, and the log knows
	written bool // since the last writeMore
}

func newNames(m *bpfmaps.Names, log *slog.Logger) *names {
	return &names{maps: m, log: log, sets: map[uint32]model.SetID{}, endpoints: map[uint32]model.EndpointID{}}
}

// adopt makes the names in the maps the desired ones, and returns their texts by number.
func (n *names) adopt() (sets, rules map[uint32]string, err error) {
	if sets, err = texts(n.maps.Sets); err != nil {
		return nil, nil, err
	}
	for num, text := range sets {
		n.sets[num] = model.SetID(text)
	}
	endpoints, err1 := texts(n.maps.Endpoints)
	for ifindex := range endpoints {
		n.endpoints[ifindex] = model.EndpointID{}
	}
	rules, err2 := texts(n.maps.Rules)
	return sets, rules, errors.Join(err1, err2)
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
		n.maps.Sets.Set(num, bpfmaps.NewName(plan.NameText(string(id))))
	}
	for num, id := range rules {
		n.maps.Rules.Set(num, bpfmaps.NewName(plan.NameText(id.String())))
	}
	if len(sets)+len(rules) > 0 {
		n.write()
	}
}

// drop removes the names of numbers that nothing refers to any more.
func (n *names) drop(sets, rules []uint32) {
	for _, num := range sets {
		delete(n.sets, num)
		n.maps.Sets.Delete(num)
	}
	for _, num := range rules {
		n.maps.Rules.Delete(num)
	}
	if len(sets)+len(rules) > 0 {
		n.write()
	}
}

// nameEndpoints gives the interfaces of endpoints that are in the kernel their names, and takes the others'.
func (n *names) nameEndpoints(bound map[model.EndpointID]*endpoint) {
	programmed, changed := 0, false
	for id, ep := range bound {
		if ep.ifindex == 0 {
			continue
		}
		programmed++
		if ep.policy == nil || n.endpoints[ep.ifindex] == id {
			continue // an earlier agent's, which has named it, or as it was
		}
		n.endpoints[ep.ifindex] = id
		n.maps.Endpoints.Set(ep.ifindex, bpfmaps.NewName(plan.NameText(id.String())))
		changed = true
	}
	if programmed != len(n.endpoints) {
		changed = n.forgetEndpoints(bound) || changed
	}
	if changed {
		n.write()
	}
}

// forgetEndpoints removes the names of interfaces without an endpoint, and reports whether there were any.
func (n *names) forgetEndpoints(bound map[model.EndpointID]*endpoint) bool {
	programmed := map[uint32]bool{}
	for _, ep := range bound {
		programmed[ep.ifindex] = true
	}
	changed := false
	for ifindex := range n.endpoints {
		if !programmed[ifindex] {
			delete(n.endpoints, ifindex)
			n.maps.Endpoints.Delete(ifindex)
			changed = true
		}
	}
	return changed
}

// namesAtOnce is how many names are written before other things come first again, which takes some 3 ms.
const namesAtOnce = 512

// writeMore writes some of the names that are left, if none have been written since its last call.
func (n *names) writeMore() {
	if !n.written && n.unfinished() {
		n.write()
	}
	n.written = false
}

// unfinished reports whether names are left that there was no time for.
func (n *names) unfinished() bool { return !n.missing && n.Missing() > 0 }

// write writes the pending names, or some of them. Failures are logged once.
func (n *names) write() {
	n.written = true
	for _, t := range n.tables() {
		err := t.SyncSome(namesAtOnce)
		if err != nil && !n.missing {
			n.log.Warn("the kernel's maps have no room for some names of sets, rules or endpoints, which margay show and a restarted agent lack; policy is enforced",
				"map", t.Name(), "missing", t.Pending(), "err", err)
		}
		n.missing = n.missing || err != nil
	}
	if n.Missing() == 0 {
		n.missing = false
	}
}

func (n *names) tables() []*bpfmaps.Table[uint32, bpf.Name] {
	return []*bpfmaps.Table[uint32, bpf.Name]{n.maps.Sets, n.maps.Rules, n.maps.Endpoints}
}

// Missing is the number of names that are not written.
func (n *names) Missing() (missing int) {
	for _, t := range n.tables() {
		missing += t.Pending()
	}
	return missing
}

// compared are the tables of names as a resync compares them.
func (n *names) compared() (list []mapTable) {
	for _, t := range n.tables() {
		list = append(list, comparedNames{t, n})
	}
	return list
}

// comparedNames is a table of names. One that cannot be read is not repaired, and holds up nothing.
type comparedNames struct {
	*bpfmaps.Table[uint32, bpf.Name]
	names *names
}

// Resync looks for changes made by others, and repairs them as far as possible.
func (c comparedNames) Resync() (changed int, err error) {
	repairs, _ := c.Table.Resync()
	c.names.write()
	return repairs.Len(), nil
}

// ResyncSome is the same in parts.
func (c comparedNames) ResyncSome(most int) (changed int, done bool, err error) {
	repairs, done, _ := c.Table.ResyncSome(most)
	if done {
		c.names.write()
	}
	return repairs.Len(), done, nil
}
