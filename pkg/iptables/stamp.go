package iptables

import "time"

// Stamp has properties of a table that change with most writes. Reading it costs microseconds.
type Stamp struct {
	// Entries and Size (bytes) are those of a legacy table. Replacing a rule by one of the same size does not change them.
	Entries, Size uint32
	// Generation is the number of the last transaction of nftables in this network namespace, Writes the number of observed
	// transactions that have written into this table, Lost how often messages about transactions were lost.
	Generation, Writes, Lost uint32
	// Dormant: the chains of a table of nftables judge no packets, because somebody has given it that flag.
	Dormant bool
}

// Shares of a CPU for looking for alterations, as one part in so many: routinely, and after transactions of ours, which cost as much
// themselves.
const (
	share      = 100
	shareAfter = 5
)

// watch detects writes by others, from Stamps, and from the bytes of a legacy table as often as its budget allows.
type watch struct {
	last       Stamp
	suspect    bool // others have written, or may have
	unverified bool // others may have written unseen; Check is to run when the budget allows
	check      budget
	contents   [16]byte // digest of a legacy table as it was checked
	look       budget   // of reading that
}

// budget spaces out expensive work.
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

// alone reports whether exactly one transaction has written into the table since the Stamp before: it was the only one in the whole
// network namespace, or all were observed and only one of them wrote into this table. Stamps of a legacy table do not show it.
func (s Stamp) alone(before Stamp) bool {
	return s.Generation != 0 && (s.Generation == before.Generation+1 || s.Lost == before.Lost && s.Writes == before.Writes+1)
}

// others compares a Stamp with the last one. There was no transaction of ours between them.
func (w *watch) others(now Stamp) {
	switch {
	case now.Entries != w.last.Entries || now.Size != w.last.Size || now.Writes != w.last.Writes || now.Dormant != w.last.Dormant:
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

// looked notes the Stamp and digest of a table from before it was read, so that a write during the reading shows afterwards.
func (w *watch) looked(stamp Stamp, contents [16]byte, err error) {
	w.last, w.contents = stamp, contents
	w.suspect, w.unverified = err != nil, false
}
