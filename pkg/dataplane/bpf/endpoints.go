package bpf

import (
	"errors"
	"fmt"
	"slices"

	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// endpoints are the local endpoints: the desired state of each, by the steps of plans (bind.go), and its state in the
// kernel. They follow interfaces that come, go, and come again under another number.
type endpoints struct {
	kernel     *kernel
	interfaces *interfaces
	staged     *stagedPolicies
	sources    *sources
	roster     *roster
	entries    *entries
	dirty      map[model.EndpointID]bool   // whose programming is to be tried (again)
	closed     map[model.EndpointID]string // closed because addresses are missing, and why
	peerless   map[model.EndpointID]bool   // programmed before the pod's side of their interface was looked up
}

func newEndpoints(k *kernel, t *tables, i *interfaces) *endpoints {
	e := &endpoints{kernel: k, interfaces: i, staged: newStagedPolicies(k, t), sources: newSources(k), roster: newRoster(),
		dirty: map[model.EndpointID]bool{}, closed: map[model.EndpointID]string{}, peerless: map[model.EndpointID]bool{}}
	e.entries = &entries{kernel: k, tables: t, staged: e.staged, sources: e.sources, shares: flowShares{k.maps.Flows}, roster: e.roster}
	return e
}

// observe records interfaces that changed. touched may be others under their numbers, without programs.
func (e *endpoints) observe(touched []uint32) {
	for id, ep := range e.roster.bound {
		if ep.ensured != 0 && slices.Contains(touched, ep.ensured) {
			ep.ensured = 0
			e.dirty[id] = true
		}
		if ep.policy != nil && e.interfaces.byName[ep.policy.Iface] != ep.ifindex {
			e.dirty[id] = true
		}
	}
}

// recheck has all endpoints programmed again, whatever is known of programs on their interfaces.
func (e *endpoints) recheck() {
	for id, ep := range e.roster.bound {
		e.dirty[id], ep.ensured = true, 0
	}
}

// due are the endpoints to be programmed whose tables are in the kernel, by id. The compiler knows of the others, or the
// plan has not got that far.
func (e *endpoints) due() []model.EndpointID {
	return slices.DeleteFunc(e.dirtyIDs(), func(id model.EndpointID) bool {
		ep := e.roster.bound[id]
		if ep == nil || ep.policy == nil {
			delete(e.dirty, id)
			return true
		}
		_, published := e.entries.words(ep)
		return !published
	})
}

func (e *endpoints) dirtyIDs() []model.EndpointID {
	ids := make([]model.EndpointID, 0, len(e.dirty))
	for id := range e.dirty {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, model.EndpointID.Compare)
	return ids
}

// leave withdraws endpoints from interfaces that are theirs no more.
func (e *endpoints) leave() error {
	var errs []error
	for _, id := range e.dirtyIDs() {
		ep := e.roster.bound[id]
		if ep == nil || ep.policy == nil || ep.ifindex == 0 || ep.ifindex == e.interfaces.byName[ep.policy.Iface] {
			continue
		}
		number := ep.ifindex
		if err := e.withdraw(ep); err != nil {
			errs = append(errs, fmt.Errorf("endpoint %s: %w", id, err))
			continue
		}
		e.kernel.heirs.lost(number) // another interface can have the number at once
	}
	return errors.Join(errs...)
}

// program brings one endpoint into the kernel. Without its interface there is nothing to do: the interface wakes the
// loop when it comes, and is closed until it is programmed (D-18). If the interface is there already, the policy is
// written first: it does not depend on the attached programs. moved reports that its addresses are to be written again.
func (e *endpoints) program(id model.EndpointID) (moved bool, err error) {
	ep := e.roster.bound[id]
	ep.failure = ""
	ifindex := e.interfaces.byName[ep.policy.Iface]
	if ifindex == 0 {
		return false, nil
	}
	if why := e.closed[id]; why != "" {
		return false, errors.New(why)
	}
	if ep.ifindex == ifindex || len(e.kernel.older) > 0 || e.kernel.other.judges() {
		if err := e.entries.write(ep, ifindex); err != nil {
			return false, err
		}
	}
	if ep.ensured != ifindex {
		err := e.interfaces.ensure(ep.policy.Iface, ifindex)
		if errors.Is(err, attach.ErrGone) {
			return false, nil // a notification is on its way
		}
		if err != nil {
			return false, err
		}
		ep.ensured = ifindex
		e.peerless[id] = true
		if ep.ifindex != ifindex {
			ep.peer = Peer{}
		}
	}
	if err := e.entries.write(ep, ifindex); err != nil {
		return false, err
	}
	moved, ep.ifindex = ep.ifindex != ifindex, ifindex
	return moved, nil
}

// waits reports whether an endpoint is not opened yet because of connections of former owners of its addresses.
func (e *endpoints) waits(ep *endpoint) bool {
	ifindex := e.interfaces.byName[ep.policy.Iface]
	return ifindex != 0 && ep.ifindex != ifindex && e.kernel.heirs.wait(ep.policy.Addrs)
}

// claim notes that an endpoint is about to be opened on its interface, if it is there.
func (e *endpoints) claim(ep *endpoint) {
	if ifindex := e.interfaces.byName[ep.policy.Iface]; ifindex != 0 {
		e.kernel.heirs.claim(ifindex, ep.policy.Addrs)
	}
}

// programmed says how programming an endpoint and its addresses ended. The error names it.
func (e *endpoints) programmed(id model.EndpointID, err error) error {
	if err != nil {
		ep := e.roster.bound[id]
		ep.failure = err.Error()
		return fmt.Errorf("endpoint %s on %s: %w", id, ep.policy.Iface, err)
	}
	if ep := e.roster.bound[id]; !e.kernel.heirs.wait(ep.policy.Addrs) { // else it is open, and gets an address later
		delete(e.dirty, id)
	}
	return nil
}

// flip publishes an endpoint's tables and generations, if it is in the kernel. If that fails it is closed.
func (e *endpoints) flip(ep *endpoint) error {
	if ep.ifindex == 0 {
		return nil
	}
	if err := e.entries.flip(ep); err != nil {
		return e.shut(ep, err)
	}
	return nil
}

// withdraw closes an endpoint's interface, as far as it is there. The guard keeps it closed from here on if it is a
// workload's; detach does the rest.
func (e *endpoints) withdraw(ep *endpoint) error {
	if ep.ifindex == 0 {
		return nil
	}
	if err := e.entries.remove(ep.ifindex); err != nil {
		return err
	}
	e.interfaces.leave(ep.ifindex)
	ep.ifindex, ep.ensured = 0, 0
	return nil
}

// shut closes an endpoint that cannot be what the plan says; program tries to open it again. An error is about closing
// it.
func (e *endpoints) shut(ep *endpoint, cause error) error {
	if ep.policy != nil {
		ep.failure = cause.Error()
		e.dirty[ep.policy.ID] = true
	}
	return e.withdraw(ep)
}

// shutJudgedBy closes the endpoints that a table judges. Staged policies that it stands for are not evaluated any more.
func (e *endpoints) shutJudgedBy(lost table.ID, cause error) error {
	for _, workload := range e.staged.lose(lost) {
		if ep := e.roster.bound[workload]; ep != nil && ep.ifindex != 0 {
			e.staged.remove(ep.ifindex)
			e.dirty[workload] = true
		}
	}
	var errs []error
	for _, ep := range e.roster.bound {
		if slices.Contains(ep.tables[:], lost) {
			errs = append(errs, e.shut(ep, cause))
		}
	}
	return errors.Join(errs...)
}

// close closes the endpoints that must not be open, and why, and opens those that were and need not be any more.
func (e *endpoints) close(now map[model.EndpointID]string) error {
	for id := range e.closed {
		if now[id] == "" {
			e.dirty[id] = true
		}
	}
	e.closed = now
	var errs []error
	for id, why := range now {
		if ep := e.roster.bound[id]; ep != nil {
			errs = append(errs, e.shut(ep, errors.New(why)))
		}
	}
	return errors.Join(errs...)
}

// meetPeers finds out about the pods' sides of interfaces, which the shortcut needs and nothing else. Asking the kernel
// may take longer than all that an endpoint needs, while interfaces come and go.
func (e *endpoints) meetPeers() {
	for id := range e.peerless {
		ep := e.roster.bound[id]
		if ep != nil && ep.policy != nil && (ep.ifindex == 0 || ep.ensured != ep.ifindex) {
			continue // not yet
		}
		delete(e.peerless, id)
		if ep == nil || ep.policy == nil {
			continue
		}
		if peer, _ := e.kernel.host.Peer(ep.ifindex); peer != ep.peer {
			ep.peer = peer
			if e.entries.write(ep, ep.ifindex) != nil { // Apply tries again and tells
				e.dirty[id] = true
				e.kernel.host.Nudge(0)
			}
		}
	}
}
