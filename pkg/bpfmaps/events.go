package bpfmaps

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/margay-project/margay/bpf"
)

// Events reads the records of new verdicts. Each record goes to one reader, so there should be one.
type Events struct {
	reader *ringbuf.Reader
	record ringbuf.Record
}

// OpenEvents starts reading. Close it before m.
func (m *Maps) OpenEvents() (*Events, error) {
	reader, err := ringbuf.NewReader(m.maps[bpf.MargayMapEvents])
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
