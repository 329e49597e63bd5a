package traffic

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/lab"
)

// Crossing compares the TCP segments that leave each of two pods with those that arrive at the other one. Where a retransmission makes
// up for a lost segment, it sees the loss: two have left, and one has arrived. A segment that the kernel of a busy machine sends again
// although the first one was not lost arrives twice. So the judgement does not depend on time.
//
// Segments with a SYN or data are counted apart from bare ones: ACKs, FINs and resets that carry no data. A segment is matched by all that
// address translation leaves as it is, and equal ones by how many they are. It is safe for concurrent use.
type Crossing struct {
	taps []*Tap

	mu      sync.Mutex
	under   map[segment]passage // those that have not left and arrived equally often
	missing int                 // of those, that have left more often
	changed chan struct{}       // closed and replaced when missing becomes 0
	result  CrossingResult
}

// CrossingResult is what a Crossing has counted.
type CrossingResult struct {
	Begun    uint64   // SYNs of the client that have left
	Left     uint64   // segments with a SYN or data that have left either pod, those among them
	LostAll  uint64   // of those, the ones that have not arrived
	Bare     uint64   // ACKs, FINs and resets without data that have left either pod
	LostBare uint64   // of those, the ones that have not arrived
	Lost     []string // those of both kinds that have not arrived, at most ten
	Unseen   uint64   // frames that a tap had no room for: the counts mean nothing if there are any
}

// passage is how often a segment has left, less how often it has arrived.
type passage struct {
	excess int
	ends   string
}

// OpenCrossing begins to compare what the client and the server's port send each other on connections that the client opens to one of
// the asked addresses: the server's own, or those of Services that lead there. These have to be all that the client connects to with that
// port behind them, and the comparison has to begin before the connections. The caller stops it.
func OpenCrossing(client, server *lab.Pod, port uint16, asked ...netip.AddrPort) (*Crossing, error) {
	c := &Crossing{under: map[segment]passage{}, changed: make(chan struct{})}
	asked = slices.Clone(asked)
	clients := client.Addrs()
	watched := map[*lab.Pod]func(local, remote netip.AddrPort) bool{
		client: func(_, remote netip.AddrPort) bool { return slices.Contains(asked, remote) },
		server: func(local, remote netip.AddrPort) bool {
			return local.Port() == port && slices.Contains(clients, remote.Addr())
		},
	}
	for pod, is := range watched {
		t, err := openTap(pod.Host, "eth0", onlyTCP, func(frame []byte, kind uint8) {
			c.see(frame, pod == client, kind == unix.PACKET_OUTGOING, is)
		})
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("watch what %s and %s send each other: %w", client.Name(), server.Name(), err)
		}
		c.taps = append(c.taps, t)
	}
	return c, nil
}

// see accounts for a frame at one of the pods.
func (c *Crossing) see(frame []byte, atClient, leaves bool, watched func(local, remote netip.AddrPort) bool) {
	s, src, dst, ok := segmentOf(frame)
	local, remote := dst, src
	if leaves {
		local, remote = src, dst
	}
	if !ok || !watched(local, remote) {
		return
	}
	s.toServer = atClient == leaves
	c.mu.Lock()
	defer c.mu.Unlock()
	p, known := c.under[s]
	if !known {
		p.ends = fmt.Sprintf("%v to %v", src, dst)
	}
	if leaves {
		if s.bare() {
			c.result.Bare++
		} else {
			c.result.Left++
		}
		if s.toServer && s.flags&tcpSYN != 0 {
			c.result.Begun++
		}
		if p.excess++; p.excess == 1 {
			c.missing++
		}
	} else if p.excess--; p.excess == 0 {
		if c.missing--; c.missing == 0 {
			close(c.changed)
			c.changed = make(chan struct{})
		}
	}
	if c.under[s] = p; p.excess == 0 {
		delete(c.under, s)
	}
}

// Result returns the counts so far. Segments under way count as lost.
func (c *Crossing) Result() CrossingResult {
	r, _ := c.count()
	return r
}

// Stop waits a while for segments that have left and not arrived, and returns the final counts. The connections should have ended.
func (c *Crossing) Stop(within time.Duration) CrossingResult {
	defer c.Close()
	over := time.NewTimer(within)
	defer over.Stop()
	for {
		r, changed := c.count()
		if r.LostAll == 0 && r.LostBare == 0 {
			return r
		}
		select {
		case <-changed:
		case <-over.C:
			r, _ := c.count()
			return r
		}
	}
}

// count returns the counts by now. changed is closed when no segment is missing next time.
func (c *Crossing) count() (r CrossingResult, changed <-chan struct{}) {
	for _, t := range c.taps {
		t.CatchUp()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r = c.result
	for s, p := range c.under {
		if p.excess <= 0 {
			continue
		}
		if s.bare() {
			r.LostBare += uint64(p.excess)
		} else {
			r.LostAll += uint64(p.excess)
		}
		if len(r.Lost) < 10 {
			r.Lost = append(r.Lost, fmt.Sprintf("%v, %v: %d more left than arrived", s, p.ends, p.excess))
		}
	}
	slices.Sort(r.Lost)
	for _, t := range c.taps {
		r.Unseen += t.Lost()
	}
	return r, c.changed
}

// Close ends it.
func (c *Crossing) Close() {
	for _, t := range c.taps {
		_ = t.Close() // fails only on one that is closed
	}
}
