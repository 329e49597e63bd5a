package plan

import "slices"

// fallback is the state a Compiler needs to return to the tables that were in the kernel before the last plan.
type fallback struct {
	confirm bool
	rebound []*endpoint // that have a prior
	grown   []*program  // that have a before
	retry   bool        // the next plan tries tables again that could not be published
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
	f.rebound, f.grown = nil, nil
}

// retryTables says whether the next plan is to try tables again that could not be published.
func (f *fallback) retryTables(retry bool) { f.retry = retry }

// retries reports, once, whether the plan is to try tables again that could not be published.
func (f *fallback) retries() bool {
	retry := f.retry
	f.retry = false
	return retry
}
