package bpf

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/dataplane/nodewatch"
)

// Linux is the Host that this process runs on, in its own network namespace.
type Linux struct {
	*nodewatch.Watch
	log     *slog.Logger
	links   *attach.Links // nil until Use
	repairs uint64
}

// OpenLinux watches the interfaces whose names begin with prefix, and the node's addresses.
func OpenLinux(prefix string, log *slog.Logger) (*Linux, error) {
	w, err := nodewatch.Open(prefix, log)
	if err != nil {
		return nil, err
	}
	return &Linux{Watch: w, log: log}, nil
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
		h.repairs++
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
		h.repairs++
		h.log.Warn("netfilter programs had been detached by somebody else, attached again")
	}
	_, staleErr := h.links.RemoveStale()
	return errors.Join(err, staleErr)
}

// Repairs implements Host.
func (h *Linux) Repairs() uint64 { return h.repairs }

// faults are what is not attached as it should be: to an interface, or, without one, to netfilter's hooks.
func (h *Linux) faults(ifindex uint32) []string {
	if ifindex == 0 {
		return h.links.HookFaults()
	}
	return h.links.Faults(ifindex)
}

// Close implements Host.
func (h *Linux) Close() error {
	h.Watch.Close()
	if h.links == nil {
		return nil
	}
	if err := h.links.Close(); err != nil {
		return fmt.Errorf("close links: %w", err)
	}
	return nil
}
