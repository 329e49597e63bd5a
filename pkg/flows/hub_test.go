package flows

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

var began = time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC)

// numbered are records a second apart, by number: the time says it, and odd ones are denials.
func numbered(from, to int) (list []*Record) {
	for n := from; n < to; n++ {
		list = append(list, record(func(r *Record) {
			r.Time = began.Add(time.Duration(n) * time.Second)
			if n%2 == 0 {
				r.Verdict = Allow
			}
		}))
	}
	return list
}

func number(r *Record) int { return int(r.Time.Sub(began) / time.Second) }

// wantNext demands the records of these numbers, taken in one or several steps.
func wantNext(t *testing.T, s *Subscription, lost uint64, numbers ...int) {
	t.Helper()
	var got []int
	for len(got) < len(numbers) {
		list, missed, err := s.Next(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		if missed != lost {
			t.Errorf("%d lost before record %d, want %d", missed, number(list[0]), lost)
		}
		lost = 0
		for _, r := range list {
			got = append(got, number(r))
		}
	}
	for i := range numbers {
		if got[i] != numbers[i] {
			t.Fatalf("records %v, want %v", got, numbers)
		}
	}
}

func TestEverySubscriberGetsEveryRecord(t *testing.T) {
	h := NewHub(8)
	a, b := h.Subscribe(Filter{}, began), h.Subscribe(Filter{}, began)
	defer a.Close()
	defer b.Close()
	denied := h.Subscribe(mustFilter(t, "verdict=deny"), began)
	defer denied.Close()
	for n := 0; n < 30; n += 3 {
		h.Publish(numbered(n, n+3))
		wantNext(t, a, 0, n, n+1, n+2)
		wantNext(t, b, 0, n, n+1, n+2)
	}
	wantNext(t, denied, 11, 23, 25, 27, 29)
	if n := h.Subscribers(); n != 3 {
		t.Errorf("%d subscribers, want 3", n)
	}
	b.Close()
	if n := h.Subscribers(); n != 2 {
		t.Errorf("%d subscribers after one has gone, want 2", n)
	}
}

// A subscriber that takes nothing loses the oldest records that it wants, and is the only one to.
func TestASlowSubscriberLosesTheOldestAlone(t *testing.T) {
	h := NewHub(4)
	slow, slowDenied, fast := h.Subscribe(Filter{}, began), h.Subscribe(mustFilter(t, "verdict=deny"), began), h.Subscribe(Filter{}, began)
	for n := range 11 {
		h.Publish(numbered(n, n+1))
		wantNext(t, fast, 0, n)
	}
	wantNext(t, slow, 7, 7, 8, 9, 10)
	wantNext(t, slowDenied, 3, 7, 9)
	h.Publish(numbered(11, 12))
	wantNext(t, slow, 0, 11)
}

func TestSubscribeSince(t *testing.T) {
	h := NewHub(4)
	at := func(n int) time.Time { return began.Add(time.Duration(n) * time.Second) }
	h.Publish(numbered(0, 3))
	early := h.Subscribe(Filter{}, began.Add(-time.Hour))
	if !early.From().IsZero() {
		t.Errorf("nothing was replaced, and records before %v are said to be", early.From())
	}
	wantNext(t, early, 0, 0, 1, 2)
	h.Publish(numbered(3, 6))
	for _, tt := range []struct {
		since int
		from  time.Time
		want  []int
	}{
		{-1, at(2), []int{2, 3, 4, 5}}, {1, at(2), []int{2, 3, 4, 5}}, {2, time.Time{}, []int{2, 3, 4, 5}}, {5, time.Time{}, []int{5}},
	} {
		s := h.Subscribe(Filter{}, at(tt.since))
		if !s.From().Equal(tt.from) {
			t.Errorf("since %d: kept from %v, want %v", tt.since, s.From(), tt.from)
		}
		wantNext(t, s, 0, tt.want...)
		s.Close()
	}
	// What comes may be older than what is asked for: a new agent reads what the buffer has kept.
	s := h.Subscribe(Filter{}, at(8))
	h.Publish(numbered(6, 10))
	wantNext(t, s, 0, 8, 9)
}

func TestNextWaitsForWhatFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(4)
		s := h.Subscribe(mustFilter(t, "verdict=deny"), began)
		got := make(chan int, 1)
		go func() {
			list, _, err := s.Next(t.Context(), 5)
			if err != nil {
				t.Error(err)
				close(got)
				return
			}
			got <- number(list[0])
		}()
		h.Publish(numbered(0, 1))
		synctest.Wait()
		select {
		case n := <-got:
			t.Fatalf("record %d does not fit", n)
		default:
		}
		h.Publish(numbered(1, 2))
		if n := <-got; n != 1 {
			t.Errorf("record %d, want 1", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := s.Next(ctx, 5); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the end of the context", err)
		}
	})
}

// Publishing waits for nobody and keeps nothing for a subscriber alone, so slow ones cost no memory.
func TestMemoryIsBoundedWhateverSubscribersDo(t *testing.T) {
	h := NewHub(Kept)
	var subs []*Subscription
	for range 100 {
		subs = append(subs, h.Subscribe(Filter{}, began))
	}
	bytes := testing.AllocsPerRun(10, func() {
		var none []*Record
		h.Publish(none)
	})
	list := numbered(0, 3*Kept)
	bytes += testing.AllocsPerRun(1, func() { h.Publish(list) })
	if bytes != 0 {
		t.Errorf("publishing to 100 subscribers that take nothing makes %v allocations, want none", bytes)
	}
	// The bound that docs/operations.md states: what records are made of, and their texts with room to spare.
	if size := Kept * (unsafe.Sizeof(Record{}) + unsafe.Sizeof(Peer{}) + 128); size > 2<<20+2<<19 {
		t.Errorf("%d records take %d bytes", Kept, size)
	}
	for _, s := range subs {
		// Published twice: AllocsPerRun warms up.
		if _, lost, err := s.Next(t.Context(), 1); err != nil || lost != 5*Kept {
			t.Fatalf("lost %d (%v), want %d", lost, err, 5*Kept)
		}
	}
}
