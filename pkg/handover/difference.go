package handover

import (
	"errors"

	"github.com/margay-project/margay/pkg/conntrack"
)

// difference is what the table has to change to have the flows that are wanted.
type difference struct {
	known    map[conntrack.Tuple]bool // flows that the table has, before and after translation
	wrong    []standing
	unmarked []conntrack.Entry
	lone     map[conntrack.Tuple]bool // flows whose opener is not known
	strays   []conntrack.Entry        // of those
}

// standing is an entry that stands in the way of a flow.
type standing struct {
	entry  conntrack.Entry
	flow   conntrack.Tuple
	former bool // the entry is that of a former connection; otherwise the kernel made it for an answer
}

// note compares one entry of the table.
func (d *difference) note(all map[conntrack.Tuple]wanted, m Marks, e conntrack.Entry) {
	before, after, turned := e.Original, ofOpener(e), reversed(e.Original)
	d.known[before], d.known[after] = true, true
	_, hasOwn := all[before]
	reverse, hasReverse := all[turned]
	switch {
	case e.Zone != 0:
	case all[before].follows(e):
		d.wrong = append(d.wrong, standing{e, before, true})
	case before != after && all[after].across && e.TCPState >= conntrack.TCPFinWait:
		d.wrong = append(d.wrong, standing{e, after, true})
	case hasReverse && !hasOwn && reverse.insert && !reverse.guessed && before == after:
		d.wrong = append(d.wrong, standing{e, turned, false})
	case m.Mask != 0 && e.Mark&m.Mask == 0 && d.lone[before]:
		d.strays = append(d.strays, e)
	case m.Mask != 0 && e.Mark&m.Mask == 0 && m.allowed(all, before, after):
		d.unmarked = append(d.unmarked, e)
	}
}

// follows reports whether an entry with the ends of a flow past the kernel is that of a former connection, which has begun to end. Where one end
// of the flow has sent its last, too, an entry that has not ended yet is the flow's own: the kernel has seen its FIN.
func (w wanted) follows(e conntrack.Entry) bool {
	if w.closing {
		return w.across && e.TCPState >= conntrack.TCPLastAck
	}
	return w.across && e.TCPState >= conntrack.TCPFinWait
}

// replace puts flows in the place of the entries that are wrong. If a packet comes between and the kernel makes an entry again, the
// next pass finds it.
func (d *difference) replace(all map[conntrack.Tuple]wanted, k Kernel, m Marks, done *Done) error {
	entries, flows := make([]conntrack.Entry, len(d.wrong)), make([]conntrack.Flow, len(d.wrong))
	for i, s := range d.wrong {
		entries[i], flows[i] = s.entry, all[s.flow].flow(s.flow, all, m)
		d.known[s.flow] = true
	}
	for i, err := range k.Replace(entries, flows) {
		switch {
		case errors.Is(err, conntrack.ErrExists):
		case err != nil:
			return err
		case d.wrong[i].former:
			done.Former++
		default:
			done.Turned++
		}
	}
	return nil
}
