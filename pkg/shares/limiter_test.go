package shares

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/margay-project/margay/pkg/further"
	"github.com/margay-project/margay/pkg/model"
)

// newLimiter returns a limiter of the table, its log, and the number of its notices.
func newLimiter(f *Fake) (l *Limiter, log *bytes.Buffer, notices *int) {
	log, notices = &bytes.Buffer{}, new(int)
	ends := testEnds()
	return New(f, func() *Ends { return ends }, func() { *notices++ }, slog.New(slog.NewTextHandler(log, nil))), log, notices
}

// passes looks until there is nothing to do at once.
func passes(l *Limiter) (wait time.Duration) {
	for wait == 0 {
		wait = l.Look()
	}
	return wait
}

func TestATableWithRoomIsNotRead(t *testing.T) {
	f := &Fake{Limit: 800}
	f.Open(599, podA, outside, judgedMark)
	l, log, _ := newLimiter(f)
	if wait := passes(l); f.Dumps() > 0 || wait != period || log.Len() > 0 {
		t.Errorf("%d dumps, the next look after %v: %s", f.Dumps(), wait, log)
	}
}

func TestTheOneWithMostLosesTheMost(t *testing.T) {
	f := &Fake{Limit: 800}
	f.Open(500, podA, outside, judgedMark)
	f.Open(60, podB, outside, judgedMark)
	f.Open(60, node, outside, judgedMark)
	l, log, notices := newLimiter(f)
	if wait := passes(l); wait != period {
		t.Errorf("the next look is after %v", wait)
	}
	if a, b, n := f.OpenedBy(podA), f.OpenedBy(podB), f.OpenedBy(node); a != 380 || b != 60 || n != 60 {
		t.Errorf("left: %d of a, %d of b, %d of the node", a, b, n)
	}
	if f.Dumps() != 2 || l.Removed() != 120 || *notices != 1 {
		t.Errorf("%d dumps, %d removed, %d notices", f.Dumps(), l.Removed(), *notices)
	}
	if text := log.String(); !strings.Contains(text, "shop/a had 500 and lost 120") || strings.Contains(text, "shop/b") {
		t.Error(text)
	}
	if all := l.Findings(); len(all) != 1 || !strings.HasPrefix(all[idA], "120 of its connections were removed") {
		t.Errorf("%v", all)
	}
}

// An endpoint that opens connections while others of it are removed keeps no more than its share.
func TestAFloodIsRemovedInEachPass(t *testing.T) {
	f := &Fake{Limit: 800}
	f.Open(20, podB, outside, judgedMark)
	f.During = func(int) { f.Open(100, podA, outside, judgedMark) }
	l, _, _ := newLimiter(f)
	for turn := range 12 {
		f.Open(700-len(f.Entries()), podA, outside, judgedMark)
		passes(l)
		if a, b := f.OpenedBy(podA), f.OpenedBy(podB); a != 480 || b != 20 || f.Dumps() != 2*(turn+1) {
			t.Fatalf("%d of a and %d of b after %d dumps", a, b, f.Dumps())
		}
	}
}

// Connections of the node fill the table: those of endpoints keep their room, and the table is not read all the time.
func TestWhatTheNodeOccupiesIsNotTheFaultOfEndpoints(t *testing.T) {
	f := &Fake{Limit: 800}
	f.Open(640, node, outside, judgedMark)
	f.Open(150, podA, outside, judgedMark)
	l, log, _ := newLimiter(f)
	if wait := passes(l); wait == 0 || f.Dumps() != 1 || len(f.Entries()) != 790 || log.Len() > 0 {
		t.Errorf("%d left after %d dumps, the next look after %v: %s", len(f.Entries()), f.Dumps(), wait, log)
	}
}

func TestNothingIsRemovedBeforePolicyIsInForce(t *testing.T) {
	f := &Fake{Limit: 800}
	f.Open(800, podA, outside, judgedMark)
	l := New(f, func() *Ends { return nil }, func() {}, slog.New(slog.DiscardHandler))
	if passes(l); f.Dumps() > 0 {
		t.Errorf("%d dumps", f.Dumps())
	}
}

func TestFailuresAreTriedAgainAndLoggedOnce(t *testing.T) {
	for what, fail := range map[string]func(*Fake, error){
		"dump":   func(f *Fake, err error) { f.Fails = err },
		"delete": func(f *Fake, err error) { f.Refuses = err },
	} {
		t.Run(what, func(t *testing.T) {
			f := &Fake{Limit: 800}
			f.Open(800, podA, outside, judgedMark)
			fail(f, errors.New("netlink is out of order"))
			l, log, _ := newLimiter(f)
			last := time.Duration(0)
			for range 20 {
				wait := passes(l)
				if wait < last || wait > longest {
					t.Fatalf("the next look is after %v, after %v before", wait, last)
				}
				last = wait
			}
			if last != longest || strings.Count(log.String(), "out of order") != 1 || l.Removed() != 0 {
				t.Errorf("after %v, %d removed: %s", last, l.Removed(), log)
			}
			fail(f, nil)
			if wait := passes(l); wait != period || len(f.Entries()) != 500 {
				t.Errorf("%d left, the next look after %v", len(f.Entries()), wait)
			}
		})
	}
}

