package chains

import (
	"fmt"
	"strconv"
	"strings"
)

// Events configures the copies of packets that policy has judged. Packets of flows that the policy in force has allowed before are
// not judged, and not copied.
type Events struct {
	Group uint16 // of NFLOG; 0: none are copied
	Rate  uint32 // copies per second at most, of each kind; 0: none are copied
}

// EventKind is the decision about a copied packet, as in the prefix of the copy.
type EventKind string

const (
	EventAllowed      EventKind = "allow"
	EventAllowedAgain EventKind = "again" // of a flow that an earlier policy has allowed
	EventDenied       EventKind = "deny"
	EventRevoked      EventKind = "revoke" // denied, of a flow that an earlier policy has allowed
)

// Limits of the match of rates: it counts in 1/10000 seconds.
const (
	mostRate  = 10_000
	mostBurst = 10_000
)

// copies are the rules that copy packets, with the kind and the generation of policy as the prefix.
type copies struct {
	events     Events
	generation uint32
}

// of returns the rule for packets that match. The limit comes before the copy, so a packet beyond it costs one comparison. If no
// process listens to the group, the kernel makes no copy.
func (c copies) of(kind EventKind, match string) string {
	e := c.events
	if e.Group == 0 || e.Rate == 0 {
		return ""
	}
	rate := min(e.Rate, mostRate)
	return both(match, fmt.Sprintf("-m limit --limit %d/second --limit-burst %d -j NFLOG --nflog-prefix %s-%d --nflog-group %d --nflog-size %d",
		rate, min(rate, mostBurst), kind, c.generation, e.Group, copiedBytes))
}

// copiedBytes is the number of bytes copied of each packet: its headers, some of them IPv6 extensions.
const copiedBytes = 128

// ParseEvent reads the prefix of a copy: the decision, and the generation of the policy that made it. Not ok: the prefix is not one
// that chains of this package write.
func ParseEvent(prefix string) (kind EventKind, generation uint32, ok bool) {
	word, number, ok := strings.Cut(prefix, "-")
	n, err := strconv.ParseUint(number, 10, 32)
	kind = EventKind(word)
	switch kind {
	case EventAllowed, EventAllowedAgain, EventDenied, EventRevoked:
		return kind, uint32(n), ok && err == nil
	}
	return "", 0, false
}

// IsAnswer reports whether a copied packet was judged as an answer, that is, goes against its flow.
func (m Marks) IsAnswer(mark uint32) bool { return mark&m.against() != 0 }
