package bpf

import (
	"net/netip"
	"time"

	"github.com/margay-project/margay/pkg/bpfmaps"
)

// Host is the machine as the dataplane needs it: its interfaces, and where programs are attached. Its only user is the
// loop that owns the dataplane.
type Host interface {
	// Interfaces are the workload interfaces there are now: ifindex by name.
	Interfaces() map[string]uint32
	// Touched are the workload interfaces, by ifindex, that something has happened to since the last call. Such an
	// interface may be another one under the same number, without programs.
	Touched() []uint32
	// Addrs are the node's own addresses.
	Addrs() []netip.Addr
	// Peer describes the pod's side of an interface; not ok: it is not known.
	Peer(ifindex uint32) (p Peer, ok bool)
	// Use says which programs to attach and where to pin their links, which is always the same place. Called before the
	// methods below, and again when there are other programs: Ensure and Guard then put those in place.
	// Links pinned in older directories (of another map layout) are taken over when they are ensured.
	Use(programs *bpfmaps.Programs, linkDir string, older []string) error
	// Ensure attaches from_pod and to_pod to the interface, in place of those of an earlier agent, without a gap. A program
	// that is attached already is left alone. attach.ErrGone: there is no such interface (any more).
	Ensure(name string, ifindex uint32) error
	// IsGone reports whether the interface that an earlier agent has attached programs to has gone: one that is there under its number by now is
	// another pod's. Call it before Ensure.
	IsGone(ifindex uint32) (bool, error)
	// Earlier describes what earlier agents have attached. Call it before Ensure and Guard; afterwards only Outside is theirs.
	Earlier() (Earlier, error)
	// Tracks reports whether the kernel has a table of connections.
	Tracks() bool
	// EndConnections removes all connections with an end among these addresses from the kernel's own table. It is called beside other methods, but
	// not beside itself. The map must not change meanwhile.
	// others, unless it is nil, is called with the ends of connections that stay.
	EndConnections(of map[netip.Addr]bool, others func(netip.Addr)) error
	// Detach takes our programs off an interface; that it is gone is no error.
	Detach(ifindex uint32) error
	// Guard attaches the netfilter programs, without a gap. Programs that are attached already are left alone. early: also the program guard,
	// before conntrack; otherwise that is suspended: it is detached then, until ResumeEarly of the next process.
	Guard(early bool) error
	// ResumeEarly attaches the program that the process before has suspended. Call it after Use and before Guard.
	ResumeEarly() error
	// Repairs is how often Ensure and Guard have attached again what somebody else had detached.
	Repairs() uint64
	// Faults are what is not as Ensure has left it at an interface, and HookFaults what is not as Guard has left it. They repair nothing.
	Faults(ifindex uint32) []string
	HookFaults() []string
	// Wake delivers when Interfaces or Addrs may have changed, and after Nudge.
	Wake() <-chan struct{}
	// Nudge has Wake deliver once more: soon, or after so long, counted from the last call that says how long.
	Nudge(after time.Duration)
	Close() error
}

// Earlier is what earlier agents have attached. One that has attached the netfilter programs has programmed the endpoints of its first plan.
type Earlier struct {
	Guarded bool // one with this map layout has
	// Others are the interfaces with programs of an agent with another map layout that has; nil: there was none.
	Others map[uint32]bool
	// Outside are interfaces that are no workload interfaces, with their names, to which programs of an agent with this map layout are
	// attached: it had another prefix. OutsideOthers are those of agents with another layout.
	Outside, OutsideOthers map[uint32]string
}

// Peer is the pod's side of a veth pair.
type Peer struct {
	Ifindex uint32 // in the pod's namespace
	MAC     [6]byte
	MTU     uint16
}
