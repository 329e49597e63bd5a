package attach

import (
	"slices"

	"github.com/cilium/ebpf"
)

// UnknownPins returns the pins in dir that no agent of this version makes, by name. A newer one may have left them: their programs go on
// to run, and this agent neither replaces nor removes them.
func UnknownPins(dir string) ([]string, error) {
	names, err := pinNames(dir)
	some := &ebpf.Program{}
	hooks := (&Links{programs: Programs{Guard: some, Judge: some}}).wanted()
	return slices.DeleteFunc(names, func(name string) bool {
		_, isTCX := parsePin(name)
		return isTCX || slices.ContainsFunc(hooks, func(h hook) bool {
			_, is := h.priorityOf(name)
			return is
		})
	}), err
}
