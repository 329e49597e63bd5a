package plan

import (
	"errors"
	"maps"

	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

// failures are the endpoint-directions that do not get their policy, and why.
type failures struct {
	why map[EndpointDirection]error
	// barred are those whose policy the kernel had no room for, until it changes or Retry.
	barred map[EndpointDirection]error
	full   map[EndpointDirection]bytesUsed // barred by a limit: the bytes that were used at that time
	// kept are those whose desired program is that of an earlier policy.
	kept map[EndpointDirection]bool
	// refused are the endpoints for which there was no room in a namespace or on the node. There may be some later.
	refused map[model.EndpointID]bool
}

func newFailures() *failures {
	return &failures{
		why:     map[EndpointDirection]error{},
		barred:  map[EndpointDirection]error{},
		full:    map[EndpointDirection]bytesUsed{},
		kept:    map[EndpointDirection]bool{},
		refused: map[model.EndpointID]bool{},
	}
}

func (f *failures) note(at EndpointDirection, err error) {
	f.why[at] = err
	if errors.Is(err, errNoRoom) {
		f.refused[at.Endpoint] = true
	}
}

// forget is for an endpoint whose policy is to be compiled.
func (f *failures) forget(id model.EndpointID) {
	delete(f.refused, id)
	for d := range model.Direction(2) {
		delete(f.why, EndpointDirection{id, d})
		delete(f.kept, EndpointDirection{id, d})
	}
}

// keep notes that an endpoint-direction that was noted has the program of an earlier policy.
func (f *failures) keep(at EndpointDirection) { f.kept[at] = true }

func (f *failures) allRefused() map[model.EndpointID]bool { return f.refused }

func (f *failures) wasRefused(id model.EndpointID) bool { return f.refused[id] }

func (f *failures) all() map[EndpointDirection]error { return maps.Clone(f.why) }

// len counts those of enforced policy.
func (f *failures) len() (n int) {
	for at := range f.why {
		if !isShadow(at.Endpoint) {
			n++
		}
	}
	return n
}

// bar keeps the policy of an endpoint-direction from being compiled again.
func (f *failures) bar(at EndpointDirection, err error) {
	f.why[at], f.barred[at] = err, err
	if errors.Is(err, match.ErrOverLimit) {
		f.full[at] = bytesUsed{} // measured once all are barred
	}
}

// bars returns why an endpoint-direction is barred; nil: it is not.
func (f *failures) bars(at EndpointDirection) error { return f.barred[at] }

// unbar lets an endpoint's policy be tried, because it is another.
func (f *failures) unbar(id model.EndpointID) {
	for d := range model.Direction(2) {
		delete(f.barred, EndpointDirection{id, d})
		delete(f.full, EndpointDirection{id, d})
	}
}

// noteFull notes the bytes in use for the endpoint-directions that a limit has just barred.
func (f *failures) noteFull(count func() bytesUsed) {
	var used bytesUsed
	for at, was := range f.full {
		if was.by != nil {
			continue
		}
		if used.by == nil {
			used = count()
		}
		f.full[at] = used
	}
}

// retry lets the policies be tried for which there may be room by now, and returns whose they are. waits: there are others.
func (f *failures) retry(count func() bytesUsed) (again []model.EndpointID, waits bool) {
	if len(f.barred) == 0 {
		return nil, false
	}
	used := count()
	for at := range f.barred {
		namespace := accountOf(at.Endpoint)
		if was, ok := f.full[at]; ok && *used.node(namespace) >= *was.node(namespace) && used.by[namespace] >= was.by[namespace] {
			waits = true
			continue
		}
		delete(f.barred, at)
		delete(f.full, at)
		again = append(again, at.Endpoint)
	}
	return again, waits
}
