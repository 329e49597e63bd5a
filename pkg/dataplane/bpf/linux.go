package bpf

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/bpfmaps"
)

// Linux is the Host that this process runs on, in its own network namespace.
type Linux struct {
	log    *slog.Logger
	links  *attach.Links // nil until Use
	cancel context.CancelFunc
	done   sync.WaitGroup
	wake   chan struct{}
	nudge  *time.Timer // the last Nudge that is to wait

	mu         sync.Mutex // guards what the watches below write
	interfaces map[string]uint32
	touched    map[uint32]bool
	addrs      []netip.Addr
}

// OpenLinux watches the interfaces whose names begin with prefix, and the node's addresses.
func OpenLinux(prefix string, log *slog.Logger) (*Linux, error) {
	ctx, cancel := context.WithCancel(context.Background())
	h := &Linux{log: log, cancel: cancel, wake: make(chan struct{}, 1), interfaces: map[string]uint32{},
		touched: map[uint32]bool{}}
	o := attach.WatchOptions{Logger: log}
	// The present state is read at once, so that the first look at it is complete; the watches only add changes.
	now, err := attach.Interfaces(o, prefix)
	if err != nil {
		cancel()
		return nil, err
	}
	for _, i := range now {
		h.interfaces[i.Name] = i.Ifindex
	}
	if h.addrs, err = attach.Addresses(o); err != nil {
		cancel()
		return nil, err
	}
	interfaces, err := attach.WatchInterfaces(ctx, o, prefix)
	if err != nil {
		cancel()
		return nil, err
	}
	addresses, err := attach.WatchAddresses(ctx, o)
	if err != nil {
		cancel()
		return nil, err
	}
	h.done.Go(func() { h.followInterfaces(interfaces) })
	h.done.Go(func() { h.followAddresses(addresses) })
	return h, nil
}

func (h *Linux) followInterfaces(changes <-chan attach.Interface) {
	for i := range changes {
		h.mu.Lock()
		// The name may have been known under another number, and the number under another name.
		maps.DeleteFunc(h.interfaces, func(_ string, n uint32) bool { return n == i.Ifindex })
		if !i.Gone {
			h.interfaces[i.Name] = i.Ifindex
			h.touched[i.Ifindex] = true
		}
		h.mu.Unlock()
		h.notify()
	}
}

func (h *Linux) followAddresses(changes <-chan []netip.Addr) {
	for list := range changes {
		h.mu.Lock()
		changed := !slices.Equal(h.addrs, list)
		h.addrs = list
		h.mu.Unlock()
		if changed {
			h.notify()
		}
	}
}

func (h *Linux) notify() {
	select {
	case h.wake <- struct{}{}:
	default: // one is waiting already
	}
}

// Interfaces implements Host.
func (h *Linux) Interfaces() map[string]uint32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.interfaces)
}

// Touched implements Host.
func (h *Linux) Touched() []uint32 {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.Sorted(maps.Keys(h.touched))
	clear(h.touched)
	return list
}

// Addrs implements Host.
func (h *Linux) Addrs() []netip.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.addrs
}

// Peer implements Host.
func (h *Linux) Peer(ifindex uint32) (Peer, bool) {
	pod, ok, err := attach.FindPodSide(ifindex)
	if err != nil || !ok {
		return Peer{}, false // no shortcut then; everything else works
	}
	return Peer{Ifindex: pod.Ifindex, MAC: pod.MAC, MTU: pod.MTU}, true
}

// Use implements Host.
func (h *Linux) Use(p *bpfmaps.Programs, linkDir string, older []string) error {
	var programs attach.Programs
	var errs [3]error
	programs.FromPod, errs[0] = p.Get(bpf.MargayProgFromPod)
	programs.ToPod, errs[1] = p.Get(bpf.MargayProgToPod)
	programs.Judge, errs[2] = p.Get(bpf.MargayProgJudge)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if h.links != nil {
		return h.links.SetPrograms(programs)
	}
	var err error
	h.links, err = attach.NewLinks(linkDir, older, programs)
	return err
}

// Ensure implements Host.
func (h *Linux) Ensure(name string, ifindex uint32) error {
	change, err := h.links.Ensure(ifindex)
	if err == nil && change == attach.Repaired {
		h.log.Warn("programs had been detached by somebody else, attached again", "iface", name)
	}
	return err
}

// Detach implements Host.
func (h *Linux) Detach(ifindex uint32) error {
	return h.links.Detach(ifindex)
}

// Guard implements Host.
func (h *Linux) Guard() error {
	change, err := h.links.EnsureHooks()
	if err == nil && change == attach.Repaired {
		h.log.Warn("netfilter programs had been detached by somebody else, attached again")
	}
	_, staleErr := h.links.RemoveStale()
	return errors.Join(err, staleErr)
}

// Wake implements Host.
func (h *Linux) Wake() <-chan struct{} { return h.wake }

// Nudge implements Host.
func (h *Linux) Nudge(after time.Duration) {
	if after <= 0 {
		h.notify()
		return
	}
	if h.nudge != nil {
		h.nudge.Stop()
	}
	h.nudge = time.AfterFunc(after, h.notify)
}

// Close implements Host.
func (h *Linux) Close() error {
	h.cancel()
	h.done.Wait()
	if h.links == nil {
		return nil
	}
	if err := h.links.Close(); err != nil {
		return fmt.Errorf("close links: %w", err)
	}
	return nil
}
