// Package verify proves that the policy in a kernel judges every packet as the objects demand. The policy of one direction
// of an endpoint distinguishes a finite number of kinds of remote addresses and a finite number of kinds of protocols and
// ports. One packet stands for each pair of them; kinds are those that either the objects or the kernel distinguish. Each packet is
// judged by an evaluation of the policy that shares no code with the compiler, and by the policy as read back from the kernel. The
// package is pure.
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

// Question is one packet to be judged. Class is the kernel's class of the remote address. Over IPv6 the protocol ICMP has no types:
// the packet then has type 0 and the protocol's number as code. The same holds for ICMPv6 over IPv4.
type Question struct {
	Class  uint32
	Packet model.Packet
}

// Answer is the answer of a policy in the kernel. Entries are numbered from 0; see Policy.Texts.
type Answer struct {
	Skipped        bool // the evaluator did not judge the packet; the other fields mean nothing
	Allow          bool
	Entry          int      // the deciding entry; -1: a part of the policy is missing
	Passes, Logs   []uint16 // the first few entries on the way that pass or log
	NPasses, NLogs int      // the numbers of all such entries
	// Untraced: the kernel does not record the entries on the way, and Passes and Logs mean nothing.
	Untraced bool
}

// Run is a range of ports, of ICMP types and codes (type<<8 | code), or of protocol numbers that a policy in the kernel does
// not distinguish, with the number it has for them.
type Run struct {
	Lo, Hi uint16
	Column uint32
}

// Axis is the protocol whose values a Run is a range of.
type Axis uint8

// The axes: of ports, of types and codes of ICMP, and of the numbers of all other protocols. Axes is their number.
const (
	AxisTCP Axis = iota
	AxisUDP
	AxisSCTP
	AxisICMP
	AxisICMPv6
	AxisOther
	Axes
)

// Policy is the policy of one direction of an endpoint, as it was read from the kernel. It does not change any more. Not safe for
// concurrent use.
type Policy interface {
	// Row returns a number for a class. The policy judges classes of equal numbers alike.
	Row(class uint32) uint32
	// Destinations returns the runs of one axis, which cover it, in order. Sources returns those of source ports, for protocols with
	// ports.
	Destinations(a Axis) []Run
	Sources(a Axis) []Run
	// Judge answers questions by each evaluator of the policy. The result is parallel to Evaluators; each list of answers is parallel to
	// the questions. It is valid until the next call.
	Judge(questions []Question) ([][]Answer, error)
	// Evaluators are the names of the evaluators.
	Evaluators() []string
	// Texts returns the names of the entries, as model.RuleID.String returns them and Kept shortens them; empty: the entry has no name.
	Texts() []string
	// Kept returns the part of a name that the kernel stores.
	Kept(text string) string
	// Where describes the place in the kernel where a packet is decided, by the evaluator of that number; empty: the name of the entry
	// is enough.
	Where(evaluator int, q Question) string
}

// PolicyID identifies a policy in the kernel; a policy with other contents has another PolicyID.
type PolicyID uint64

// Kernel is the part of a dataplane that verification uses.
type Kernel interface {
	// Begin comes before all other calls; the goroutine that owns the dataplane calls it. End comes after them; any goroutine may call
	// it. The methods that any goroutine may call must call pause often; its error ends the work.
	Begin(pause func() error) error
	End() error
	// Round comes before the other calls of each round; the goroutine that owns the dataplane calls it.
	Round() error

	// Any goroutine may call the next three methods, one call at a time.

	// Entries returns the entries of all addresses, those of 0.0.0.0/0 and ::/0 among them. Of the calls of a round, only Round and Sets
	// come before it. It may read all of the kernel's state that the later calls use.
	Entries() ([]Entry, error)
	// ClassSets returns the numbers of the sets that the kernel has each class in, ascending, by class.
	ClassSets() (map[uint32][]uint32, error)
	// Policy reads a policy that InForce has found for one direction.
	Policy(id PolicyID, d model.Direction) (Policy, error)

	// The goroutine that owns the dataplane calls the other methods.

	// HasMarks reports whether entries have Marks.
	HasMarks() bool
	// InForce identifies the policies of an endpoint by model.Direction. Not ok: nothing passes there.
	InForce(id model.EndpointID) (policies [2]PolicyID, ok bool, err error)
	// Staged identifies the policies that stand for an endpoint's staged ones (pkg/staged), by model.Direction; 0: there is none.
	Staged(id model.EndpointID) ([2]PolicyID, error)
	// Entry returns the entry that a lookup of an address finds.
	Entry(a netip.Addr) (Entry, error)
	// HostAddrs returns the node's own addresses as the dataplane found them.
	HostAddrs() []netip.Addr
	// Sets returns the sets that classes are combinations of, by number, with the members of those that the objects do not have. The slice
	// is the caller's.
	Sets() []Set
	// SetsOf returns the numbers of the sets that the kernel has one class in, ascending.
	SetsOf(class uint32) ([]uint32, error)
	// SetFault describes how the kernel's record of a set, apart from its members, differs from the one written; empty: it does not.
	SetFault(s Set) (string, error)
	// Faults compares what an endpoint has in the kernel with what was written: entries other than those of addresses, names, attached
	// programs, and alterations that Policy has found and that have no effect on packets.
	Faults(id model.EndpointID) (Part, error)
	// NodeFaults compares such parts that belong to no endpoint, the same ones in each round unless they come or go.
	NodeFaults() ([]Part, error)
}

// Part is a part of the kernel's state that was compared with what was written.
type Part struct {
	Name    string   // such as "IP set mgyA4-own"; empty for that of an endpoint
	Faults  []string // how it differs
	Skipped string   // why it was not compared, or not to the end; empty: it was
}

// Set is a set that classes are combinations of.
type Set struct {
	Number  uint32
	ID      model.SetID
	Members []netip.Prefix // nil: the objects have it
}

// Family returns the IP version of an address, 4 or 6.
func Family(a netip.Addr) uint8 {
	if a.Is4() {
		return 4
	}
	return 6
}
