package plans

import (
	"fmt"
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
)

// Writer writes plans to the kernel.
type Writer interface {
	// CarryOn carries out the steps of the plan that are left, and moves Planner.Step along. After an error the next call
	// begins with the step that failed.
	CarryOn() error
	// Busy are the classes whose numbers the next plan must not give to others. The map must not be changed, and is void once there is a plan.
	Busy() map[uint32]bool
	// Overhead is the time since its last call that CarryOn has spent on what the plan leaves as it was, and would spend with a
	// smaller plan, too; 0 if writes cost what they write.
	Overhead() time.Duration
	// Fault reports whether what is in the plan may be the cause of an error of CarryOn. Otherwise others keep the dataplane from writing,
	// and would keep it from writing any other plan.
	Fault(err error) bool
}

// CarryOut carries out the remaining steps of the plan, and the plans for waiting changes and for cleaning up. It does as much of
// large policies at a time as the pace allows, so that other changes come in between. After the plan of the last waiting change it
// leaves them to the next call, unless the call before did so, too: so a change that has come in meanwhile waits for one plan, and
// changes that come all the time do not keep large policies from being compiled. The error is dataplane.ErrStuck if changes wait for a
// plan that cannot be written, and that may be the plan's fault.
func CarryOut(p *Planner, pace *Pace, w Writer, o dataplane.Observer) error {
	err, part := w.CarryOn(), true
	for err == nil {
		rest := !part || pace.Wait() > 0
		if !p.Pending() && (rest || !p.Plan.More) {
			break
		}
		started, more := time.Now(), p.Plan.More
		w.Overhead() // of plans before this one
		parts := pace.Parts()
		if rest {
			parts = 0
		}
		changed := p.Next(w.Busy(), parts)
		part = changed // changes come first, and leave large policies to the next plan
		compiled := time.Now()
		err = w.CarryOn()
		switch {
		case changed && more:
			pace.Interrupted()
		case !changed && !rest:
			pace.Took(time.Since(started), w.Overhead())
		}
		if changed {
			o.Compiled(compiled.Sub(started))
			o.Published(time.Since(compiled))
		}
		if changed && err == nil && p.Plan.More && len(p.Waiting) == 0 && pace.Yield() {
			break // the next Apply goes on, with what has come in meanwhile
		}
	}
	p.err = err
	if err != nil && p.Stuck() && w.Fault(err) {
		err = fmt.Errorf("%w: %w", dataplane.ErrStuck, err)
	}
	return err
}
