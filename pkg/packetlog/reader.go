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
	// gather is how long copies are collected, so that the dataplane is asked once for many.
	gather = 20 * time.Millisecond
	// waiting is how many copies wait at most while the dataplane is asked. Others are lost, and counted.
	waiting = 1024
	// copied is what is read of each packet: its headers, some of them IPv6 extensions.
	copied = 128
	// rate is how many copies are read per second.
	rate = 2000
)

// Options are what a Reader works with. Functions are called by Run's goroutine.
type Options struct {
	Group uint16
	// Decide makes records of copies: for each those of the endpoints whose policy decided, if any. Time is the copy's. Names of the
	// ends are filled in later. Suppressed of a record has the copies before it that Decide had no time for.
	Decide  func(context.Context, []Copy) []flows.Unnamed
	Name    func(context.Context, []flows.Unnamed) // fills in Endpoint, Interface and Peer of a batch
	Publish func([]*flows.Record)
}

// Reader reads the copies of one group.
type Reader struct {
	o       Options
	copies  *nflog.Reader
	dropped atomic.Uint64
	shown   uint64 // so many lost copies are in records already
}

// Open begins to collect copies, in the calling thread's network namespace.
func Open(o Options) (*Reader, error) {
	copies, err := nflog.Open(nflog.Options{Group: o.Group, CopyRange: copied, Rate: rate, Batch: 32, Delay: gather, Buffer: 256 << 10})
	if err != nil {
		return nil, err
	}
	return &Reader{o: o, copies: copies}, nil
}

// Lost is how many copies never became records, because there were too many.
func (r *Reader) Lost() uint64 { return r.copies.Stats().Lost + r.dropped.Load() }

// Read is how many copies there are records of, or will be.
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

// enqueue never waits: the kernel's copies are read at their pace, whatever the dataplane does.
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

// drain collects what comes soon after the first copy.
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
