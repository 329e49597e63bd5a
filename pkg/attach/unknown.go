package attach

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf"
)

// unknownPins returns the pins in dir that no agent of this version makes, by name. A newer one has left them: their programs go on to run.
func unknownPins(dir string) ([]string, error) {
	names, err := pinNames(dir)
	some := &ebpf.Program{}
	l := netfilterLinks{judge: some, guard: some}
	hooks := append(l.wanted(), l.wantedEarly()...)
	return slices.DeleteFunc(names, func(name string) bool {
		_, isTCX := parsePin(name)
		return isTCX || slices.ContainsFunc(hooks, func(h hook) bool {
			_, is := h.priorityOf(name)
			return is
		})
	}), err
}

// RemoveUnknown removes the pins that no agent of this version makes, and returns their names: a newer agent has left them, and their programs
// would judge packets by what that agent wrote last. Call it once this agent's own programs are attached.
func (l *Links) RemoveUnknown() (removed []string, err error) {
	unknown, err := unknownPins(l.pins.dir)
	errs := []error{err}
	for _, name := range unknown {
		err := l.pins.unpin(name)
		if errs = append(errs, err); err == nil {
			removed = append(removed, name)
		}
	}
	return removed, errors.Join(errs...)
}
