package bpfmaps

import (
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// A call that changes an array of maps takes effect at once, and returns after an RCU grace period: 3 ms on an idle machine, 20
// ms on a busy one. Nothing here needs that period: no packet uses the slots that are filled, and a caller that finds a longer array
// of rows finds in it what the one before had. So the call has a goroutine of its own, and the caller looks when its effect
// is there.

// mostCalls is how many may be under way at once. Each of them keeps a thread.
const mostCalls = 60

const (
	patience = 50 * time.Microsecond // how long a caller looks for the effect without a pause
	napTime  = 50 * time.Microsecond // the pause
)

// calls are the calls under way.
type calls struct {
	update   func(outer *ebpf.Map, slots, fds []uint32) error
	sleep    func()        // while the effect is not there
	underWay chan struct{} // has one for each
}

func newCalls() calls {
	return calls{underWay: make(chan struct{}, mostCalls), sleep: nap, update: func(outer *ebpf.Map, slots, fds []uint32) error {
		_, err := outer.BatchUpdate(slots, fds, nil)
		return err
	}}
}

// call is one of them.
type call struct {
	outer *ebpf.Map
	slot  uint32 // the last that it writes
	was   uint32 // the id of the array that was there; 0: none
	done  chan error
	sleep func()
}

// begin puts arrays, which have to stay open until that is in effect, into an outer map. It waits if there are too many calls
// under way.
func (c *calls) begin(outer *ebpf.Map, list []placement) *call {
	slots, fds := make([]uint32, len(list)), make([]uint32, len(list))
	for i, l := range list {
		slots[i], fds[i] = l.slot, uint32(l.inner.FD())
	}
	b := &call{outer: outer, slot: slots[len(slots)-1], done: make(chan error, 1), sleep: c.sleep}
	b.was = b.id()
	c.underWay <- struct{}{}
	go func() {
		b.done <- c.update(outer, slots, fds)
		<-c.underWay
	}()
	return b
}

// id is that of the array in the last slot; 0: there is none.
func (b *call) id() uint32 {
	var id uint32
	if b.outer.Lookup(b.slot, &id) != nil {
		return 0
	}
	return id
}

// inEffect waits until all arrays are in the outer map, or the call has failed. The slots are written in their order. On an
// idle machine that is a matter of microseconds. On a busy one the call's thread has yet to get a processor, and it may be the
// one that this thread has: so this one sleeps.
func (b *call) inEffect() error {
	for began := time.Now(); ; {
		select {
		case err := <-b.done:
			return err
		default:
		}
		if id := b.id(); id != 0 && id != b.was {
			return nil
		}
		if time.Since(began) < patience {
			runtime.Gosched()
		} else {
			b.sleep()
		}
	}
}

// nap sleeps for a short while, by a call of its own: a timer of the runtime may be a millisecond late.
func nap() {
	d := unix.NsecToTimespec(int64(napTime))
	_ = unix.Nanosleep(&d, nil) // a signal ends it early
}

// wait waits until all calls have returned.
func (c *calls) wait() {
	for range mostCalls {
		c.underWay <- struct{}{}
	}
	for range mostCalls {
		<-c.underWay
	}
}
