package events

import (
	"cmp"
	"maps"
	"time"
)

const (
	// repeatAfter is when a problem that stays is reported again: the API server forgets an event after an hour.
	repeatAfter = 65 * time.Minute
	// localAfter is how long what only this node knows must last: an interface that is still to come is no news.
	localAfter = 30 * time.Second

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

// spend uses a token; only after next has said that there is one.
func (b *bucket) spend() { b.used++ }

// entry is the record of one subject.
type entry struct {
	message message
	changed time.Time // when it began to differ from the reported one
	present bool      // in the last report
	since   time.Time // present without a break
	turn    turn      // of a shared one
	sent    message
	sentAt  time.Time // zero: never
	rate    bucket
	retry   time.Time // not before
	wait    time.Duration
}

// ledger knows which messages are to be reported, and when. It reads no clock. Not safe for concurrent use.
type ledger struct {
	node    string
	nodes   int // of the cluster; at least 1
	shared  int // subjects present that all nodes know of
	entries map[subject]*entry
	overall bucket

	attempts  int            // so far
	attempted map[string]int // by namespace of an entry: the number of its last attempt

	denied map[string]time.Time // by namespace of an entry: when to try again where events are forbidden
}

func newLedger(node string) *ledger {
	return &ledger{node: node, nodes: assumedNodes, entries: map[subject]*entry{}, attempted: map[string]int{}, denied: map[string]time.Time{}}
}

// report replaces the messages to send, of at most maxSubjects. nodes is the number of nodes in the cluster; 0: not known.
func (l *ledger) report(messages map[subject]message, nodes int, now time.Time) {
	l.nodes, l.shared = nodes, 0
	if nodes <= 0 {
		l.nodes = assumedNodes
	}
	for s, e := range l.entries {
		if _, ok := messages[s]; !ok {
			e.present = false
			if e.sentAt.IsZero() || now.Sub(e.sentAt) >= repeatAfter {
				delete(l.entries, s)
			}
		}
	}
	for s, m := range messages {
		if !s.local {
			l.shared++
		}
		e := l.entries[s]
		if e == nil {
			e = &entry{turn: firstTurn(l.node, s, now)}
			l.entries[s] = e
		}
		if e.message != m {
			if e.message == e.sent {
				e.changed = now
			}
			e.message, e.retry, e.wait = m, time.Time{}, 0
		}
		if !e.present {
			e.present, e.since = true, now
		}
	}
	for len(l.entries) > maxSubjects && l.forgetOne() {
	}
	namespaces := map[string]bool{}
	for s := range l.entries {
		namespaces[s.namespace] = true
	}
	maps.DeleteFunc(l.attempted, func(namespace string, _ int) bool { return !namespaces[namespace] })
	maps.DeleteFunc(l.denied, func(_ string, until time.Time) bool { return !until.After(now) })
}

// forgetOne makes room: of the subjects without problems, the one that was reported longest ago.
func (l *ledger) forgetOne() bool {
	var oldest subject
	found := false
	for s, e := range l.entries {
		if !e.present && (!found || e.sentAt.Before(l.entries[oldest].sentAt)) {
			oldest, found = s, true
		}
	}
	if found {
		delete(l.entries, oldest)
	}
	return found
}

// next returns the subject that is to be reported first, and when: now or later. Not ok: there is nothing to report, now or
// later, as long as nothing changes.
func (l *ledger) next(now time.Time) (s subject, at time.Time, ok bool) {
	for candidate, e := range l.entries {
		if !e.present {
			continue
		}
		due := l.due(candidate, e, now)
		if !ok || due.Before(at) || due.Equal(at) && l.before(candidate, s) {
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

// before decides which of two subjects is reported first if both may be now. Namespaces alternate, so that one whose objects change all
// the time delays the others by one event each. Within a namespace what only this node knows goes first, then what was reported longest ago.
func (l *ledger) before(a, b subject) bool {
	return cmp.Or(cmp.Compare(l.attempted[a.namespace], l.attempted[b.namespace]), localFirst(a, b),
		l.entries[a].sentAt.Compare(l.entries[b].sentAt), a.compare(b)) < 0
}

// due is when the entry's message may be reported, or has to be looked at again: now or later.
func (l *ledger) due(s subject, e *entry, now time.Time) time.Time {
	at := latest(latest(e.rate.next(subjectRate, now), e.retry), l.denied[s.namespace])
	reported := e.sent == e.message && !e.sentAt.IsZero()
	if s.local {
		if reported {
			at = latest(at, e.sentAt.Add(repeatAfter))
		}
		return latest(at, e.since.Add(localAfter))
	}
	e.turn.advance(l.node, s, now)
	wait, mine := e.turn.mine(l.nodes, l.shared)
	if !mine || reported && !e.sentAt.Before(e.turn.begins) {
		return e.turn.end()
	}
	return latest(at, latest(e.turn.begins, e.changed).Add(wait))
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// done notes that the subject's present message was reported, or needs no report.
func (l *ledger) done(s subject, now time.Time) {
	l.attempt(s)
	e := l.entries[s]
	e.rate.spend()
	e.sent, e.sentAt, e.retry, e.wait = e.message, now, time.Time{}, 0
}

// failed notes that the subject's message could not be reported, and is to be tried again later.
func (l *ledger) failed(s subject, now time.Time) {
	l.attempt(s)
	e := l.entries[s]
	e.wait = min(max(2*e.wait, firstRetry), lastRetry)
	e.retry = now.Add(e.wait)
}

// forbid notes that events are forbidden in the subject's namespace, and when to try again there. Who may write quotas or roles in a namespace
// can do that, so nothing follows for others.
func (l *ledger) forbid(s subject, until time.Time) { l.denied[s.namespace] = until }

// attempt counts an attempt, successful or not.
func (l *ledger) attempt(s subject) {
	l.overall.spend()
	l.attempts++
	l.attempted[s.namespace] = l.attempts
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
