package dataplane

import (
	"maps"
	"net/netip"

	"github.com/margay-project/margay/pkg/bpfmaps"
)

// FakeHost is a Host without a machine: for tests that run programs by test-run. Not safe for concurrent use.
type FakeHost struct {
	Ifaces   map[string]uint32
	Own      []netip.Addr
	Peers    map[uint32]Peer
	Attached map[uint32]string // interface names by ifindex, of those Ensure was called for
	Guarded  bool
	Fail     error // returned by Ensure if not nil

	wake chan struct{}
}

// NewFakeHost returns a host without interfaces.
func NewFakeHost() *FakeHost {
	return &FakeHost{
		Ifaces: map[string]uint32{}, Peers: map[uint32]Peer{}, Attached: map[uint32]string{}, wake: make(chan struct{}, 1),
	}
}

// Interfaces implements Host.
func (h *FakeHost) Interfaces() map[string]uint32 { return maps.Clone(h.Ifaces) }

// Addrs implements Host.
func (h *FakeHost) Addrs() []netip.Addr { return h.Own }

// Peer implements Host.
func (h *FakeHost) Peer(ifindex uint32) (Peer, bool) {
	p, ok := h.Peers[ifindex]
	return p, ok
}

// Use implements Host.
func (h *FakeHost) Use(*bpfmaps.Programs, string) error { return nil }

// Ensure implements Host.
func (h *FakeHost) Ensure(name string, ifindex uint32) error {
	if h.Fail != nil {
		return h.Fail
	}
	h.Attached[ifindex] = name
	return nil
}

// Detach implements Host.
func (h *FakeHost) Detach(ifindex uint32) error {
	delete(h.Attached, ifindex)
	return nil
}

// Guard implements Host.
func (h *FakeHost) Guard() error {
	h.Guarded = true
	return nil
}

// Wake implements Host.
func (h *FakeHost) Wake() <-chan struct{} { return h.wake }

// Close implements Host.
func (h *FakeHost) Close() error { return nil }
