package node

import (
	"errors"
	"slices"
)

// held lists how to release what was acquired, in the order in which it was acquired. A later entry may use an earlier one, so they are
// released in the reverse order.
type held struct{ releases []func() error }

func (h *held) add(release func() error) { h.releases = append(h.releases, release) }

// release releases everything, whatever fails, and forgets it.
func (h *held) release() error {
	var errs []error
	for _, release := range slices.Backward(h.releases) {
		errs = append(errs, release())
	}
	h.releases = nil
	return errors.Join(errs...)
}
