// Package verify proves that the policy in a kernel judges every packet as the objects demand. The policy of one direction
// of an endpoint distinguishes a finite number of kinds of remote addresses and a finite number of kinds of protocols and
// ports. One packet stands for each pair of them, on either side: where the objects draw a line, and where the kernel
// does. The packets are judged by an evaluation of the policy that shares nothing with the compiler, and by what was read
// back from the kernel. It is pure.
package verify

import (
	"net/netip"

	"github.com/margay-project/margay/pkg/model"
)

// Entry is the kernel's entry of a prefix: the class of its addresses. Addresses of a longer prefix with an entry have that
// one's class.
type Entry struct {
	Prefix netip.Prefix
	Class  uint32
	Marks  Marks
}

// Question is one packet to be judged. Class is the kernel's class of the remote address. Over IPv6 the protocol ICMP has no
// types; what is in the place of type and code is then 0 and the protocol's number, as it is for ICMPv6 over IPv4.
type Question struct {
	Class  uint32
	Packet model.Packet
}

// Answer is what a policy in the kernel answers. Entries are numbered from 0; see Policy.Texts.
type Answer struct {
	Skipped        bool // this evaluator was not asked
	Allow          bool
	Entry          int // the deciding one; -1: a part of the policy is missing
	Passes, Logs   []uint16
	NPasses, NLogs int // how many there were; Passes and Logs have the first few of them
	// Untraced: the kernel does not say which entries were on the way, and Passes and Logs mean nothing.
	Untraced bool
}

// Run is a range of ports, of ICMP types and codes (type<<8 | code), or of protocol numbers that a policy in the kernel does
// not distinguish, with the number it has for them.
type Run struct {
	Lo, Hi uint16
	Column uint32
}

// Axis is what a Run is a range of.
type Axis uint8

const (
	AxisTCP Axis = iota
	AxisUDP
	AxisSCTP
	AxisICMP
	AxisICMPv6
	AxisOther // by the number of the protocol
	Axes
)

// Policy is the policy of one direction of an endpoint, as it was read from the kernel. It does not change any more.
type Policy interface {
	// Row is a number for what the policy makes of a class: it judges classes of equal numbers alike.
	Row(class uint32) uint32
	// Destinations are the runs of one axis, which cover it, in order; Sources those of source ports, for protocols with
	// ports.
	Destinations(a Axis) []Run
	Sources(a Axis) []Run
	// Judge answers questions by each evaluator that the kernel's side has for this policy: the answers of one are a list, and
	// parallel to the questions. They are valid until the next call.
	Judge(questions []Question) ([][]Answer, error)
	// Evaluators are the names of the evaluators.
	Evaluators() []string
	// Texts are the names of the entries, as model.RuleID.String returns them and Kept shortens them; empty: the entry has
	// none.
	Texts() []string
	// Kept is what the kernel keeps of a name.
	Kept(text string) string
	// Where is the place in the kernel where a packet is decided, in words, by the evaluator of that number; empty: the entry says it.
	Where(evaluator int, q Question) string
}

// PolicyID identifies a policy in the kernel: another one has another.
type PolicyID uint64

// Kernel is what verification asks a dataplane.
type Kernel interface {
	// Begin comes before all other calls, by the goroutine that owns the dataplane. End comes after them, by any. pause is to be called
	// often by what any goroutine may call; its error ends the work.
	Begin(pause func() error) error
	End() error
	// Round comes before the other calls of each round, by the goroutine that owns the dataplane.
	Round() error

	// The next three may be called by any goroutine, one at a time.

	// Entries are the entries of all addresses, those of 0.0.0.0/0 and ::/0 among them. It comes before the other calls of a round but
	// Round and Sets, and may read everything that they answer from.
	Entries() ([]Entry, error)
	// ClassSets are the numbers of the sets that the kernel has each class in, ascending.
	ClassSets() (map[uint32][]uint32, error)
	// Policy reads a policy that InForce has found for one direction.
	Policy(id PolicyID, d model.Direction) (Policy, error)

	// The others are called by the goroutine that owns the dataplane.

	// HasMarks reports whether entries have Marks.
	HasMarks() bool
	// InForce identifies the policies of an endpoint by model.Direction. Not ok: nothing passes there.
	InForce(id model.EndpointID) (policies [2]PolicyID, ok bool, err error)
	// Staged identifies the policies that stand for an endpoint's staged ones (pkg/staged), by model.Direction; 0: there is none.
	Staged(id model.EndpointID) ([2]PolicyID, error)
	// Entry is the entry that is found for an address.
	Entry(a netip.Addr) (Entry, error)
	// HostAddrs are the node's own addresses as the dataplane found them.
	HostAddrs() []netip.Addr
	// Sets are the sets that classes are made of, by number, with the members of those that the objects do not have.
	Sets() []Set
	// SetsOf are the numbers of the sets that the kernel has one class in, ascending.
	SetsOf(class uint32) ([]uint32, error)
	// SetFault says how what the kernel has of a set, besides members, is not as it was written; empty: it is.
	SetFault(s Set) (string, error)
	// Faults are the parts of an endpoint in the kernel that are not as they were written, in words: entries beside those of
	// addresses, names, attached programs, and what was found by Policy to be altered without an effect on packets.
	Faults(id model.EndpointID) ([]string, error)
	// NodeFaults are those of no endpoint.
	NodeFaults() ([]string, error)
}

// Set is a set that classes are made of.
type Set struct {
	Number  uint32
	ID      model.SetID
	Members []netip.Prefix // nil: the objects have it
}

// Family is 4 or 6.
func Family(a netip.Addr) uint8 {
	if a.Is4() {
		return 4
	}
	return 6
}
