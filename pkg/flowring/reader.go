package flowring

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/flows"
)

const (
	// atOnce is how long events are gathered while a subscriber waits for them, and atLeisure without one: the buffer
	// has room for more than 7,000.
	atOnce    = 20 * time.Millisecond
	atLeisure = 200 * time.Millisecond

	// skew is how much later than its place in the buffer an event's time may be: the program that writes it may be
	// interrupted between the two. Events that are younger wait for others that may come before them.
	skew = 5 * time.Millisecond

	// most is how many events are drained at once.
	most = 8192
)

// Events reads the ring buffer; bpfmaps.Events does. Read returns os.ErrDeadlineExceeded once the deadline is over and
// nothing is left, and os.ErrClosed after Close.
type Events interface {
	Read() (bpf.Event, error)
	SetDeadline(time.Time)
	Close() error
}

// Options are what a Reader works with.
type Options struct {
	Events  Events
	Names   Names
	Rules   Rules
	Name    func(context.Context, []flows.Unnamed) // fills in Endpoint, Interface and Peer of a batch
	Publish func([]*flows.Record)                  // takes records in the order of their times
	Awaited func() bool                            // whether somebody waits for records
	Clock   func() (boot uint64, at time.Time)     // the kernel's monotonic clock in ns, and the time; nil: the real ones
}

// Reader drains the ring buffer.
type Reader struct {
	o       Options
	pending []bpf.Event // read, and not published
	offset  time.Duration
}

// New makes a Reader; nothing happens before Run.
func New(o Options) *Reader {
	if o.Clock == nil {
		o.Clock = clocks
	}
	return &Reader{o: o}
}

// clocks reads the monotonic clock that the programs use, and the time of day.
func clocks() (uint64, time.Time) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, time.Now()
	}
	return uint64(now.Nano()), time.Now()
}

// Run publishes events until ctx ends (then it returns nil) or reading fails. It closes Events. Without events it costs
// nothing; with them it wakes at most once in atLeisure, or in atOnce if somebody waits.
func (r *Reader) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { r.o.Events.Close() })
	defer stop()
	err := r.run(ctx)
	if ctx.Err() != nil {
		err = nil
	}
	return errors.Join(err, r.o.Events.Close())
}

func (r *Reader) run(ctx context.Context) error {
	gather := time.NewTimer(0)
	defer gather.Stop()
	for {
		if err := r.await(); err != nil {
			return err
		}
		gather.Reset(r.pace())
		select {
		case <-gather.C:
		case <-ctx.Done():
			return nil
		}
		boot, at := r.o.Clock()
		if err := r.drain(); err != nil {
			return err
		}
		r.publish(ctx, boot, at)
	}
}

func (r *Reader) pace() time.Duration {
	if r.o.Awaited() {
		return atOnce
	}
	return atLeisure
}

// await waits for an event; not for long if there are some that wait to be published.
func (r *Reader) await() error {
	deadline := time.Time{}
	if len(r.pending) > 0 {
		deadline = time.Now().Add(skew)
	}
	r.o.Events.SetDeadline(deadline)
	e, err := r.o.Events.Read()
	switch {
	case err == nil:
		r.pending = append(r.pending, e)
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return err
	}
	return nil
}

// drain reads all events in the ring.
func (r *Reader) drain() error {
	r.o.Events.SetDeadline(time.Now())
	for range most {
		e, err := r.o.Events.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
		r.pending = append(r.pending, e)
	}
	return nil
}

// publish publishes the events that are old enough for all earlier ones to have been read. boot and at are the clocks
// before the last drain.
func (r *Reader) publish(ctx context.Context, boot uint64, at time.Time) {
	slices.SortStableFunc(r.pending, func(a, b bpf.Event) int { return cmp.Compare(a.TimeNs, b.TimeNs) })
	n, _ := slices.BinarySearchFunc(r.pending, boot, func(e bpf.Event, boot uint64) int {
		return cmp.Compare(e.TimeNs+uint64(skew), boot+1)
	})
	if n == 0 {
		return
	}
	// Both clocks cannot be read at the same moment. Unless one was set, the difference stays.
	offset := time.Duration(at.UnixNano() - int64(boot))
	if d := offset - r.offset; d < -time.Millisecond || d > time.Millisecond {
		r.offset = offset
	}
	decode := newDecoder(r.o.Names, r.o.Rules)
	unnamed, records := make([]flows.Unnamed, n), make([]*flows.Record, n)
	for i := range records {
		e := &r.pending[i]
		records[i] = decode.record(e, time.Unix(0, int64(e.TimeNs)).Add(r.offset).UTC())
		unnamed[i] = flows.Unnamed{Ifindex: e.Ifindex, Record: records[i]}
	}
	r.pending = slices.Delete(r.pending, 0, n)
	r.o.Name(ctx, unnamed)
	r.o.Publish(records)
}
