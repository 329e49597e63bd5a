package bpfmaps

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/bpf"
)

// EventRing is the ring buffer that programs write new verdicts to.
type EventRing struct {
	ring    *ebpf.Map
	budgets *ebpf.Map // what each CPU may write
}

// Events reads the records of new verdicts. Each record goes to one reader, so there should be one.
type Events struct {
	reader *ringbuf.Reader
	record ringbuf.Record
}

// Open starts reading. Close it before the maps.
func (r *EventRing) Open() (*Events, error) {
	reader, err := ringbuf.NewReader(r.ring)
	if err != nil {
		return nil, fmt.Errorf("read map %s: %w", bpf.MargayMapEvents, err)
	}
	return &Events{reader: reader}, nil
}

// Read waits for the next record. Errors: os.ErrDeadlineExceeded, or ringbuf.ErrClosed after Close.
func (e *Events) Read() (bpf.Event, error) {
	if err := e.reader.ReadInto(&e.record); err != nil {
		return bpf.Event{}, fmt.Errorf("read map %s: %w", bpf.MargayMapEvents, err)
	}
	// The record is longer if the struct is, and the kernel rounds up; shorter is another layout.
	if len(e.record.RawSample) < int(unsafe.Sizeof(bpf.Event{})) {
		return bpf.Event{}, errors.New("a record in map " + bpf.MargayMapEvents + " is too short")
	}
	var event bpf.Event
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&event)), unsafe.Sizeof(event)), e.record.RawSample)
	return event, nil
}

// SetDeadline bounds all Reads from now on; the zero time: they wait for ever.
func (e *Events) SetDeadline(at time.Time) { e.reader.SetDeadline(at) }

// Close ends reading, a Read that waits included.
func (e *Events) Close() error { return e.reader.Close() }

// EventCounts are numbers of verdict events since the ring buffer was made.
type EventCounts struct {
	Written uint64 // by the programs
	Read    uint64 // by whoever reads; the others are in the buffer
	// Suppressed were left out, for the rate limit or because the buffer was full, since the last one that was written
	// on the same CPU: that one's successor will say so. Not a total.
	Suppressed uint64
}

// eventRecord is what one event takes in the ring buffer: a header of 8 bytes, and all of it a multiple of 8.
const eventRecord = (uint64(unsafe.Sizeof(bpf.Event{})) + unix.BPF_RINGBUF_HDR_SZ + 7) / 8 * 8

// Counts reads how far the ring buffer has been written and read. Any goroutine may ask while the maps are open.
func (r *EventRing) Counts() (EventCounts, error) {
	var c EventCounts
	read, err := r.position(0)
	if err != nil {
		return c, err
	}
	written, err := r.position(1)
	if err != nil {
		return c, err
	}
	c.Written, c.Read = written/eventRecord, read/eventRecord
	var budgets []bpf.MargayEventBudget
	if err := r.budgets.Lookup(uint32(0), &budgets); err != nil {
		return c, fmt.Errorf("read map %s: %w", bpf.MargayMapEventBudgets, err)
	}
	for _, b := range budgets {
		c.Suppressed += uint64(b.Suppressed)
	}
	return c, nil
}

// position reads a page of the ring buffer: 0 begins with how many bytes have been read ever, 1 with how many have
// been written.
func (r *EventRing) position(page int) (uint64, error) {
	size := os.Getpagesize()
	memory, err := unix.Mmap(r.ring.FD(), int64(page*size), size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, fmt.Errorf("map %s into memory: %w", bpf.MargayMapEvents, err)
	}
	position := atomic.LoadUint64((*uint64)(unsafe.Pointer(&memory[0])))
	if err := unix.Munmap(memory); err != nil {
		return 0, fmt.Errorf("unmap %s: %w", bpf.MargayMapEvents, err)
	}
	return position, nil
}
