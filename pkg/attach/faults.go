package attach

import (
	"errors"
	"fmt"
	"path/filepath"

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
			faults = append(faults, fmt.Sprintf("tcx/%s: programs of other software run before ours (%d of them), which sees no packet that they accept", s, state.Before))
		}
	}
	return faults
}

// HookFaults are what is not as EnsureHooks would have it, in words. To see whether a netfilter program is attached it tries
// to attach another one, which the kernel refuses while it is.
func (l *Links) HookFaults() (faults []string) {
	for _, h := range l.wanted() {
		if fault := l.hookFault(h); fault != "" {
			faults = append(faults, h.name+": "+fault)
		}
	}
	return faults
}

func (l *Links) hookFault(h hook) string {
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
