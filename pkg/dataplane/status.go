package dataplane

import (
	"net/netip"
	"strconv"
	"time"

	"github.com/margay-project/margay/pkg/model"
)

// Condition is the state of the policy of one endpoint.
type Condition uint8

const (
	// Pending: something is still to be written, or the policy is still being made. The previous policy stays in force.
	Pending Condition = iota + 1
	// Enforced: its interface is there, and the policy of both directions, as desired, judges its packets.
	Enforced
	// NoInterface: its interface is not there (yet).
	NoInterface
	// NoAddress: it owns no address, so all that it sends is dropped.
	NoAddress
	// Held: its policy cannot be enforced, for a reason that concerns no other endpoint; see HeldBack.
	Held
	// Failed: it could not be programmed, and is tried again.
	Failed
)

// String returns "pending", "enforced", "no interface", "no address", "held" or "failed".
func (c Condition) String() string {
	switch c {
	case Pending:
		return "pending"
	case Enforced:
		return "enforced"
	case NoInterface:
		return "no interface"
	case NoAddress:
		return "no address"
	case Held:
		return "held"
	case Failed:
		return "failed"
	}
	return "condition " + strconv.Itoa(int(c))
}

// EndpointStatus is one endpoint as a dataplane has it.
type EndpointStatus struct {
	ID        model.EndpointID
	Iface     string       // empty: the dataplane has nothing of it
	Addrs     []netip.Addr // must not be changed
	Ifindex   uint32       // on which it is programmed; 0: on none (yet)
	Condition Condition
	Reason    string // why it is not as it should be; empty: it is, or is about to be
	// NotInForce is why its newest policy is not in force yet, although it can be: the write of a plan failed, and is tried again, or an address
	// is closed until nothing of its former owner is left. Empty: it is in force but for Misjudged, or Reason says why not.
	NotInForce string
	Misjudged  Misjudged
	Staged     string // why its staged policies are not evaluated; empty: they are, or there are none
	// StagedPending: its staged policies, as they are now, are still to be compiled. The dataplane does that behind all other changes.
	StagedPending bool
	Sources       string // why packets from further sources that it lists are dropped; empty: they are not, or there are none
	Flows         string // which of its flows were removed lately, and why; empty: none
}

// Stats count the objects of a dataplane, at one moment between two Applies.
type Stats struct {
	// Local endpoints: judged by the policy that is desired; not yet, because the interface is missing or writes are
	// still to be made; not, because something about them fails.
	Enforced, Waiting, Failed int

	Classes              int // of addresses
	Rules                int // API rules that the enforced policy refers to
	Sets                 int // address sets, the CIDR lists of rules included, that they refer to
	Tables               int // compiled policies
	LiveBytes, IdleBytes uint64
	Unwritten            int    // batches of changes that are not completely in the kernel
	Repairs              uint64 // repaired changes by others, since the start
	Maps                 []MapUse

	// Interfaces are the endpoints by ifindex; nil unless asked for.
	Interfaces map[uint32]model.EndpointID
}

// MapUse is how full a map is.
type MapUse struct {
	Name         string
	Entries, Max uint64
}

// Observer receives how long the parts of Apply took, from the goroutine that calls Apply. It must be quick.
type Observer interface {
	Compiled(took time.Duration)  // changes into a plan
	Published(took time.Duration) // a plan written to the kernel, or as much of it as could be
}

// KernelCounts are what the kernel's side counts, at one moment.
type KernelCounts struct {
	Drops        []DropCount      // since the reader was made, of every reason and direction; they never fall
	ByInterface  []InterfaceDrops // by ifindex; those of 0 packets are left out
	Events       EventCounts
	Expired      [2]uint64 // flows removed by sweeps: open, half
	FlowsRefused uint64    // beyond their endpoint's share, since the reader was made, or removed for that; never falls
	Maps         []MapUse  // of those that packets fill, by name; at most 30 s old
}

// DropCount counts packets dropped for one reason in one direction.
type DropCount struct {
	Reason         string // a label
	Direction      model.Direction
	Packets, Bytes uint64
}

// InterfaceDrops counts packets dropped at one interface in one direction since the interface exists.
type InterfaceDrops struct {
	Ifindex        uint32
	Direction      model.Direction
	Packets, Bytes uint64
}

// EventCounts is how far the buffer of events has been written and read.
type EventCounts struct {
	Written, Read uint64 // since it was made
	// Suppressed were left out, for the rate limit or because the buffer was full, since the last one that was written
	// on the same CPU: that one's successor will say so. Not a total.
	Suppressed uint64
}
