package bpf

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/dataplane/nodewatch"
)

// Linux is the Host that this process runs on, in its own network namespace.
type Linux struct {
	*nodewatch.Watch
	prefix  string
	log     *slog.Logger
	links   *attach.Links // nil until Use
	linkDir string        // where links are pinned
	older   []string      // where an agent with another map layout has pinned its
	table   *conntrack.Later
	repairs uint64
	// overtaken are the interfaces where programs of others were seen before ours, with the line that was logged last.
	overtaken map[uint32]string
}

// OpenLinux watches the interfaces whose names begin with prefix, and the node's addresses.
func OpenLinux(prefix string, log *slog.Logger) (*Linux, error) {
	w, err := nodewatch.Open(prefix, log)
	if err != nil {
		return nil, err
	}
	return &Linux{Watch: w, prefix: prefix, log: log, table: conntrack.OpenLater(), overtaken: map[uint32]string{}}, nil
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
	var errs [4]error
	programs.FromPod, errs[0] = p.Get(bpf.MargayProgFromPod)
	programs.ToPod, errs[1] = p.Get(bpf.MargayProgToPod)
	programs.Guard, errs[2] = p.Get(bpf.MargayProgGuard)
	programs.Judge, errs[3] = p.Get(bpf.MargayProgJudge)
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if h.links != nil {
		return h.links.SetPrograms(programs)
	}
	var err error
	h.linkDir, h.older = linkDir, older
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
	if err == nil && change != attach.Attached {
		h.warnOfOthers(name, ifindex)
	}
	return err
}

// warnOfOthers logs once that programs of others run before ours at an interface: a packet that one of them accepts is not judged here. It
// is the decision of an administrator, so nothing is repaired.
func (h *Linux) warnOfOthers(name string, ifindex uint32) {
	fromPod, toPod, err := h.links.Before(ifindex)
	if err != nil || len(fromPod)+len(toPod) == 0 {
		if h.overtaken[ifindex] != "" && err == nil {
			h.log.Info("no programs of others run before Margay's on a workload interface any more", "iface", name)
		}
		delete(h.overtaken, ifindex)
		return
	}
	line := fmt.Sprint(name, len(fromPod), len(toPod))
	if h.overtaken[ifindex] == line {
		return
	}
	h.overtaken[ifindex] = line
	h.log.Warn("programs of "+whose(h.linkDir, slices.Concat(fromPod, toPod))+
		" run before Margay's on a workload interface; Margay does not see the packets that they accept",
		"iface", name, "beforeFromPod", len(fromPod), "beforeToPod", len(toPod))
}

// whose says in words whose programs have links that run before ours.
func whose(linkDir string, links []uint32) string {
	instances, err := bpfmaps.LinksOfOthers(linkDir)
	if err != nil {
		instances = nil // a path that is no pattern: only the words depend on it
	}
	return attach.Whose(links, instances)
}

// IsGone implements Host.
func (h *Linux) IsGone(ifindex uint32) (bool, error) { return h.links.IsGone(ifindex) }

// Earlier implements Host.
func (h *Linux) Earlier() (e Earlier, err error) {
	if e.Guarded, err = attach.Hooked(h.linkDir); err != nil {
		return e, err
	}
	for _, dir := range h.older {
		attached, err := attach.Judging(dir)
		if err != nil {
			return e, err
		}
		if attached != nil && e.Others == nil {
			e.Others = map[uint32]bool{}
		}
		maps.Copy(e.Others, attached)
	}
	if e.Outside, err = attach.Outside(h.prefix, h.linkDir); err != nil {
		return e, err
	}
	e.OutsideOthers, err = attach.Outside(h.prefix, h.older...)
	return e, err
}

// Tracks implements Host. If that is not known the kernel may have the table, and EndConnections says why.
func (h *Linux) Tracks() bool {
	there, err := conntrack.IsThere()
	return there || err != nil
}

// EndConnections implements Host.
func (h *Linux) EndConnections(of map[netip.Addr]bool, others func(netip.Addr)) error {
	isOf := func(a netip.Addr) bool {
		if others != nil && !of[a] {
			others(a)
		}
		return of[a]
	}
	for _, family := range []conntrack.Family{conntrack.IPv4, conntrack.IPv6} {
		if _, err := h.table.DeleteAddresses(family, isOf); err != nil {
			return err
		}
	}
	return nil
}

// Detach implements Host.
func (h *Linux) Detach(ifindex uint32) error {
	delete(h.overtaken, ifindex)
	return h.links.Detach(ifindex)
}

// Guard implements Host.
func (h *Linux) Guard(early bool) error {
	change, err := h.links.EnsureHooks()
	var earlyErr error
	if early {
		var did attach.Change
		did, earlyErr = h.links.EnsureEarly()
		change = max(change, did)
	} else {
		earlyErr = h.links.SuspendEarly()
	}
	err = errors.Join(err, earlyErr)
	if err == nil && change == attach.Repaired {
		h.repairs++
		h.log.Warn("netfilter programs had been detached by somebody else, attached again")
	}
	_, staleErr := h.links.RemoveStale()
	if err != nil {
		return errors.Join(err, staleErr)
	}
	unknown, err := h.links.RemoveUnknown()
	if len(unknown) > 0 {
		h.log.Warn("detached programs that another version of Margay has left, and that this one does not know", "pins", unknown)
	}
	return errors.Join(err, staleErr)
}

// ResumeEarly implements Host.
func (h *Linux) ResumeEarly() error { return h.links.ResumeEarly() }

// Repairs implements Host.
func (h *Linux) Repairs() uint64 { return h.repairs }

// Faults implements Host.
func (h *Linux) Faults(ifindex uint32) []string { return h.links.Faults(ifindex) }

// HookFaults implements Host.
func (h *Linux) HookFaults() []string { return h.links.HookFaults() }

// Close implements Host.
func (h *Linux) Close() error {
	h.Watch.Close()
	err := h.table.Close()
	if h.links == nil {
		return err
	}
	if closeErr := h.links.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("close links: %w", closeErr))
	}
	return err
}
