package shares

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/further"
	"github.com/margay-project/margay/pkg/model"
)

const (
	// period is the time between two looks at the number of connections. A look costs microseconds.
	period = 250 * time.Millisecond
	// longest bounds the time until the next look.
	longest = 10 * time.Second
	// rest is the time until the next pass, in multiples of the last one's, if that could remove little: such passes need a fifth of a
	// CPU at most.
	rest = 4
	// batch is how many connections are removed at a time.
	batch = 512
)

// Table is the kernel's table of connections; conntrack.Conn is one, and has the contracts of the methods.
type Table interface {
	// Usage returns the number of connections and their limit; limit 0: there is no table, or it has no limit.
	Usage() (entries, limit uint32, err error)
	Dump(conntrack.Family, conntrack.Filter, func(conntrack.Entry)) error
	Delete([]conntrack.Entry) []error
}

// Limiter removes connections of endpoints that have more than their share while the table is nearly full, and logs when the table is full.
// Run is for one goroutine; the other methods are safe for concurrent use. A nil Limiter knows of no table and has removed nothing.
//
// The table is read in passes. A pass counts connections, from which follows what is to be removed, and removes what the pass before
// has decided. So no more than the counts is kept in memory, and during a flood every pass removes.
type Limiter struct {
	table  Table
	ends   func() *Ends
	notify func()
	log    *slog.Logger

	failures int                    // in a row
	unrouted bool                   // routes could not be read, as is logged
	decided  *decision              // by the last pass; nil: the next one only counts
	whole    map[kind]time.Duration // of the last pass's tally; nil while the table is not nearly full

	mu     sync.Mutex // guards report and use
	report report
	use    use
}

// New returns a Limiter of a table. ends returns the ends as of now; nil: no policy is in force yet, so nothing is removed. notify is
// called when Findings has changed, and must be quick.
func New(table Table, ends func() *Ends, notify func(), log *slog.Logger) *Limiter {
	return &Limiter{table: table, ends: ends, notify: notify, log: log}
}

// Run looks at the table until ctx ends.
func (l *Limiter) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if ctx.Err() != nil { // both were ready
			return
		}
		timer.Reset(l.Look())
	}
}

// Removed returns the number of connections removed so far.
func (l *Limiter) Removed() uint64 {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.report.removed
}

// Findings describes, for each endpoint that has lost connections in the last minute, what it has lost and why. The map must not be
// changed.
func (l *Limiter) Findings() map[model.EndpointID]string {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.report.findings
}

