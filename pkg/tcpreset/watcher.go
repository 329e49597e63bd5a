package tcpreset

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/margay-project/margay/pkg/conntrack"
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
	table        *conntrack.Conn
	masqueraded  string // prefix of copies for the finder
	finder       finder
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
//
// Copies with the prefix masqueraded are of connections of which the node replaces both the source and the destination, so that the
// receiver does not know one of the packet's ends. A further copy of the packet may follow without the prefix.
func Watch(group uint16, masqueraded string) (*Watcher, error) {
	sender, err := Open()
	if err != nil {
		return nil, err
	}
	table, err := conntrack.Open()
	if err != nil {
		return nil, errors.Join(err, sender.Close())
	}
	reader, err := nflog.Open(nflog.Options{Group: group, CopyRange: copiedBytes, Rate: copiesRate, Buffer: copiesBuffered})
	if err != nil {
		return nil, errors.Join(err, table.Close(), sender.Close())
	}
	return &Watcher{reader: reader, sender: sender, table: table, masqueraded: masqueraded, finder: finder{table, sender.send, make(chan segment, mostWanted)}}, nil
}

// Run sends resets until the context ends, which is no error. It counts packets that cannot be answered and goes on.
func (w *Watcher) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var finding sync.WaitGroup
	finding.Go(func() { w.finder.run(ctx, w.count) })
	defer finding.Wait()
	defer cancel()
	return w.reader.Run(ctx, w.answer)
}

func (w *Watcher) answer(p nflog.Packet) {
	s, err := parse(p.Payload)
	switch {
	case err != nil:
		w.count(err)
	case !w.limit.due(s.direction(), time.Now()):
		w.held.Add(1)
	case p.Prefix == "" || p.Prefix != w.masqueraded:
		w.count(w.sender.send(s))
	case !w.finder.want(s):
		w.held.Add(1)
	}
}

func (w *Watcher) count(err error) {
	if err != nil {
		w.failed.Add(1)
	} else {
		w.sent.Add(1)
	}
}

// Counts returns the counts so far. Any goroutine may call it.
func (w *Watcher) Counts() Counts {
	return Counts{Sent: w.sent.Load(), Failed: w.failed.Load(), Held: w.held.Load(), Lost: w.reader.Stats().Lost}
}

// Close releases the group and the sockets, after Run.
func (w *Watcher) Close() error {
	return errors.Join(w.reader.Close(), w.table.Close(), w.sender.Close())
}
