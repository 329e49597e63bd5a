// Package attach joins programs to the places they run at, and watches those places: TCX links on workload interfaces,
// netfilter links, interfaces and addresses coming and going, and what this kernel can do.
//
//   - attach.go: the Attacher interface and what it reports; fake.go: one without a kernel
//   - links.go, tcx.go: TCX links; hooks.go: netfilter links, early.go: those before conntrack; list.go: what is attached where; owners.go: whose
//     programs run before ours
//   - watch.go, interfaces.go, addresses.go: netlink subscriptions that survive overruns
//   - podside.go: the pod's end of a veth
//   - probe.go, checks.go: what BPF mode needs
//
// Everything happens in the network namespace of the calling thread unless said otherwise.
package attach

import "errors"

// ErrGone says that there is no such interface (any more).
var ErrGone = errors.New("no such interface")

// Change is what Ensure had to do.
type Change uint8

// The changes, the larger the more there was to do.
const (
	Unchanged Change = iota
	Updated          // links of an earlier program now run this one; there was no gap
	Attached         // there were no links
	Repaired         // links made or taken over by this agent had been detached or unpinned by somebody else
)

func (c Change) String() string {
	return [...]string{"unchanged", "updated", "attached", "repaired"}[c]
}

// Attacher attaches the programs. Links attaches them to the kernel, Fake pretends.
//
// Not safe for concurrent use.
type Attacher interface {
	// Ensure sees to it that from_pod and to_pod are attached to the interface and pinned. An interface that has just
	// vanished is ErrGone.
	Ensure(ifindex uint32) (Change, error)
	// Detach takes both off the interface. That there is nothing attached or no interface is no error.
	Detach(ifindex uint32) error
	// EnsureHooks sees to it that judge is attached to its netfilter hooks, and pinned.
	EnsureHooks() (Change, error)
	// EnsureEarly sees to it that guard is attached before conntrack, and pinned.
	EnsureEarly() (Change, error)
	// SuspendEarly detaches it, and leaves pins by which ResumeEarly finds it.
	SuspendEarly() error
	// ResumeEarly attaches the program that an earlier process has suspended, as it was. That there is none is no error.
	ResumeEarly() error
	// DetachHooks detaches all netfilter programs and removes their pins.
	DetachHooks() error
	// List returns the attachments, by ifindex.
	List() ([]Attachment, error)
	// RemoveStale removes the pinned links of interfaces that have vanished and returns their numbers.
	RemoveStale() ([]uint32, error)
	// Close closes the links; pinned links stay attached.
	Close() error
}

// Attachment describes the links of one interface.
type Attachment struct {
	Ifindex         uint32
	Ingress, Egress LinkState // from_pod and to_pod; in TCX terms, not the pod's
}

// LinkState is the state of one of our TCX links.
type LinkState struct {
	Pinned   bool
	Attached bool   // false: the interface vanished, or somebody detached the link
	Link     uint32 // kernel's id of the link
	Program  uint32 // kernel's id of the program it runs
	Here     bool   // the interface of that number is one of this network namespace; false: of another, or it has just gone
	Before   int    // programs of others that run first; they can keep packets from us. Known if Here
	After    int
	// Overtakes are the kernel's ids of the links of those that run first; 0: one without.
	Overtakes []uint32
	// Overtaking are the kernel's ids of these programs, in the order of Overtakes.
	Overtaking []uint32
}
