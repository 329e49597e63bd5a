package packetlog

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/margay-project/margay/pkg/flows"
	"github.com/margay-project/margay/pkg/nflog"
)

const (
	// gather is the time for which copies are collected, so that one call of Decide serves many.
	gather = 20 * time.Millisecond
	// waiting bounds the copies that wait during a call of Decide. Others are lost, and counted.
	waiting = 1024
	// copied is the number of bytes read of each packet: its headers, some of them IPv6 extensions.
	copied = 128
	// rate bounds the copies read per second.
	rate = 2000
)

// Options of a Reader. Run's goroutine calls the functions.
type Options struct {
	Group uint16
	// Decide makes records of copies: for each copy the records of the endpoints whose policy decided, if any. A record has the time
	// of its copy. The names of its ends are filled in later. Its Suppressed counts the copies before it that Decide left out.
	Decide  func(context.Context, []Copy) []flows.Unnamed
	Name    func(context.Context, []flows.Unnamed) // fills in Endpoint, Interface and Peer of a batch
	Publish func([]*flows.Record)
}

// Reader reads the copies of one group.
type Reader struct {
	o       Options
	copies  *nflog.Reader
	dropped atomic.Uint64
	shown   uint64 // lost copies that records have reported
}

// Open begins to collect copies, in the calling thread's network namespace.
func Open(o Options) (*Reader, error) {
	copies, err := nflog.Open(nflog.Options{Group: o.Group, CopyRange: copied, Rate: rate, Batch: 32, Delay: gather, Buffer: 256 << 10})
	if err != nil {
		return nil, err
	}
	return &Reader{o: o, copies: copies}, nil
}

// Lost returns the number of copies without records, because there were too many.
func (r *Reader) Lost() uint64 { return r.copies.Stats().Lost + r.dropped.Load() }

// Read returns the number of copies that have records or are about to get them.
func (r *Reader) Read() uint64 { return r.copies.Stats().Read - r.dropped.Load() }

// Close frees the group, after Run.
func (r *Reader) Close() error { return r.copies.Close() }

// Run publishes records until ctx ends, which is no error, or reading fails.
func (r *Reader) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	queue := make(chan Copy, waiting)
	ended := make(chan error, 1)
	go func() {
		ended <- r.copies.Run(ctx, func(p nflog.Packet) { r.enqueue(queue, p) })
		cancel()
	}()
	for {
		select {
		case <-ctx.Done():
			return <-ended
		case first := <-queue:
			r.publish(ctx, drain(ctx, first, queue))
		}
	}
}

// enqueue never waits, so that a slow dataplane does not delay the reading of copies. Without room in the queue the copy is lost.
func (r *Reader) enqueue(queue chan<- Copy, p nflog.Packet) {
	c, ok := decode(p, time.Now())
	if !ok {
		return
	}
	select {
	case queue <- c:
	default:
		r.dropped.Add(1)
	}
}

// drain returns the first copy and those that follow within gather.
func drain(ctx context.Context, first Copy, queue <-chan Copy) []Copy {
	batch := []Copy{first}
	soon := time.NewTimer(gather)
	defer soon.Stop()
	for len(batch) < waiting {
		select {
		case c := <-queue:
			batch = append(batch, c)
		case <-soon.C:
			return batch
		case <-ctx.Done():
			return batch
		}
	}
	return batch
}

func (r *Reader) publish(ctx context.Context, batch []Copy) {
	unnamed := r.o.Decide(ctx, batch)
	if len(unnamed) == 0 {
		return
	}
	r.o.Name(ctx, unnamed)
	records := make([]*flows.Record, len(unnamed))
	for i, u := range unnamed {
		records[i] = u.Record
	}
	lost := r.Lost()
	records[0].Suppressed = uint16(min(lost-r.shown+uint64(records[0].Suppressed), math.MaxUint16))
	r.shown = lost
	r.o.Publish(records)
}
