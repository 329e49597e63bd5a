package tcpreset

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/margay-project/margay/pkg/nflog"
)

// The bounds of a Watcher. One copy is enough to end a flow. A pod that forges many packets of a flow that has ended costs the agent
// at most copiesRate resets a second. But then the Watcher misses copies of other pods' flows.
const (
	copiedBytes    = 128     // of a packet: its headers, some of them IPv6 extensions
	copiesRate     = 2000    // read per second
	copiesBuffered = 1 << 20 // bytes
)

// Watcher resets the receivers of the packets that rules copy to an NFLOG group.
type Watcher struct {
	reader       *nflog.Reader
	sender       *Sender
	limit        limit
	sent, failed atomic.Uint64
	held         atomic.Uint64
}

// Counts are counts since a Watcher was opened.
type Counts struct {
	Sent   uint64 // packets whose receivers were reset
	Failed uint64 // packets for which no reset could be sent
	Held   uint64 // packets that became no resets: another one of their direction of the connection had, just before
	Lost   uint64 // copies that the kernel dropped: their receivers notice the end when they send a packet themselves
}

// Watch begins to collect the copies of a group, in the calling thread's network namespace. It needs the capabilities NET_ADMIN
// and NET_RAW.
func Watch(group uint16) (*Watcher, error) {
	sender, err := Open()
	if err != nil {
		return nil, err
	}
	reader, err := nflog.Open(nflog.Options{Group: group, CopyRange: copiedBytes, Rate: copiesRate, Buffer: copiesBuffered})
	if err != nil {
		return nil, errors.Join(err, sender.Close())
	}
	return &Watcher{reader: reader, sender: sender}, nil
}

// Run sends resets until the context ends, which is no error. It counts packets that cannot be answered and goes on.
func (w *Watcher) Run(ctx context.Context) error {
	return w.reader.Run(ctx, func(p nflog.Packet) {
		s, err := parse(p.Payload)
		if err == nil && !w.limit.due(s.direction(), time.Now()) {
			w.held.Add(1)
			return
		}
		if err := w.sender.Reset(p.Payload); err != nil {
			w.failed.Add(1)
		} else {
			w.sent.Add(1)
		}
	})
}

// Counts returns the counts so far. Any goroutine may call it.
func (w *Watcher) Counts() Counts {
	return Counts{Sent: w.sent.Load(), Failed: w.failed.Load(), Held: w.held.Load(), Lost: w.reader.Stats().Lost}
}

// Close releases the group and the sockets, after Run.
func (w *Watcher) Close() error { return errors.Join(w.reader.Close(), w.sender.Close()) }
