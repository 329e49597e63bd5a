package agent

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/verify"
)

// mostConfirmed bounds the differences of one kind that the loop is asked about, since they usually have one cause.
const mostConfirmed = 100

// sets returns the sets that the kernel's classes are combinations of, and adds their members to the regions.
func (v *verification) sets(atoms *verify.Atoms) (sets []verify.Set, err error) {
	err = v.ask(func(view View) { sets = v.kernel.Sets() })
	kept := sets[:0]
	for from := 0; from < len(sets) && err == nil; from += mostConfirmed {
		some := sets[from:min(from+mostConfirmed, len(sets))]
		var failed error
		err = v.ask(func(view View) {
			for _, s := range some {
				text, err := v.kernel.SetFault(s)
				if failed = err; err != nil {
					return
				}
				if text != "" {
					v.differs(inspect.DifferenceRow{Text: text})
				}
				if s.Members != nil || view.Graph.HasSet(s.ID) {
					kept = append(kept, s)
				}
			}
		})
		if err == nil {
			err = failed
		}
	}
	for _, s := range kept {
		atoms.AddSet(s.ID)
	}
	return kept, err
}

// classes compares the sets of all classes.
func (v *verification) classes(c *verify.Comparison, sets []verify.Set) error {
	inKernel, err := v.kernel.ClassSets()
	if err != nil {
		return err
	}
	classes, asked := verify.NewClasses(c.Atoms, sets), 0
	for i, p := range c.Pairs {
		if i%1024 == 0 {
			if err := v.pause(); err != nil {
				return err
			}
		}
		if asked == mostConfirmed || !classes.Wrong(p, inKernel[p.Class]) {
			continue
		}
		asked++
		var failed error
		if err := v.ask(func(view View) { failed = v.confirmClass(view, p, classes) }); err != nil {
			return err
		}
		if failed != nil {
			return failed
		}
	}
	return nil
}

// confirmClass reports the class of a pair if it is still wrong.
func (v *verification) confirmClass(view View, p *verify.Pair, classes *verify.Classes) error {
	if !view.quiet() {
		return nil
	}
	now := slices.DeleteFunc(v.kernel.Sets(), func(s verify.Set) bool { return s.Members == nil && !view.Graph.HasSet(s.ID) })
	for _, a := range p.Some {
		entry, err := v.kernel.Entry(a)
		if err != nil {
			return err
		}
		sets, err := v.kernel.SetsOf(entry.Class)
		if err != nil {
			return err
		}
		if id, differs := classes.Differs(a, sets, now, view.Graph.SetContains); differs {
			text, _ := view.Graph.SetText(id)
			v.differs(inspect.DifferenceRow{Text: fmt.Sprintf("the class of address %s, %d, has not the sets that the address is in: %s (%s) differs", a, entry.Class, id, text)})
			return nil
		}
	}
	return nil
}

// marks compares the marks of addresses.
func (v *verification) marks(targets []target, entries []verify.Entry) error {
	members := map[model.SetID][]netip.Prefix{}
	var host []netip.Addr
	marked := false
	if err := v.ask(func(View) { marked = v.kernel.HasMarks() }); err != nil || !marked {
		return err
	}
	for _, id := range verify.MarkSets() {
		if err := v.ask(func(view View) { members[id], host = view.Graph.Members(id), v.kernel.HostAddrs() }); err != nil {
			return err
		}
	}
	marking := verify.NewMarking(members, host, v.pause)
	for _, t := range targets {
		marking.Own(t.policy.ID, t.policy.Addrs, t.ifindex, t.why != "")
	}
	marking.AddEntries(entries)
	wrong, err := marking.Wrong()
	if err != nil {
		return err
	}
	for _, a := range wrong[:min(len(wrong), mostConfirmed)] {
		var failed error
		if err := v.ask(func(view View) { failed = v.confirmMarks(view, a) }); err != nil {
			return err
		}
		if failed != nil {
			return failed
		}
	}
	return nil
}

// confirmMarks reports the marks of an address if they are still wrong.
func (v *verification) confirmMarks(view View, a netip.Addr) error {
	if !view.quiet() {
		return nil
	}
	members := map[model.SetID][]netip.Prefix{}
	for _, id := range verify.MarkSets() {
		if view.Graph.SetContains(id, a) {
			members[id] = []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}
		}
	}
	marking := verify.NewMarking(members, v.kernel.HostAddrs(), func() error { return nil })
	for _, s := range view.states {
		if ep, ok := view.Graph.LocalEndpoint(s.ID); ok {
			marking.Own(s.ID, ep.Addrs, s.Ifindex, !programmed(s.Condition))
		}
	}
	entry, err := v.kernel.Entry(a)
	if err != nil {
		return err
	}
	entry.Prefix = netip.PrefixFrom(a, a.BitLen())
	marking.AddEntries([]verify.Entry{entry})
	wrong, err := marking.Wrong()
	for _, w := range wrong {
		if w == a {
			v.differs(inspect.DifferenceRow{Text: fmt.Sprintf("address %s is marked in the kernel: %s; should be: %s", a, entry.Marks, marking.Want(a))})
		}
	}
	return err
}

// nodeFaults reports the faults of parts that belong to no endpoint.
func (v *verification) nodeFaults() error {
	var faults []string
	var failed error
	err := v.ask(func(view View) {
		if view.quiet() {
			faults, failed = v.kernel.NodeFaults()
		}
	})
	if err == nil {
		err = failed
	}
	for _, text := range faults {
		v.differs(inspect.DifferenceRow{Text: text})
	}
	return err
}

// faults reports the faults of an endpoint's parts other than its policies.
func (v *verification) faults(t *target) error {
	var faults []string
	var failed error
	err := v.ask(func(view View) {
		if same, err := v.unchanged(view, t); same && err == nil {
			faults, failed = v.kernel.Faults(t.policy.ID)
		}
	})
	if err == nil {
		err = failed
	}
	for _, text := range faults {
		v.differs(inspect.DifferenceRow{Namespace: t.policy.ID.Namespace, Name: t.policy.ID.Name, Text: t.policy.ID.String() + ": " + text})
	}
	return err
}
