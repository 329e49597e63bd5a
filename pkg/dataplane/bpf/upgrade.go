package bpf

import (
	"errors"

	"github.com/margay-project/margay/pkg/bpfmaps"
)

// An agent whose maps have another layout than those an earlier agent has pinned begins with empty maps beside them. The
// earlier one's programs go on enforcing what is in theirs until each interface's links are given the new programs: its
// endpoint is in the new maps before that, so no moment is without policy. The guard comes last, and until then the
// earlier one's closes what was no endpoint to it, which is why an endpoint may be written before its programs are
// attached, what otherwise would open it unjudged. Flows are not taken over: packets of live ones are judged as
// those of connections whose beginning was not seen.

// leaveOlder removes what is left of other layouts once everything is enforced by this one.
func (s *state) leaveOlder() error {
	k := s.kernel
	if len(k.older) == 0 || !s.interfaces.guarded || !s.plans.done() {
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
