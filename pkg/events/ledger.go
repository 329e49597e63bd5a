package events

import "time"

const (
	// repeatAfter is when a problem that stays is told again: the API server forgets an event after an hour.
	repeatAfter = 65 * time.Minute
	// patience is how long what only this node knows must last: an interface that is still to come is no news.
	patience = 30 * time.Second

	firstRetry = 5 * time.Second
	lastRetry  = 10 * time.Minute
)

// The overall rate of events, and that of one object.
var (
	overallRate = rate{burst: 20, every: time.Second}
	subjectRate = rate{burst: 3, every: 5 * time.Minute}
)

// rate is a token bucket's: at most burst at once, and one more with each interval.
type rate struct {
	burst float64
	every time.Duration
}

// bucket is full until it is used first.
type bucket struct {
	used float64
	at   time.Time
}

// next is when the bucket has a token: now or later.
func (b *bucket) next(r rate, now time.Time) time.Time {
	b.used = max(0, b.used-float64(now.Sub(b.at))/float64(r.every))
	b.at = now
	if b.used+1 <= r.burst {
		return now
	}
	// Rounded up, or the caller could come a nanosecond early for ever.
	return now.Add(time.Duration((b.used+1-r.burst)*float64(r.every)) + time.Microsecond)
}

// take uses a token; only after next has said that there is one.
func (b *bucket) take() { b.used++ }

// entry is what is known of one subject.
type entry struct {
	message message
	present bool      // in what was reported last
	since   time.Time // present without a break
	told    message
	toldAt  time.Time // zero: never
	rate    bucket
	retry   time.Time // not before
	wait    time.Duration
}

// ledger knows what is to be told, and when. It reads no clock. Not safe for concurrent use.
type ledger struct {
	entries map[subject]*entry
	overall bucket
}

func newLedger() *ledger { return &ledger{entries: map[subject]*entry{}} }

// report replaces what there is to tell, of at most maxSubjects.
func (l *ledger) report(messages map[subject]message, now time.Time) {
	for s, e := range l.entries {
		if _, ok := messages[s]; !ok {
			e.present = false
			if e.toldAt.IsZero() || now.Sub(e.toldAt) >= repeatAfter {
				delete(l.entries, s)
			}
		}
	}
	for s, m := range messages {
		e := l.entries[s]
		if e == nil {
			e = &entry{}
			l.entries[s] = e
		}
		if e.message != m {
			e.message, e.retry, e.wait = m, time.Time{}, 0
		}
		if !e.present {
			e.present, e.since = true, now
		}
	}
	for len(l.entries) > maxSubjects && l.forgetOne() {
	}
}

// forgetOne makes room: of the subjects whose problems are over the one that was told of longest ago.
func (l *ledger) forgetOne() bool {
	var oldest subject
	found := false
	for s, e := range l.entries {
		if !e.present && (!found || e.toldAt.Before(l.entries[oldest].toldAt)) {
			oldest, found = s, true
		}
	}
	if found {
		delete(l.entries, oldest)
	}
	return found
}

// shared reports whether there is something that one node tells for all.
func (l *ledger) shared() bool {
	for s, e := range l.entries {
		if e.present && !s.local {
			return true
		}
	}
	return false
}

// next returns the subject that is to be told of first, and when: now or later. What is shared counts if leading. Not
// ok: there is nothing to tell, now or later, as long as nothing changes.
func (l *ledger) next(now time.Time, leading bool) (s subject, at time.Time, ok bool) {
	for candidate, e := range l.entries {
		if !e.present || !candidate.local && !leading {
			continue
		}
		due := e.due(now)
		if candidate.local {
			due = latest(due, e.since.Add(patience))
		}
		if !ok || due.Before(at) || due.Equal(at) && candidate.compare(s) < 0 {
			s, at, ok = candidate, due, true
		}
	}
	if !ok {
		return subject{}, time.Time{}, false
	}
	if free := l.overall.next(overallRate, now); free.After(at) {
		at = free
	}
	return s, at, true
}

// due is when the entry's message may be told: now or later.
func (e *entry) due(now time.Time) time.Time {
	at := e.rate.next(subjectRate, now)
	if e.told == e.message && !e.toldAt.IsZero() {
		at = latest(at, e.toldAt.Add(repeatAfter))
	}
	return latest(at, e.retry)
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// done notes that the subject's present message was told, or needs not be.
func (l *ledger) done(s subject, now time.Time) {
	l.overall.take()
	e := l.entries[s]
	e.rate.take()
	e.told, e.toldAt, e.retry, e.wait = e.message, now, time.Time{}, 0
}

// failed notes that the subject's message could not be told, and is to be tried again later.
func (l *ledger) failed(s subject, now time.Time) {
	l.overall.take()
	e := l.entries[s]
	e.wait = min(max(2*e.wait, firstRetry), lastRetry)
	e.retry = now.Add(e.wait)
}

// present is the number of subjects there is something to tell of.
func (l *ledger) present() int {
	n := 0
	for _, e := range l.entries {
		if e.present {
			n++
		}
	}
	return n
}
