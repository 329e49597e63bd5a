package bpf

import (
	"maps"
	"net/netip"
	"time"

	"github.com/margay-project/margay/pkg/bpfmaps"
)

// FakeHost is a Host without a machine: for tests that run programs by test-run. Not safe for concurrent use.
type FakeHost struct {
	Ifaces   map[string]uint32
	Own      []netip.Addr
	Peers    map[uint32]Peer
	Attached map[uint32]string // interface names by ifindex, of those Ensure was called for
	Gone     map[uint32]bool   // what IsGone returns
	FakeHooks
	Past      Earlier                            // what Earlier returns
	News      []uint32                           // what the next Touched returns
	Fail      map[uint32]error                   // the error of Ensure of an interface, which then does nothing; 0: of Guard
	Ensured   int                                // calls of Ensure
	Repaired  uint64                             // what Repairs returns
	Ending    func(of map[netip.Addr]bool) error // called by EndConnections, which returns its error; nil: the kernel has no table of connections
	Connected []netip.Addr                       // ends of connections that stay

	wake chan struct{}
}

// FakeHooks are its netfilter hooks, as Guard has left them.
type FakeHooks struct{ Guarded, Early bool }

// NewFakeHost returns a host without interfaces.
func NewFakeHost() *FakeHost {
	return &FakeHost{
		Ifaces: map[string]uint32{}, Peers: map[uint32]Peer{}, Attached: map[uint32]string{}, Fail: map[uint32]error{},
		Past: Earlier{Guarded: true}, wake: make(chan struct{}, 1),
	}
}

// Interfaces implements Host.
func (h *FakeHost) Interfaces() map[string]uint32 { return maps.Clone(h.Ifaces) }

// Touched implements Host.
func (h *FakeHost) Touched() []uint32 {
	news := h.News
	h.News = nil
	return news
}

// Addrs implements Host.
func (h *FakeHost) Addrs() []netip.Addr { return h.Own }

// Peer implements Host.
func (h *FakeHost) Peer(ifindex uint32) (Peer, bool) {
	p, ok := h.Peers[ifindex]
	return p, ok
}

// Use implements Host.
func (h *FakeHost) Use(*bpfmaps.Programs, string, []string) error { return nil }

// Ensure implements Host.
func (h *FakeHost) Ensure(name string, ifindex uint32) error {
	h.Ensured++
	if err := h.Fail[ifindex]; err != nil {
		return err
	}
	h.Attached[ifindex] = name
	return nil
}

// IsGone implements Host.
func (h *FakeHost) IsGone(ifindex uint32) (bool, error) { return h.Gone[ifindex], nil }

// Earlier implements Host.
func (h *FakeHost) Earlier() (Earlier, error) { return h.Past, nil }

// Tracks implements Host.
func (h *FakeHost) Tracks() bool { return h.Ending != nil }

// EndConnections implements Host.
func (h *FakeHost) EndConnections(of map[netip.Addr]bool, others func(netip.Addr)) error {
	for _, a := range h.Connected {
		if others != nil {
			others(a)
		}
	}
	if len(of) == 0 {
		return nil
	}
	return h.Ending(of)
}

// Detach implements Host.
func (h *FakeHost) Detach(ifindex uint32) error {
	delete(h.Attached, ifindex)
	return nil
}

// Guard implements Host.
func (h *FakeHost) Guard(early bool) error {
	h.Guarded = h.Fail[0] == nil
	h.Early = early && h.Guarded
	return h.Fail[0]
}

// ResumeEarly implements Host: no process before has suspended it.
func (h *FakeHost) ResumeEarly() error { return nil }

// Repairs implements Host.
func (h *FakeHost) Repairs() uint64 { return h.Repaired }

// Faults implements Host: there are none.
func (h *FakeHost) Faults(uint32) []string { return nil }

// HookFaults implements Host: there are none.
func (h *FakeHost) HookFaults() []string { return nil }

// Wake implements Host.
func (h *FakeHost) Wake() <-chan struct{} { return h.wake }

// Nudge implements Host, at once.
func (h *FakeHost) Nudge(time.Duration) {
	select {
	case h.wake <- struct{}{}:
	default: // one is waiting already
	}
}

// Close implements Host.
func (h *FakeHost) Close() error { return nil }
