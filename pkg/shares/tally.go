package shares

import (
	"math/bits"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/conntrack"
)

// Stages of a connection. Those of an earlier stage are removed first.
const (
	unreplied = iota
	unassured
	assured
	stages
)

// ages is the number of ages in which connections of a stage are counted: an age is the binary logarithm of the seconds since the
// latest packet, so 20 ages reach beyond the longest time-out, which is 5 days.
const ages = 20

// ranks is the number of ranks. Connections of the lowest rank are removed first.
const ranks = stages * ages

// inDoubt is the time-out of a TCP connection with data that is not acknowledged. The kernel has it in the same state as one whose
// time-out is 5 days.
const inDoubt = 5 * time.Minute

// kind groups connections that have the same time-out.
type kind struct{ stage, protocol, state uint8 }

// tally counts connections of each owner by rank. The memory that it uses depends on the number of endpoints only.
type tally struct {
	ends   *Ends
	counts []int // by owner
	ranks  [][ranks]uint32
	others int // connections that no endpoint is charged for
	// whole has the longest remaining time of each kind. It is close to the time-out once some connections have been read.
	whole map[kind]time.Duration
}

// newTally returns an empty tally. whole is that of an earlier tally; nil: there is none.
func newTally(ends *Ends, whole map[kind]time.Duration) *tally {
	if whole == nil {
		whole = map[kind]time.Duration{}
	}
	return &tally{ends: ends, counts: make([]int, len(ends.owners)), ranks: make([][ranks]uint32, len(ends.owners)), whole: whole}
}

// add counts a connection of an owner.
func (t *tally) add(owner, rank int) {
	t.counts[owner]++
	t.ranks[owner][rank]++
}

// rank returns the rank of a connection: by its stage, then the longest idle one first.
func (t *tally) rank(e *conntrack.Entry) int {
	k := kind{stage: unreplied, protocol: e.Original.Protocol, state: e.TCPState}
	switch {
	case e.PickedUp: // perhaps it was removed before, and the other end has sent since: it is charged to that end by now
	case e.Status&conntrack.Assured != 0:
		k.stage = assured
	case e.Status&conntrack.SeenReply != 0:
		k.stage = unassured
	}
	if k.protocol == unix.IPPROTO_TCP && e.Timeout <= inDoubt {
		k.state |= 0x80
	}
	whole := t.whole[k]
	if e.Timeout > whole {
		whole = e.Timeout
		t.whole[k] = whole
	}
	age := bits.Len32(uint32((whole - e.Timeout) / time.Second))
	return int(k.stage)*ages + ages - 1 - min(age, ages-1)
}
