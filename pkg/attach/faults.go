package attach

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Faults are what is not as Ensure would have it at an interface, in words.
func (l *Links) Faults(ifindex uint32) (faults []string) {
	programs := map[side]uint32{ingress: uint32(l.ids[l.programs.FromPod]), egress: uint32(l.ids[l.programs.ToPod])}
	for _, s := range []side{ingress, egress} {
		key := tcxKey{ifindex: ifindex, side: s}
		state, err := linkState(filepath.Join(l.pins.dir, key.pin()), key)
		switch {
		case err != nil:
			faults = append(faults, fmt.Sprintf("tcx/%s: the link cannot be read: %v", s, err))
		case !state.Attached || !state.Here:
			faults = append(faults, fmt.Sprintf("tcx/%s: the program is not attached", s))
		case state.Program != programs[s]:
			faults = append(faults, fmt.Sprintf("tcx/%s: the link runs program %d instead of %d", s, state.Program, programs[s]))
		case state.Before > 0:
			faults = append(faults, fmt.Sprintf("tcx/%s: programs of others run before ours (%s), which sees no packet that they accept", s, programNames(state.Overtaking)))
		}
	}
	return faults
}

// programNames are the names of programs, with their ids as bpftool shows them. A name has at most 15 bytes, and may be empty.
func programNames(ids []uint32) string {
	var names []string
	for _, id := range ids {
		name := fmt.Sprintf("id %d", id)
		if p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id)); err == nil { // else it has gone
			if info, err := p.Info(); err == nil && info.Name != "" {
				name = fmt.Sprintf("%q, id %d", info.Name, id)
			}
			_ = p.Close()
		}
		names = append(names, name)
	}
	return strings.Join(names, "; ")
}

// HookFaults are what is not as EnsureHooks and EnsureEarly would have it, in words; the latter unless guard is suspended. To see whether a netfilter program is attached it tries
// to attach another one, which the kernel refuses while it is.
func (l *netfilterLinks) HookFaults() (faults []string) {
	hooks := l.wanted()
	if l.early {
		hooks = append(hooks, l.wantedEarly()...)
	}
	for _, h := range hooks {
		if fault := l.hookFault(h); fault != "" {
			faults = append(faults, h.name+": "+fault)
		}
	}
	return faults
}

func (l *netfilterLinks) hookFault(h hook) string {
	names, err := l.hookPins(h)
	if err != nil {
		return err.Error()
	}
	for _, name := range names {
		opened, err := l.pins.load(name)
		if err != nil {
			return err.Error()
		}
		if opened == nil {
			continue
		}
		info, err := opened.Info()
		opened.Close()
		if err != nil || info.Program != l.ids[h.program] {
			continue
		}
		priority, _ := h.priorityOf(name)
		again, err := h.attach(priority)
		if err == nil {
			again.Close()
			return "the program is not attached"
		}
		if !errors.Is(err, unix.EBUSY) {
			return err.Error()
		}
		return ""
	}
	return "no link of it is pinned"
}
