package events

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// told lets the ledger tell what is due until the time is over, and returns when each subject was told of.
func told(l *ledger, from, until time.Time) map[string][]time.Duration {
	all := map[string][]time.Duration{}
	for now := from; ; {
		s, at, ok := l.next(now)
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
	l := newLedger("a")
	l.report(shared("db"), 1, start)
	got := told(l, start, start.Add(3*time.Hour))["db"]
	if len(got) != 3 {
		t.Fatalf("told at %v, want three times", got)
	}
	for i, at := range got {
		if late := at - time.Duration(i)*repeatAfter; late < 0 || late > leastSpread {
			t.Errorf("told at %v, want each %v, at most %v later", got, repeatAfter, leastSpread)
		}
	}
}

func TestWhatGoesAndComesAgainIsNotToldAgainBeforeAnHour(t *testing.T) {
	l := newLedger("a")
	n := 0
	for now := start; now.Before(start.Add(repeatAfter)); now = now.Add(time.Minute) {
		l.report(shared("db"), 1, now)
		n += len(told(l, now, now.Add(leastSpread))["db"])
		l.report(nil, 1, now.Add(leastSpread))
	}
	if n != 1 {
		t.Errorf("told %d times, want once", n)
	}
}

func TestWhatChangesIsToldAgainUpToTheObjectsRate(t *testing.T) {
	l := newLedger("a")
	s := subject{kind: "NetworkPolicy", namespace: "shop", name: "db"}
	n := 0
	for i := range 600 { // a new message each second
		now := start.Add(time.Duration(i) * time.Second)
		l.report(map[subject]message{s: {note: fmt.Sprint(i)}}, 1, now)
		n += len(told(l, now, now.Add(time.Second-1))["db"])
		if i == 2 && n != 3 {
			t.Errorf("%d of the first 3 changes told, want all", n)
		}
	}
	if n != 4 { // 3 at once, one after 5 minutes; the next is due after 10
		t.Errorf("told %d times in ten minutes, want 4", n)
	}
}

func TestManyAreToldAtTheOverallRate(t *testing.T) {
	l := newLedger("a")
	all := map[subject]message{}
	for i := range maxSubjects {
		all[subject{kind: "NetworkPolicy", namespace: "shop", name: fmt.Sprint(i)}] = message{note: "n"}
	}
	l.report(all, 1, start)
	first := len(told(l, start, start.Add(time.Minute)))
	if n := int(overallRate.burst) + 60; first < n-1 || first > n {
		t.Errorf("%d told in a minute, want %d", first, n)
	}
	if n := len(told(l, start.Add(time.Minute), start.Add(time.Hour))); n != maxSubjects-first {
		t.Errorf("%d told in the end, want all that were left, %d", n, maxSubjects-first)
	}
}

// TestNamespacesAlternate: one has 900 policies whose problems change faster than they may be reported, and new ones all the time; its
// names come first. The others' wait for one event of each namespace.
func TestNamespacesAlternate(t *testing.T) {
	l := newLedger("a")
	policy := func(namespace, name string) subject {
		return subject{kind: "NetworkPolicy", namespace: namespace, name: name}
	}
	pod := subject{kind: "Pod", namespace: "zzz", name: "web", local: true}
	all := map[subject]message{pod: {note: "n"}}
	for _, name := range []string{"a", "b", "c"} {
		all[policy("mmm", name)], all[policy("zzz", name)] = message{note: "n"}, message{note: "n"}
	}
	count, order := map[string]int{}, []string{}
	now := start
	for i := range 120 {
		maps.DeleteFunc(all, func(s subject, _ message) bool { return s.namespace == "aaa" })
		for k := range 900 {
			all[policy("aaa", fmt.Sprintf("%03d-%d", k, i/10*(k%2)))] = message{note: fmt.Sprint(i)}
		}
		l.report(all, 1, now)
		// All are overdue: reports were delayed by more than all spread their attempts over.
		now = now.Add(spread(1, l.shared))
		s, at, ok := l.next(now)
		if !ok {
			t.Fatal("nothing to report")
		}
		l.done(s, at)
		now = at
		count[s.namespace]++
		order = append(order, s.namespace+" "+s.name)
	}
	if want := []string{"aaa", "mmm", "zzz"}; count["mmm"] != 3 || count["zzz"] != 4 || count["aaa"] != 113 {
		t.Errorf("of %v: %v events, want 113, 3 and 4", want, count)
	}
	for _, name := range []string{"mmm a", "mmm b", "mmm c", "zzz a", "zzz b", "zzz c", "zzz web"} {
		if i := slices.Index(order, name); i < 0 || i >= 11 {
			t.Errorf("%s is reported as number %d: %v", name, i+1, order[:12])
		}
	}
	if slices.Index(order, "zzz web") > slices.Index(order, "zzz a") {
		t.Errorf("the pod, which only this node knows, comes after the policy: %v", order[:12])
	}
	l.report(nil, 1, now.Add(2*repeatAfter))
	if len(l.attempted) != 0 {
		t.Errorf("%d namespaces remembered without a subject", len(l.attempted))
	}
}

func TestWhatIsOverBeforeItIsToldIsNotTold(t *testing.T) {
	l := newLedger("a")
	web := subject{kind: "Pod", namespace: "shop", name: "web", local: true}
	for i := range 100 { // comes and goes
		now := start.Add(time.Duration(i) * time.Minute)
		l.report(map[subject]message{web: {note: "n"}}, 1, now)
		if got := told(l, now, now.Add(localAfter-1)); len(got) > 0 {
			t.Fatalf("told %v of what lasted for less than %v", got, localAfter)
		}
		l.report(nil, 1, now.Add(localAfter-1))
	}
	if len(l.entries) != 0 {
		t.Errorf("%d entries kept of what was never told", len(l.entries))
	}
}

func TestAFailureIsTriedAgainLaterAndLater(t *testing.T) {
	l := newLedger("a")
	l.report(shared("db"), 1, start)
	var waits []time.Duration
	for now := start; len(waits) < 12; {
		s, at, _ := l.next(now)
		waits = append(waits, at.Sub(now))
		now = at
		l.failed(s, now)
	}
	if waits[0] > leastSpread || waits[1] != firstRetry || waits[2] != 2*firstRetry || waits[11] != lastRetry {
		t.Errorf("waits %v, want at most a second, %v, doubling to %v", waits, firstRetry, lastRetry)
	}
	// What changed is tried soon.
	now := start.Add(24 * time.Hour)
	s, _, _ := l.next(now)
	l.failed(s, now)
	l.report(map[subject]message{s: {note: "new"}}, 1, now)
	if _, at, _ := l.next(now); at.After(now.Add(leastSpread)) {
		t.Errorf("a new message waits for %v", at.Sub(now))
	}
}

func TestMemoryIsBoundedHoweverManyObjectsComeAndGo(t *testing.T) {
	l := newLedger("a")
	for round := range 5 {
		all := map[subject]message{}
		for i := range maxSubjects {
			all[subject{kind: "NetworkPolicy", namespace: "shop", name: fmt.Sprintf("%d-%d", round, i)}] = message{note: "n"}
		}
		now := start.Add(time.Duration(round) * 20 * time.Minute)
		l.report(all, 1, now)
		if n := l.present(); n != maxSubjects {
			t.Errorf("%d of %d present", n, maxSubjects)
		}
		told(l, now, now.Add(20*time.Minute))
		if len(l.entries) > maxSubjects {
			t.Fatalf("%d entries, more than %d", len(l.entries), maxSubjects)
		}
	}
}