// Connections that have ended since they were read, and a limit that changes.
func TestATableThatChanges(t *testing.T) {
	f := &Fake{Limit: 800}
	f.Open(700, podA, outside, judgedMark)
	f.During = func(dumps int) {
		if dumps == 2 {
			f.Limit = 2000
		}
	}
	l, _, _ := newLimiter(f)
	if wait := passes(l); wait != period {
		t.Errorf("the next look is after %v", wait)
	}
	dumps := f.Dumps()
	f.Limit = 0
	if passes(l); f.Dumps() != dumps {
		t.Error("a table without a limit is read")
	}
}

func TestReportsEnd(t *testing.T) {
	var p report
	began := time.Now()
	loss := round{entries: 700, limit: 800, share: 300, all: 10, losers: []loser{{idA, 400, 10}}}
	lines := 0
	for after := time.Duration(0); after < 5*time.Minute; after += time.Second {
		r := round{}
		if after < 2*time.Minute {
			r = loss
		}
		p.add(r, began.Add(after))
		if p.line(began.Add(after)) != nil {
			lines++
		}
		if reported := len(p.findings) > 0; reported != (after < 3*time.Minute) {
			t.Fatalf("after %v: reported %t", after, reported)
		}
	}
	if lines != 5 || p.removed != 1200 {
		t.Errorf("%d lines about %d connections", lines, p.removed)
	}
	many := round{all: 5}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		many.losers = append(many.losers, loser{model.WorkloadID("t", name), 9, 1})
	}
	p.add(many, began.Add(time.Hour))
	if line := p.line(began.Add(time.Hour)); line == nil || line[0].Value.String() != "t/a had 9 and lost 1; t/b had 9 and lost 1; t/c had 9 and lost 1; 2 more" {
		t.Errorf("%v", line)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &Fake{Limit: 800}
		l, _, _ := newLimiter(f)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { l.Run(ctx); close(ended) }()
		time.Sleep(time.Minute) // of the bubble's clock
		synctest.Wait()
		f.Open(800, podA, outside, judgedMark)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(f.Entries()); n != 500 {
			t.Errorf("%d are left", n)
		}
		cancel()
		<-ended
	})
}

// An endpoint that fills the table from a further source loses connections, others do not. While routes cannot be read, none of its are
// removed, and the log has that once.
func TestConnectionsOfFurtherSourcesAreLimited(t *testing.T) {
	f := &Fake{Limit: 800}
	behind := netip.MustParseAddr("203.0.113.7")
	f.Open(600, behind, outside, judgedMark)
	f.Open(60, podB, outside, judgedMark)
	l, log, _ := newLimiter(f)
	ends := *l.ends()
	routes := ends.routes
	l.ends = func() *Ends { return &ends }
	ends.routes = func(map[string]bool) ([]further.Route, error) { return nil, errors.New("no routes") }
	passes(l)
	passes(l)
	if f.OpenedBy(behind) != 600 || f.OpenedBy(podB) != 60 || strings.Count(log.String(), "no routes") != 1 {
		t.Errorf("without routes %d and %d are left: %s", f.OpenedBy(behind), f.OpenedBy(podB), log)
	}
	ends.routes = routes
	passes(l)
	if f.OpenedBy(behind) != 440 || f.OpenedBy(podB) != 60 || !strings.Contains(l.Findings()[idA], "were removed") {
		t.Errorf("%d and %d are left: %v", f.OpenedBy(behind), f.OpenedBy(podB), l.Findings())
	}
}

// A full table of connections is logged once, and that it has room again. The numbers are those of the last look.
func TestAFullTableIsLogged(t *testing.T) {
	f := &Fake{Limit: 1000}
	l, log, _ := newLimiter(f)
	l.ends = func() *Ends { return nil } // before policy is in force, too
	if entries, limit := l.Use(); entries != 0 || limit != 0 {
		t.Errorf("%d of %d before the first look", entries, limit)
	}
	for _, step := range []struct {
		entries, lines int
		last           string
	}{{100, 0, ""}, {989, 0, ""}, {1000, 1, "is full"}, {999, 1, "is full"}, {1000, 1, "is full"}, {899, 2, "has room again"}, {1001, 3, "is full"}} {
		f.Clear()
		f.Open(step.entries, podA, outside, judgedMark)
		l.Look()
		if lines := strings.Count(log.String(), "\n"); lines != step.lines || !strings.Contains(log.String(), step.last) {
			t.Errorf("with %d of 1000 there are %d lines: %s", step.entries, lines, log)
		}
		if entries, limit := l.Use(); entries != uint32(step.entries) || limit != 1000 {
			t.Errorf("%d of %d, want %d of 1000", entries, limit, step.entries)
		}
	}
	f.Limit = 0 // the kernel does not track connections any more
	l.Look()
	if _, limit := l.Use(); limit != 0 || strings.Count(log.String(), "\n") != 3 {
		t.Errorf("without a table: limit %d, log %s", limit, log)
	}
}
