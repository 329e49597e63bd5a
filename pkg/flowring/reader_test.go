package flowring

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/flows"
)

// ring is a ring buffer without a kernel.
type ring struct {
	events   chan bpf.Event
	closed   chan struct{}
	once     sync.Once
	deadline time.Time
	err      error // of the next Read
}

func newRing() *ring { return &ring{events: make(chan bpf.Event, 2000), closed: make(chan struct{})} }

func (r *ring) SetDeadline(at time.Time) { r.deadline = at }

func (r *ring) Close() error {
	r.once.Do(func() { close(r.closed) })
	return nil
}

func (r *ring) Read() (bpf.Event, error) {
	if r.err != nil {
		return bpf.Event{}, r.err
	}
	select {
	case e := <-r.events:
		return e, nil
	default:
	}
	var over <-chan time.Time
	if !r.deadline.IsZero() {
		over = time.After(time.Until(r.deadline))
	}
	select {
	case e := <-r.events:
		return e, nil
	case <-over:
		return bpf.Event{}, os.ErrDeadlineExceeded
	case <-r.closed:
		return bpf.Event{}, os.ErrClosed
	}
}

// run reads a ring in a bubble whose monotonic clock begins with it. Records have the ifindex as their endpoint's name.
type run struct {
	t       *testing.T
	ring    *ring
	began   time.Time
	mu      sync.Mutex    // of all that follows: the reader has a goroutine of its own
	set     time.Duration // by how much the time of day has been set
	awaited bool
	got     []*flows.Record
	batches int
	done    chan error
}

func start(t *testing.T) *run {
	r := &run{t: t, ring: newRing(), began: time.Now(), awaited: true, done: make(chan error, 1)}
	reader := New(Options{
		Events: r.ring, Names: noRules{}, Rules: noRules{},
		Name: func(_ context.Context, batch []flows.Unnamed) {
			for _, u := range batch {
				u.Record.Endpoint = string(rune('a' + u.Ifindex))
			}
		},
		Publish: func(list []*flows.Record) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.got, r.batches = append(r.got, list...), r.batches+1
		},
		Awaited: func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.awaited
		},
		Clock: func() (uint64, time.Time) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return uint64(time.Since(r.began)), time.Now().Add(r.set)
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { r.done <- reader.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-r.done; err != nil {
			t.Error(err)
		}
	})
	return r
}

// write puts an event in place whose time is that long ago.
func (r *run) write(ifindex uint32, ago time.Duration) {
	r.ring.events <- bpf.Event{Ifindex: ifindex, TimeNs: uint64(time.Since(r.began) - ago)}
}

// alter calls do, which changes how the reader's environment answers.
func (r *run) alter(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
}

// published is what the reader has published, and in how many batches.
func (r *run) published() ([]*flows.Record, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got), r.batches
}

func (r *run) names() string {
	names := ""
	got, _ := r.published()
	for _, rec := range got {
		names += rec.Endpoint
	}
	return names
}

func TestRecordsComeInTheOrderOfTheirTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		time.Sleep(time.Second)
		r.write(1, 0)
		r.write(0, time.Millisecond) // was interrupted
		r.write(3, 0)
		time.Sleep(19*time.Millisecond + 500*time.Microsecond)
		r.write(5, 0) // is too young for the first drain: an earlier one may come
		time.Sleep(time.Millisecond)
		if got := r.names(); got != "abd" {
			t.Errorf("after the first drain %q, want abd", got)
		}
		r.write(4, 2*time.Millisecond)
		time.Sleep(100 * time.Millisecond)
		if got := r.names(); got != "abdef" {
			t.Errorf("%q, want abdef", got)
		}
		got, _ := r.published()
		for i, rec := range got[1:] {
			if rec.Time.Before(got[i].Time) {
				t.Errorf("%v after %v", rec.Time, got[i].Time)
			}
		}
	})
}

func TestTimesAreThoseOfTheVerdicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t)
		time.Sleep(time.Second)
		now := time.Now()
		r.write(0, 0)
		r.write(0, 300*time.Millisecond)
		time.Sleep(time.Second)
		r.alter(func() { r.set = time.Hour }) // a clock that was wrong is set
		r.write(0, 0)
		time.Sleep(time.Second)
		want := []time.Time{now.Add(-300 * time.Millisecond), now, now.Add(time.Second + time.Hour)}
		records, _ := r.published()
		for i := range want {
			if got := records[i].Time; !got.Equal(want[i]) || got.Location() != time.UTC {
				t.Errorf("event %d at %v, want %v in UTC", i, got, want[i])
			}
		}
	})
}

// While nobody waits the reader wakes at most five times a second, however many events there are.
func TestEventsAreDrainedAtLeisureWhileNobodyWaits(t *testing.T) {
	for awaited, most := range map[bool]int{false: 6, true: 51} {
		synctest.Test(t, func(t *testing.T) {
			r := start(t)
			r.alter(func() { r.awaited = awaited })
			for range 1000 {
				r.write(0, 0)
				time.Sleep(time.Millisecond)
			}
			time.Sleep(time.Second)
			if got, batches := r.published(); len(got) != 1000 || batches > most || batches < most-6 {
				t.Errorf("awaited %v: %d records in %d batches, want 1000 in at most %d", awaited, len(got), batches, most)
			}
		})
	}
}

func TestReadingEndsWithItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		events := newRing()
		events.err = broken
		err := New(Options{Events: events, Awaited: func() bool { return true }}).Run(t.Context())
		if !errors.Is(err, broken) {
			t.Errorf("%v, want %v", err, broken)
		}
		select {
		case <-events.closed:
		default:
			t.Error("the ring is left open")
		}
	})
}

// The records of a batch are named together, and get no other names when their numbers are used again.
func TestRulesAreReadOncePerBatch(t *testing.T) {
	rules := &counted{}
	d := newDecoder(rules, rules)
	for range 3 {
		d.record(&bpf.Event{RuleId: 1, Nlogs: 1, Slot: 4, Generation: 2}, time.Time{})
	}
	if diff := cmp.Diff(counted{names: 1, tables: 1}, *rules, cmp.AllowUnexported(counted{})); diff != "" {
		t.Error(diff)
	}
}

type counted struct{ names, tables int }

func (c *counted) Rule(uint32) (string, bool, error) {
	c.names++
	return "default/knp/shop/db#ingress[0]", true, nil
}

func (c *counted) ReadRules(uint32) ([]bpf.Rule, error) {
	c.tables++
	return nil, nil
}

type noRules struct{}

func (noRules) Rule(uint32) (string, bool, error) { return "", false, nil }

func (noRules) ReadRules(uint32) ([]bpf.Rule, error) { return nil, nil }
