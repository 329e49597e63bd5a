package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/nfnl"
)

// editBatch is how many entries of a dump are changed at a time.
const editBatch = 256

// Conn is the table of one network namespace. It is safe for concurrent use.
type Conn struct {
	dumps  *nfnl.Conn // reads; functions that are passed to it may use writes
	writes *nfnl.Conn
}

// Open connects to the table of the calling thread's network namespace.
func Open() (*Conn, error) {
	dumps, err := nfnl.Open()
	if err != nil {
		return nil, failed("open the table of", nil, err)
	}
	writes, err := nfnl.Open()
	if err != nil {
		return nil, errors.Join(failed("open the table of", nil, err), dumps.Close())
	}
	return &Conn{dumps, writes}, nil
}

// Close releases the sockets.
func (c *Conn) Close() error { return errors.Join(c.dumps.Close(), c.writes.Close()) }

// Dump passes the entries of a family, or of Both, that the filter chooses to each, in no particular order. Entries that come or go
// meanwhile may be missing. each must not call Dump, Remark or DeleteAddresses; it may call Insert, SetMarks and Delete.
func (c *Conn) Dump(f Family, filter Filter, each func(Entry)) error {
	var e nfnl.Encoder
	if filter != (Filter{}) {
		e.Uint32(attrMark, filter.Mark)
		e.Uint32(attrMarkMask, filter.Mask)
	}
	request := nfnl.Request{Subsystem: subsystem, Command: commandGet, Family: uint8(f), Attributes: e.Bytes()}
	err := c.dumps.Dump(request, func(m nfnl.Message) {
		got := entry(m.Attributes)
		// Old kernels ignore the filter, and dump all families if they know none of this number.
		if (f == Both || m.Family == uint8(f)) && got.Mark&filter.Mask == filter.Mark {
			each(got)
		}
	})
	if errors.Is(err, nfnl.ErrInterrupted) {
		return nil // a stream is no snapshot in any case
	}
	return failed("read", nil, err)
}

func write(command uint8, flags uint16, t Tuple, e *nfnl.Encoder) nfnl.Request {
	return nfnl.Request{Subsystem: subsystem, Command: command, Flags: flags, Family: uint8(familyOf(t.Src)), Attributes: e.Bytes()}
}

// target begins a request that identifies an entry by its tuple and zone.
func target(entry Entry) *nfnl.Encoder {
	e := &nfnl.Encoder{}
	appendTuple(e, attrOriginal, entry.Original)
	if entry.Zone != 0 {
		e.Uint16(attrZone, entry.Zone)
	}
	return e
}

// SetMarks replaces the bits of mask in the marks of entries with those that mark returns for each. The result is parallel to
// entries: the error of each; ErrNoEntry: the entry no longer exists.
func (c *Conn) SetMarks(entries []Entry, mark func(Entry) uint32, mask uint32) []error {
	requests := make([]nfnl.Request, len(entries))
	for i, entry := range entries {
		e := target(entry)
		e.Uint32(attrMark, mark(entry)&mask)
		e.Uint32(attrMarkMask, mask)
		requests[i] = write(commandNew, 0, entry.Original, e)
	}
	errs := c.writes.DoAll(requests)
	for i := range errs {
		errs[i] = failed("mark", &entries[i].Original, errs[i])
	}
	return errs
}

// Delete removes entries. The result is parallel to entries: the error of each; ErrNoEntry: the entry no longer exists. A later
// connection with the same tuple stays.
func (c *Conn) Delete(entries []Entry) []error {
	requests := make([]nfnl.Request, len(entries))
	for i, entry := range entries {
		requests[i] = deletion(entry)
	}
	errs := c.writes.DoMany(requests)
	for i := range errs {
		errs[i] = failed("delete", &entries[i].Original, errs[i])
	}
	return errs
}

// deletion returns the request that removes an entry.
func deletion(entry Entry) nfnl.Request {
	e := target(entry)
	if entry.ID != 0 {
		e.Uint32(attrID, entry.ID)
	}
	return write(commandDelete, 0, entry.Original, e)
}

// Remark replaces the bits of mask in the marks of all entries that the filter chooses with those that decide returns; write false:
// the entry stays as it is. It returns the number of entries that it wrote. Entries that vanish meanwhile are no error.
func (c *Conn) Remark(f Family, filter Filter, mask uint32, decide func(Entry) (mark uint32, write bool)) (written int, err error) {
	chosen := func(e Entry) bool {
		mark, write := decide(e)
		return write && mark&mask != e.Mark&mask
	}
	return c.edit(f, filter, chosen, func(entries []Entry) []error {
		return c.SetMarks(entries, func(e Entry) uint32 { mark, _ := decide(e); return mark }, mask)
	})
}

// DeleteAddresses removes all entries of a family with an end, before or after translation, whose address of holds for. It returns
// the number of entries removed. It reads the table once, however many addresses there are.
func (c *Conn) DeleteAddresses(f Family, of func(netip.Addr) bool) (deleted int, err error) {
	return c.edit(f, Filter{}, func(e Entry) bool {
		return of(e.Original.Src) || of(e.Original.Dst) || of(e.Reply.Src) || of(e.Reply.Dst)
	}, c.Delete)
}

// DeleteMarked removes the entries that the filter chooses. It returns the number of entries removed.
func (c *Conn) DeleteMarked(f Family, filter Filter) (deleted int, err error) {
	return c.edit(f, filter, func(e Entry) bool { return e.Mark&filter.Mask == filter.Mark }, c.Delete)
}

// edit changes the chosen entries. It begins again if the kernel has resized the table meanwhile: the kernel reads the table
// bucket by bucket, and a resize moves entries to buckets that were read already (ctnetlink_dump_table, Linux 6.18).
func (c *Conn) edit(f Family, filter Filter, chosen func(Entry) bool, change func([]Entry) []error) (n int, err error) {
	err = unlessResized(func() (uint32, error) { return readLimit(bucketsFile) }, func() error {
		changed, err := c.editOnce(f, filter, chosen, change)
		n += changed
		return err
	})
	return n, err
}

// editOnce changes entries in batches while the table is read, so that memory stays bounded.
func (c *Conn) editOnce(f Family, filter Filter, chosen func(Entry) bool, change func([]Entry) []error) (n int, err error) {
	batch := make([]Entry, 0, editBatch)
	var failure error
	flush := func() {
		for _, err := range change(batch) {
			switch {
			case err == nil:
				n++
			case !errors.Is(err, ErrNoEntry) && failure == nil:
				failure = err
			}
		}
		batch = batch[:0]
	}
	err = c.Dump(f, filter, func(e Entry) {
		if !chosen(e) {
			return
		}
		if batch = append(batch, e); len(batch) == editBatch {
			flush()
		}
	})
	flush()
	return n, errors.Join(err, failure)
}

// Usage returns the number of entries of all families, and their limit. The kernel drops packets of new connections when the table
// is full.
func (c *Conn) Usage() (entries, limit uint32, err error) {
	request := nfnl.Request{Subsystem: subsystem, Command: commandGetStats, Family: unix.AF_UNSPEC}
	err = c.writes.Get(request, func(m nfnl.Message) {
		entries = nfnl.Uint32(nfnl.Find(m.Attributes, attrStatsEntries))
		limit = nfnl.Uint32(nfnl.Find(m.Attributes, attrStatsMaxEntries))
	})
	if err == nil && limit == 0 { // kernels before 4.18 do not report it
		limit, err = readLimit("/proc/sys/net/netfilter/nf_conntrack_max")
	}
	return entries, limit, failed("count", nil, err)
}

func readLimit(path string) (uint32, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return uint32(n), nil
}
