package shares

import (
	"net/netip"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/conntrack"
)

// Fake is a Table in memory, for tests. The zero Fake is an empty table without a limit. Its methods are safe for concurrent use.
type Fake struct {
	Limit   uint32
	Fails   error           // of each Dump, once it has passed the entries on
	Refuses error           // of each entry that is to be deleted
	During  func(dumps int) // called before each Dump with their number, this one included

	mu      sync.Mutex // guards all below
	entries []conntrack.Entry
	dumps   int
	last    uint32 // the id given last
}

var _ Table = (*Fake)(nil)

// Usage implements Table.
func (f *Fake) Usage() (entries, limit uint32, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return uint32(len(f.entries)), f.Limit, nil
}

// Dump implements Table.
func (f *Fake) Dump(family conntrack.Family, filter conntrack.Filter, each func(conntrack.Entry)) error {
	f.mu.Lock()
	f.dumps++
	dumps := f.dumps
	f.mu.Unlock()
	if f.During != nil {
		f.During(dumps)
	}
	for _, e := range f.Entries() {
		is4 := e.Original.Src.Is4()
		if family == conntrack.IPv4 && !is4 || family == conntrack.IPv6 && is4 || e.Mark&filter.Mask != filter.Mark {
			continue
		}
		each(e)
	}
	return f.Fails
}

// Delete implements Table. Like the kernel's, it finds an entry without an id by its tuple alone.
func (f *Fake) Delete(list []conntrack.Entry) []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	errs := make([]error, len(list))
	for i, gone := range list {
		at := slices.IndexFunc(f.entries, func(e conntrack.Entry) bool {
			return e.Original == gone.Original && (gone.ID == 0 || e.ID == gone.ID)
		})
		switch {
		case f.Refuses != nil:
			errs[i] = f.Refuses
		case at < 0:
			errs[i] = conntrack.ErrNoEntry
		default:
			f.entries = slices.Delete(f.entries, at, at+1)
		}
	}
	return errs
}

// Add adds entries. Each gets an id of its own.
func (f *Fake) Add(list ...conntrack.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range list {
		f.last++
		e.ID = f.last
		f.entries = append(f.entries, e)
	}
}

// Open adds n TCP connections that an address has opened to another, which has answered them.
func (f *Fake) Open(n int, opener, responder netip.Addr, mark uint32) {
	for range n {
		f.mu.Lock()
		port := uint16(f.last)
		f.mu.Unlock()
		f.Add(conntrack.Entry{
			Original: conntrack.Tuple{Src: opener, Dst: responder, Protocol: unix.IPPROTO_TCP, SrcPort: port, DstPort: 80},
			Reply:    conntrack.Tuple{Src: responder, Dst: opener, Protocol: unix.IPPROTO_TCP, SrcPort: 80, DstPort: port},
			Status:   conntrack.SeenReply | conntrack.Assured, Mark: mark,
		})
	}
}

// Entries returns the entries, in the order in which they were added.
func (f *Fake) Entries() []conntrack.Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.entries)
}

// Clear removes all entries.
func (f *Fake) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.entries = nil
}

// OpenedBy returns how many entries an address has opened.
func (f *Fake) OpenedBy(opener netip.Addr) (n int) {
	for _, e := range f.Entries() {
		if e.Original.Src == opener {
			n++
		}
	}
	return n
}

// Dumps returns how often the table was read.
func (f *Fake) Dumps() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dumps
}
