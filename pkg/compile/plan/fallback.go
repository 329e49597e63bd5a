package plan

import (
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// fallback is the state a Compiler needs to return to the tables that were in the kernel before the last plan, and to say what that plan
// changes.
type fallback struct {
	confirm bool
	changed []model.EndpointID // endpoints that the last plan has judged otherwise, but for what moved
	moved   [][2]uint32        // the classes that addresses had before the last plan, and have now
	rebound []*endpoint        // that have a prior
	grown   []*program         // that have a before
	retry   bool               // the next plan tries tables again that could not be published
}

// remember keeps what an endpoint is judged by until the next plan.
func (f *fallback) remember(e *endpoint) {
	is, want := e.applied.programs, e.desired.programs
	if !f.confirm || e.applied.policy == nil || want[0] == nil || is == want || is[0] == nil || is[1] == nil || !e.sameAddrs() {
		return
	}
	e.prior = e.applied.programs
	for _, prog := range e.prior {
		prog.kept++
	}
	f.rebound = append(f.rebound, e)
}

// rememberTable keeps the table before a larger one until the next plan.
func (f *fallback) rememberTable(prog *program) { f.grown = append(f.grown, prog) }

// allGrown returns the programs that have a larger table since the last plan.
func (f *fallback) allGrown() []*program { return f.grown }

// hasGrown reports whether the program has a larger table since the last plan.
func (f *fallback) hasGrown(prog *program) bool { return slices.Contains(f.grown, prog) }

// noteChanged notes an endpoint that the plan has judged by other tables, on another interface, or with other addresses or further sources.
func (f *fallback) noteChanged(id model.EndpointID) { f.changed = append(f.changed, id) }

// addChanged adds the endpoints that noteChanged was called for since the plan before the last.
func (f *fallback) addChanged(to map[model.EndpointID]bool) {
	for _, id := range f.changed {
		to[id] = true
	}
}

// noteMoved keeps the pairs of classes between which the plan moves addresses.
func (f *fallback) noteMoved(pairs [][2]uint32) { f.moved = pairs }

// allMoved returns the pairs of classes between which the last plan moves addresses.
func (f *fallback) allMoved() [][2]uint32 { return f.moved }

// confirmed is called when the last plan is in the kernel. The state before it is then no longer needed.
func (f *fallback) confirmed() {
	for _, e := range f.rebound {
		for _, prog := range e.prior {
			prog.kept--
		}
		e.prior = [2]*program{}
	}
	for _, prog := range f.grown {
		prog.before = nil
	}
	f.rebound, f.grown, f.changed, f.moved = nil, nil, nil, nil
}

// retryTables says whether the next plan is to try tables again that could not be published.
func (f *fallback) retryTables(retry bool) { f.retry = retry }

// retries reports, once, whether the plan is to try tables again that could not be published.
func (f *fallback) retries() bool {
	retry := f.retry
	f.retry = false
	return retry
}