// Use returns the number of connections and their limit, as last read; limit 0: they could not be read, or there is no table.
func (l *Limiter) Use() (entries, limit uint32) {
	if l == nil {
		return 0, 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.use.entries, l.use.limit
}

// usage reads the number of connections and their limit, for Use and for the log.
func (l *Limiter) usage() (entries, limit uint32, err error) {
	entries, limit, err = l.table.Usage()
	if err != nil {
		entries, limit = 0, 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.use.note(entries, limit, l.log)
	return entries, limit, err
}

// Look reads how many connections there are, and makes a pass if they are too many. Only Run and tests call it. It returns the time until the next look.
func (l *Limiter) Look() time.Duration {
	entries, limit, err := l.usage()
	ends := l.ends()
	if err != nil || ends == nil || !isNearlyFull(entries, limit) && l.decided == nil {
		l.decided, l.whole = nil, nil
		l.note(round{}, time.Now())
		return l.failed(err)
	}
	began := time.Now()
	r, next, err := l.pass(ends, limit, l.decided)
	first := l.decided == nil
	l.decided = nil
	r.entries, r.limit = entries, limit
	l.note(r, time.Now())
	if err == nil && !first {
		entries, limit, err = l.usage()
	}
	if err != nil {
		return l.failed(err)
	}
	again := worthwhile(next.excess, limit) && (first || worthwhile(r.all, limit))
	if !first || !again { // else it is not known yet whether the kernel removes connections
		l.failures = 0
	}
	switch {
	case !isNearlyFull(entries, limit):
		return period
	case again:
		l.decided = next
		return 0
	}
	return min(max(period, rest*time.Since(began)), longest)
}

// failed logs the first error in a row, and returns the time until the next look.
func (l *Limiter) failed(err error) time.Duration {
	if err == nil {
		l.failures = 0
		return period
	}
	if l.failures == 0 {
		l.log.Warn("could not limit the connections of endpoints in the kernel's table: one endpoint can fill it; will try again", "err", err)
	}
	l.failures++
	return min(period<<min(l.failures, 10), longest)
}

// note adds a round to the report.
func (l *Limiter) note(r round, now time.Time) {
	l.mu.Lock()
	changed := l.report.add(r, now)
	line := l.report.line(now)
	l.mu.Unlock()
	if line != nil {
		l.log.LogAttrs(context.Background(), slog.LevelWarn, "connections of endpoints beyond their share were removed, since the kernel's table of connections was nearly full; "+
			"raise the sysctl net.netfilter.nf_conntrack_max if these endpoints need as many", line...)
	}
	if changed {
		l.notify()
	}
}

// round describes the removals of one pass.
type round struct {
	entries, limit uint32 // before it
	share          int
	all            int // removed
	losers         []loser
}

// loser is an owner that has lost connections.
type loser struct {
	id      model.EndpointID // the zero id: endpoints that cannot be known
	had     int
	removed int
}

// pass reads the table: it removes what was decided, and counts the rest, from which follows what is to be removed next. d nil:
// nothing was decided. After an error the result has what was removed until then.
func (l *Limiter) pass(ends *Ends, limit uint32, d *decision) (round, *decision, error) {
	t := newTally(ends, l.whole)
	l.whole = t.whole
	if d == nil {
		d = &decision{cuts: make([]cut, len(ends.owners)), ends: ends}
	}
	d = d.of(ends)
	routed := l.routed(ends)
	x := removal{table: l.table, removed: make([]int, len(d.cuts))}
	err := l.table.Dump(conntrack.Both, conntrack.Filter{}, func(e conntrack.Entry) {
		owner, ok := ends.owner(&e, routed)
		if !ok {
			t.others++
			return
		}
		rank := t.rank(&e)
		if x.err == nil && d.cuts[owner].removes(rank) {
			x.add(owner, e)
			return
		}
		t.add(owner, rank)
	})
	x.flush()
	r := round{share: d.share}
	for n, removed := range x.removed {
		if r.all += removed; removed > 0 {
			r.losers = append(r.losers, loser{ends.owners[n], d.cuts[n].had, removed})
		}
	}
	if err := errors.Join(err, x.err); err != nil {
		return r, nil, fmt.Errorf("remove connections of endpoints beyond their share: %w", err)
	}
	return r, decide(t, limit), nil
}

// routed returns whose the further sources are; nil: that is not known. It logs the first error in a row.
func (l *Limiter) routed(ends *Ends) *further.Routed {
	routed, err := ends.routed()
	if err != nil && !l.unrouted {
		l.log.Warn("could not read the routes to endpoints with further sources: their connections are not limited; will try again", "err", err)
	}
	l.unrouted = err != nil
	return routed
}

// removal removes connections in batches.
type removal struct {
	table   Table
	entries []conntrack.Entry
	owners  []int
	removed []int // by owner
	err     error // the first one
}

func (x *removal) add(owner int, e conntrack.Entry) {
	x.entries, x.owners = append(x.entries, e), append(x.owners, owner)
	if len(x.entries) == batch {
		x.flush()
	}
}

// flush removes the pending connections. One that no longer exists is no error.
func (x *removal) flush() {
	if len(x.entries) == 0 {
		return
	}
	for i, err := range x.table.Delete(x.entries) {
		switch {
		case err == nil:
			x.removed[x.owners[i]]++
		case !errors.Is(err, conntrack.ErrNoEntry) && x.err == nil:
			x.err = err
		}
	}
	x.entries, x.owners = x.entries[:0], x.owners[:0]
}
