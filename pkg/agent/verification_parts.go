package agent

import (
	"cmp"
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
	classes, asked, doubtful := verify.NewClasses(c.Atoms, sets), 0, 0
	for i, p := range c.Pairs {
		if i%1024 == 0 {
			if err := v.pause(); err != nil {
				return err
			}
		}
		if !classes.Wrong(p, inKernel[p.Class]) {
			continue
		}
		if doubtful++; asked == mostConfirmed {
			continue
		}
		asked++
		var failed error
		if err := v.ask(func(view View) {
			if view.quiet() {
				doubtful--
				failed = v.confirmClass(view, p, classes)
			}
		}); err != nil {
			return err
		}
		if failed != nil {
			return failed
		}
	}
	v.doubt("classes of addresses", doubtful)
	return nil
}

// doubt notes that differences of a part were found and not confirmed, since changes were pending, or since there were too many.
func (v *verification) doubt(part string, differences int) {
	if differences > 0 {
		v.report.NotProven = append(v.report.NotProven, inspect.NotProvenRow{Part: part,
			Reason: fmt.Sprintf("%d of them seemed to differ, and could not be compared again while nothing changed", differences)})
	}
}

// confirmClass reports the class of a pair if it is still wrong. Nothing that is desired is pending.
func (v *verification) confirmClass(view View, p *verify.Pair, classes *verify.Classes) error {
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
	doubtful := len(wrong)
	for _, a := range wrong[:min(len(wrong), mostConfirmed)] {
		var failed error
		if err := v.ask(func(view View) {
			if view.quiet() {
				doubtful--
				failed = v.confirmMarks(view, a)
			}
		}); err != nil {
			return err
		}
		if failed != nil {
			return failed
		}
	}
	v.doubt("marks of addresses", doubtful)
	return nil
}

// confirmMarks reports the marks of an address if they are still wrong. Nothing that is desired is pending.
func (v *verification) confirmMarks(view View, a netip.Addr) error {
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

// nodeFaults compares parts that belong to no endpoint.
func (v *verification) nodeFaults() error {
	var parts []verify.Part
	var failed error
	err := v.ask(func(View) { parts, failed = v.kernel.NodeFaults() })
	if err = cmp.Or(err, failed); err != nil {
		return err
	}
	for _, p := range parts {
		for _, text := range p.Faults {
			v.differs(inspect.DifferenceRow{Text: text})
		}
		v.part(p.Name, p.Skipped)
	}
	return nil
}

// part notes whether a part that belongs to no endpoint was compared in this round. A part that one round has compared is proven.
func (v *verification) part(name, skipped string) {
	if skipped == "" {
		v.parts[name] = true
	} else if !v.parts[name] {
		v.report.NotProven = append(v.report.NotProven, inspect.NotProvenRow{Part: name, Reason: skipped})
	}
}

// faults compares an endpoint's parts other than its policies. why: the reason why they could not be compared; empty: they were.
func (v *verification) faults(t *target) (why string, err error) {
	var part verify.Part
	same := false
	var failed error
	err = v.ask(func(view View) {
		if same, failed = v.unchanged(view, t); same && failed == nil {
			part, failed = v.kernel.Faults(t.policy.ID)
		}
	})
	if err = cmp.Or(err, failed); err != nil {
		return "", err
	}
	if !same {
		return hasChanged, nil
	}
	for _, text := range part.Faults {
		v.differs(inspect.DifferenceRow{Namespace: t.policy.ID.Namespace, Name: t.policy.ID.Name, Text: t.policy.ID.String() + ": " + text})
	}
	return part.Skipped, nil
}
