package events

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

const (
	// reporters is how many nodes report a problem that all nodes see, on average. Each node draws lots for itself, so none
	// does with a probability of e^-8, one in 3,000; and others draw them an hour later.
	reporters = 8

	// All nodes together make at most about 50 attempts a second, however many problems there are.
	attemptSpread = 20 * time.Millisecond
	leastSpread   = time.Second

	// assumedNodes is the size of a cluster whose nodes are not known.
	assumedNodes = 100
)

// spread is the time over which reporters spread their attempts at a number of problems that all nodes see.
func spread(nodes, problems int) time.Duration {
	return max(time.Duration(min(nodes, reporters)*problems)*attemptSpread, leastSpread)
}

// turn is a time in which a few of the nodes report a problem that all of them see, if it lasts. They are drawn by lot for
// each turn: no node knows which others can, or may, write events. The same nodes are drawn whatever the message says, so
// that the rate of events on one object stays bounded however often it changes.
type turn struct {
	number int
	begins time.Time
	lot    float64 // of this node; all nodes' are spread evenly over [0, 1)
}

func firstTurn(node string, s subject, now time.Time) turn {
	return turn{begins: now, lot: lot(node, s, 0)}
}

func (t *turn) end() time.Time { return t.begins.Add(repeatAfter) }

// advance goes on to the turn of now.
func (t *turn) advance(node string, s subject, now time.Time) {
	for !now.Before(t.end()) {
		t.begins, t.number = t.end(), t.number+1
		t.lot = lot(node, s, t.number)
	}
}

// mine reports whether this node is one of the turn's reporters, and how long it waits so that not all report at once.
func (t *turn) mine(nodes, problems int) (wait time.Duration, ok bool) {
	share := min(1, reporters/float64(nodes))
	return time.Duration(t.lot / share * float64(spread(nodes, problems))), t.lot < share
}

// lot is the same whenever the node draws it again, after a restart for instance.
func lot(node string, s subject, number int) float64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %d", node, s.kind, s.namespace, s.name, number))
	return float64(binary.BigEndian.Uint64(sum[:])>>11) / (math.MaxUint64>>11 + 1)
}
