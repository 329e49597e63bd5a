package plan

import (
	"maps"
	"slices"

	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// endpoints are the local endpoints, and those found in the kernel at the start.
type endpoints struct {
	addrs    *addresses
	policies *policies
	failures *failures
	list     map[model.EndpointID]*endpoint
	ifaces   map[string]model.EndpointID // of endpoints found in the kernel, whose ids may be stand-ins
	stale    map[model.EndpointID]bool   // their programs may have to change
	shadows  *shadows
}

func newEndpoints(addrs *addresses, policies *policies, f *failures) *endpoints {
	return &endpoints{addrs: addrs, policies: policies, failures: f,
		list:   map[model.EndpointID]*endpoint{},
		ifaces: map[string]model.EndpointID{},
		stale:  map[model.EndpointID]bool{}, shadows: newShadows()}
}

// update applies a change of an endpoint; nil: it is gone.
func (s *endpoints) update(id model.EndpointID, policy *model.EndpointPolicy) {
	e := s.list[id]
	if e == nil {
		if policy == nil {
			return
		}
		if e = (&endpoint{id: id}); !isShadow(id) {
			e = s.known(id, policy.Iface)
		}
		s.list[id] = e
	}
	was := e.desired.policy
	e.desired.policy = policy
	s.failures.unbar(id)
	s.stale[id] = true
	for d := range e.desired.folds {
		old := e.desired.folds[d]
		e.desired.folds[d] = nil
		if policy != nil {
			e.desired.folds[d] = s.policies.use(e.directionPolicy(model.Direction(d)))
		}
		s.policies.leave(old)
	}
	if !isShadow(id) {
		s.addrs.claim(id, was, policy)
	}
}

// known returns the record of an endpoint that is new to the Compiler: that of the one found in the kernel with its
// interface, if there was one.
func (s *endpoints) known(id model.EndpointID, iface string) *endpoint {
	old, ok := s.ifaces[iface]
	if !ok {
		return &endpoint{id: id}
	}
	delete(s.ifaces, iface)
	e := s.list[old]
	if e == nil || e.desired.policy != nil {
		return &endpoint{id: id}
	}
	delete(s.list, old)
	delete(s.stale, old)
	as := *e.applied.policy
	as.ID = id
	e.id, e.applied.policy = id, &as
	return e
}

// adopt notes an endpoint found in the kernel, and the programs that judge it there.
func (s *endpoints) adopt(e SnapshotEndpoint, ingress, egress *program) {
	s.list[e.ID] = &endpoint{
		id: e.ID,
		applied: applied{
			policy:   &model.EndpointPolicy{ID: e.ID, Iface: e.Iface, Addrs: e.Addrs},
			programs: [2]*program{model.Ingress: ingress, model.Egress: egress},
		},
	}
	s.stale[e.ID] = true
	s.ifaces[e.Iface] = e.ID
}

// forget makes endpoints new that come from now on with interfaces of those found in the kernel.
func (s *endpoints) forget() { clear(s.ifaces) }

// sorted returns all endpoints by id.
func (s *endpoints) sorted() []*endpoint {
	return slices.SortedFunc(maps.Values(s.list), func(a, b *endpoint) int { return a.id.Compare(b.id) })
}

// staleAll makes the next plan look at every endpoint.
func (s *endpoints) staleAll() {
	for id := range s.list {
		s.stale[id] = true
	}
}

// staleLocal makes the next plan look at the endpoints whose own addresses have joined or left sets.
func (s *endpoints) staleLocal() {
	some, all := s.addrs.moved()
	if all {
		s.staleAll()
		return
	}
	s.markStale(some)
}

// markStale makes the next plan look at these endpoints.
func (s *endpoints) markStale(ids []model.EndpointID) {
	for _, id := range ids {
		s.stale[id] = true
		if shadow := id.Shadow(); s.list[shadow] != nil {
			s.stale[shadow] = true
		}
	}
}

// get returns one endpoint; nil if there is none.
func (s *endpoints) get(id model.EndpointID) *endpoint { return s.list[id] }

func (s *endpoints) remove(e *endpoint) { delete(s.list, e.id) }

// drainStale returns the endpoints that the plan is to look at, by id: the stale ones, which are not stale any more, and
// others; and if there are any, those that were refused before.
func (s *endpoints) drainStale(others, refused map[model.EndpointID]bool) []*endpoint {
	s.staleLocal()
	maps.Copy(s.stale, others)
	if len(s.stale) > 0 {
		maps.Copy(s.stale, refused)
	}
	var all []*endpoint
	for id := range s.stale {
		all = append(all, s.list[id])
	}
	clear(s.stale)
	slices.SortFunc(all, func(a, b *endpoint) int { return a.id.Compare(b.id) })
	return all
}

// addShort adds the endpoint-directions whose table could not be made as it is to be, and why.
func (s *endpoints) addShort(to map[EndpointDirection]error) {
	for _, e := range s.list {
		for d, prog := range e.applied.programs {
			if prog != nil && prog.short != nil {
				to[EndpointDirection{e.id, model.Direction(d)}] = prog.short
			}
		}
	}
}

// allBytesUsed counts all tables.
func (s *endpoints) allBytesUsed() bytesUsed { return s.bytesUsed(nil) }

// bytesUsed counts all tables but those left out.
func (s *endpoints) bytesUsed(but map[table.ID]bool) bytesUsed {
	u := bytesUsed{by: map[string]int{}, users: map[*program][]string{}}
	for _, e := range s.sorted() {
		for _, prog := range e.applied.programs {
			if prog == nil || prog.table == nil || slices.Contains(u.users[prog], accountOf(e.id)) {
				continue
			}
			u.users[prog] = append(u.users[prog], accountOf(e.id))
			if !but[prog.table.ID] {
				u.add(accountOf(e.id), prog.table)
			}
		}
	}
	return u
}
