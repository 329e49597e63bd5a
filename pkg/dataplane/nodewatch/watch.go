// Package nodewatch watches the node for every dataplane: its workload interfaces and its own addresses.
package nodewatch

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/margay-project/margay/pkg/attach"
)

// Watch knows the workload interfaces of this node and its addresses, of the network namespace that this process is in.
type Watch struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	wake   chan struct{}
	nudge  *time.Timer // the last Nudge that is to wait

	mu         sync.Mutex // guards what the watches below write
	interfaces map[string]uint32
	touched    map[uint32]bool
	addrs      []netip.Addr
}

// Open watches the interfaces whose names begin with prefix, and the node's addresses. Close ends that.
func Open(prefix string, log *slog.Logger) (*Watch, error) {
	ctx, cancel := context.WithCancel(context.Background())
	w := &Watch{cancel: cancel, wake: make(chan struct{}, 1), interfaces: map[string]uint32{},
		touched: map[uint32]bool{}}
	o := attach.WatchOptions{Logger: log}
	// The present state is known at once, so that the first look at it is complete; the watches only add changes.
	now, interfaces, err := attach.WatchInterfaces(ctx, o, prefix)
	if err != nil {
		cancel()
		return nil, err
	}
	for _, i := range now {
		w.interfaces[i.Name] = i.Ifindex
	}
	if w.addrs, err = attach.Addresses(o); err != nil {
		cancel()
		return nil, err
	}
	addresses, err := attach.WatchAddresses(ctx, o)
	if err != nil {
		cancel()
		return nil, err
	}
	w.done.Go(func() { w.followInterfaces(interfaces) })
	w.done.Go(func() { w.followAddresses(addresses) })
	return w, nil
}

func (w *Watch) followInterfaces(changes <-chan attach.Interface) {
	for i := range changes {
		w.mu.Lock()
		// The name may have been known under another number, and the number under another name.
		maps.DeleteFunc(w.interfaces, func(_ string, n uint32) bool { return n == i.Ifindex })
		if !i.Gone {
			w.interfaces[i.Name] = i.Ifindex
			w.touched[i.Ifindex] = true
		}
		w.mu.Unlock()
		w.notify()
	}
}

func (w *Watch) followAddresses(changes <-chan []netip.Addr) {
	for list := range changes {
		w.mu.Lock()
		changed := !slices.Equal(w.addrs, list)
		w.addrs = list
		w.mu.Unlock()
		if changed {
			w.notify()
		}
	}
}

func (w *Watch) notify() {
	select {
	case w.wake <- struct{}{}:
	default: // one is waiting already
	}
}

// Interfaces are the workload interfaces there are now: ifindex by name. The map is the caller's.
func (w *Watch) Interfaces() map[string]uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.interfaces)
}

// Touched are the workload interfaces, by ifindex, that something has happened to since the last call.
func (w *Watch) Touched() []uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := slices.Sorted(maps.Keys(w.touched))
	clear(w.touched)
	return list
}

// Addrs are the node's own addresses. The list must not be changed.
func (w *Watch) Addrs() []netip.Addr {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.addrs
}

// Wake delivers when Interfaces or Addrs may have changed, and after Nudge.
func (w *Watch) Wake() <-chan struct{} { return w.wake }

// Nudge has Wake deliver once more: soon, or after so long, counted from the last call that says how long.
func (w *Watch) Nudge(after time.Duration) {
	if after <= 0 {
		w.notify()
		return
	}
	if w.nudge != nil {
		w.nudge.Stop()
	}
	w.nudge = time.AfterFunc(after, w.notify)
}

// Close ends the watches, and returns when they have ended.
func (w *Watch) Close() {
	w.cancel()
	w.done.Wait()
}
