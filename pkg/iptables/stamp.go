package iptables

import "time"

// Stamp is what a table looks like from far. Reading it takes microseconds.
type Stamp struct {
	// Entries and Size are those of a legacy table. Another rule of the same size in the place of one does not change them.
	Entries, Size uint32
	// Generation is the number of the last transaction of nftables in this network namespace, Writes how many of those that were seen
	// have written into this table, Lost how often some could not be seen.
	Generation, Writes, Lost uint32
}

// Which part of a CPU may go into looking for alterations: one part in so many where nothing hints at any, and after transactions of
// ours, which cost as much themselves.
const (
	share      = 100
	shareAfter = 5
)

// watch finds out whether others have written, from Stamps, and from the bytes of a legacy table as often as that may be.
type watch struct {
	last       Stamp
	suspect    bool // others have written, or may have
	unverified bool // others may have written unseen; Check is to look when it may
	check      budget
	contents   [16]byte // digest of a legacy table as it was checked
	look       budget   // of reading that
}

// budget spaces out what is expensive.
type budget struct {
	last time.Time // when it was done
	cost time.Duration
}

func (b *budget) due(share int) bool { return time.Since(b.last) >= time.Duration(share)*b.cost }

func (b *budget) spent(start time.Time) {
	b.last = time.Now()
	b.cost = b.last.Sub(start)
}

// wrote notes the Stamps before and after a transaction that made a legacy table larger by so many entries.
func (w *watch) wrote(before, after Stamp, grows int, err error) {
	w.others(before)
	switch {
	case err != nil || int(after.Entries) != int(before.Entries)+grows && after.Generation == 0:
		w.suspect = true
	case !after.alone(before):
		w.unverified = true // an alteration of the same size, or in the same moment, would not show
	}
	w.last = after
}

// alone reports whether one transaction and no other has written into the table since the Stamp before it: none in the whole
// network namespace, or one into this table of all that were, each of which was seen. A legacy table does not show it.
func (s Stamp) alone(before Stamp) bool {
	return s.Generation != 0 && (s.Generation == before.Generation+1 || s.Lost == before.Lost && s.Writes == before.Writes+1)
}

// others compares a Stamp with the last one, between which was no transaction of ours.
func (w *watch) others(now Stamp) {
	switch {
	case now.Entries != w.last.Entries || now.Size != w.last.Size || now.Writes != w.last.Writes:
		w.suspect = true
	case now.Lost != w.last.Lost && now.Generation != w.last.Generation:
		w.unverified = true
	}
	w.last = now
}

// Touched reports whether Check should be called: others have written into the table since it was last read or written, or may have
// done so unseen. It reads no rules and costs microseconds, apart from the bytes of a legacy table, which it compares as often as
// one percent of a CPU allows. After transactions of ours into a legacy table it asks for a Check, as often as a fifth of a CPU
// allows: what others write in the same moment can remain unseen otherwise.
func (t *Table) Touched() (bool, error) {
	w := &t.watch
	now, err := t.kernel.stamp(t.family, t.name)
	if err != nil {
		return true, err
	}
	w.others(now)
	switch {
	case w.suspect:
		return true, nil
	case w.unverified:
		return w.check.due(shareAfter), nil
	case !w.look.due(share):
		return false, nil
	}
	start := time.Now()
	contents, err := t.kernel.contents(t.family, t.name)
	w.look.spent(start)
	w.suspect = err != nil || contents != w.contents
	return w.suspect, err
}

// looked notes what a table was before it was read. If it is another one afterwards, that will show.
func (w *watch) looked(stamp Stamp, contents [16]byte, err error) {
	w.last, w.contents = stamp, contents
	w.suspect, w.unverified = err != nil, false
}
