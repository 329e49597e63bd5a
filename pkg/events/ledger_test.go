package events

import (
	"fmt"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// told lets the ledger tell what is due until the time is over, and returns when each subject was told of.
func told(l *ledger, from, until time.Time, leading bool) map[string][]time.Duration {
	all := map[string][]time.Duration{}
	for now := from; ; {
		s, at, ok := l.next(now, leading)
		if !ok || at.After(until) {
			return all
		}
		now = at
		l.done(s, now)
		all[s.name] = append(all[s.name], now.Sub(from))
	}
}

func shared(names ...string) map[subject]message {
	all := map[subject]message{}
	for _, n := range names {
		all[subject{kind: "NetworkPolicy", namespace: "shop", name: n}] = message{reason: "r", note: "n"}
	}
	return all
}

func TestTheSameIsToldAgainOnlyAfterAnHour(t *testing.T) {
	l := newLedger()
	l.report(shared("db"), start)
	got := told(l, start, start.Add(3*time.Hour), true)["db"]
	if len(got) != 3 || got[0] != 0 || got[1] != repeatAfter || got[2] != 2*repeatAfter {
		t.Errorf("told at %v, want at once and every %v", got, repeatAfter)
	}
}

func TestWhatGoesAndComesAgainIsNotToldAgainBeforeAnHour(t *testing.T) {
	l := newLedger()
	n := 0
	for now := start; now.Before(start.Add(repeatAfter)); now = now.Add(time.Minute) {
		l.report(shared("db"), now)
		n += len(told(l, now, now, true)["db"])
		l.report(nil, now)
	}
	if n != 1 {
		t.Errorf("told %d times, want once", n)
	}
}

func TestWhatChangesIsToldAgainUpToTheObjectsRate(t *testing.T) {
	l := newLedger()
	s := subject{kind: "NetworkPolicy", namespace: "shop", name: "db"}
	n := 0
	for i := range 600 { // a new message each second
		now := start.Add(time.Duration(i) * time.Second)
		l.report(map[subject]message{s: {note: fmt.Sprint(i)}}, now)
		n += len(told(l, now, now, true)["db"])
		if i == 2 && n != 3 {
			t.Errorf("%d of the first 3 changes told, want all", n)
		}
	}
	if n != 4 { // 3 at once, one after 5 minutes; the next is due after 10
		t.Errorf("told %d times in ten minutes, want 4", n)
	}
}

func TestManyAreToldAtTheOverallRate(t *testing.T) {
	l := newLedger()
	all := map[subject]message{}
	for i := range maxSubjects {
		all[subject{kind: "NetworkPolicy", namespace: "shop", name: fmt.Sprint(i)}] = message{note: "n"}
	}
	l.report(all, start)
	if n := len(told(l, start, start, true)); n != int(overallRate.burst) {
		t.Errorf("%d told at once, want %v", n, overallRate.burst)
	}
	if n := len(told(l, start, start.Add(time.Minute), true)); n < 59 || n > 60 {
		t.Errorf("%d told in a minute, want 60", n)
	}
	if n := len(told(l, start.Add(time.Minute), start.Add(time.Hour), true)); n != maxSubjects-20-60 && n != maxSubjects-20-59 {
		t.Errorf("%d told in the end, want all that were left", n)
	}
}

func TestWhoDoesNotLeadTellsOnlyOfItsOwn(t *testing.T) {
	l := newLedger()
	all := shared("db")
	all[subject{kind: "Pod", namespace: "shop", name: "web", local: true}] = message{note: "n"}
	l.report(all, start)
	if !l.shared() {
		t.Error("nothing shared to campaign for")
	}
	got := told(l, start, start.Add(time.Hour), false)
	if len(got) != 1 || len(got["web"]) != 1 || got["web"][0] != patience {
		t.Errorf("told %v, want only web, after %v", got, patience)
	}
	l.report(map[subject]message{{kind: "Pod", namespace: "shop", name: "web", local: true}: {note: "n"}}, start)
	if l.shared() {
		t.Error("campaigns with nothing shared")
	}
}

func TestWhatIsOverBeforeItIsToldIsNotTold(t *testing.T) {
	l := newLedger()
	web := subject{kind: "Pod", namespace: "shop", name: "web", local: true}
	for i := range 100 { // comes and goes
		now := start.Add(time.Duration(i) * time.Minute)
		l.report(map[subject]message{web: {note: "n"}}, now)
		if got := told(l, now, now.Add(patience-1), true); len(got) > 0 {
			t.Fatalf("told %v of what lasted for less than %v", got, patience)
		}
		l.report(nil, now.Add(patience-1))
	}
	if len(l.entries) != 0 {
		t.Errorf("%d entries kept of what was never told", len(l.entries))
	}
}

func TestAFailureIsTriedAgainLaterAndLater(t *testing.T) {
	l := newLedger()
	l.report(shared("db"), start)
	var waits []time.Duration
	for now := start; len(waits) < 12; {
		s, at, _ := l.next(now, true)
		waits = append(waits, at.Sub(now))
		now = at
		l.failed(s, now)
	}
	if waits[0] != 0 || waits[1] != firstRetry || waits[2] != 2*firstRetry || waits[11] != lastRetry {
		t.Errorf("waits %v, want 0, %v, doubling to %v", waits, firstRetry, lastRetry)
	}
	// What changed is tried at once.
	now := start.Add(24 * time.Hour)
	s, _, _ := l.next(now, true)
	l.failed(s, now)
	l.report(map[subject]message{s: {note: "new"}}, now)
	if _, at, _ := l.next(now, true); !at.Equal(now) {
		t.Errorf("a new message waits for %v", at.Sub(now))
	}
}

func TestMemoryIsBoundedHoweverManyObjectsComeAndGo(t *testing.T) {
	l := newLedger()
	for round := range 5 {
		all := map[subject]message{}
		for i := range maxSubjects {
			all[subject{kind: "NetworkPolicy", namespace: "shop", name: fmt.Sprintf("%d-%d", round, i)}] = message{note: "n"}
		}
		now := start.Add(time.Duration(round) * 20 * time.Minute)
		l.report(all, now)
		if n := l.present(); n != maxSubjects {
			t.Errorf("%d of %d present", n, maxSubjects)
		}
		told(l, now, now.Add(20*time.Minute), true)
		if len(l.entries) > maxSubjects {
			t.Fatalf("%d entries, more than %d", len(l.entries), maxSubjects)
		}
	}
}
