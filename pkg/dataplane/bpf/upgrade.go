package bpf

import (
	"errors"

	"github.com/margay-project/margay/pkg/bpfmaps"
)

// An agent whose maps have another layout than the pinned maps of an earlier agent starts with empty maps beside them.
// The earlier agent's programs enforce the policy in their own maps until each interface's links get the new programs.
// The interface's endpoint is in the new maps before that, so policy is in force at every moment. The guard is replaced
// last. Until then the earlier guard closes interfaces that were no endpoint of the earlier agent. For this reason an
// endpoint may be written before its programs are attached; with the new guard that would open it unjudged. Flows are
// not taken over: packets of live flows are judged as those of connections whose beginning was not seen.

// leaveOlder removes the pinned maps and links of other layouts once this one enforces everything.
func (s *state) leaveOlder() error {
	if !s.interfaces.guarded || !s.plans.Done() {
		return nil
	}
	return s.kernel.removeOlder()
}

func (k *kernel) removeOlder() error {
	if len(k.older) == 0 {
		return nil
	}
	var errs []error
	for _, dir := range k.older {
		errs = append(errs, bpfmaps.Remove(dir))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	k.log.Info("took over from an agent whose maps had another layout", "removed", k.older)
	k.older = nil
	return nil
}
