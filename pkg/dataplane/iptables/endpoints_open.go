package iptables

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/shares"
)

// admit opens the addresses of the endpoints that are to be open, and closes those of the others.
func (e *endpoints) admit() error {
	for _, id := range slices.SortedFunc(maps.Keys(e.bound), model.EndpointID.Compare) {
		ep := e.bound[id]
		var err error
		if ep.closed == "" && ep.refused == nil {
			err = e.admitOne(id, ep)
		}
		if noRoom(err) {
			ep.refused, err = err, nil
		}
		if ep.closed != "" || ep.refused != nil {
			err = e.close(keys(ep.policy))
		}
		err = errors.Join(err, e.sources.write(id, ep, ep.closed == "" && ep.refused == nil))
		if err != nil {
			return fmt.Errorf("endpoint %s: %w", id, err)
		}
	}
	return nil
}

// admitOne opens the addresses of an endpoint whose entries belong to it, and which have no connections of former owners any more.
func (e *endpoints) admitOne(id model.EndpointID, ep *endpoint) error {
	for _, k := range keys(ep.policy) {
		if e.open[k] || e.holder[k] != id || e.heirs.has(k.Prefix.Addr()) {
			continue
		}
		if err := write(e.sets.of[familyOf(k.Prefix.Addr())].own, ipsets.Change{Entry: ipsets.Entry{Key: k}}); err != nil {
			return err
		}
		e.journal().endpoint(id, true)
		e.open[k] = true
		e.changes++
	}
	return nil
}

// closeFor closes the endpoints for which there is a reason, and forgets the reasons of the others; admit opens those.
func (e *endpoints) closeFor(reasons map[model.EndpointID]string) error {
	var errs []error
	for id, ep := range e.bound {
		if ep.closed = reasons[id]; ep.closed != "" {
			errs = append(errs, e.close(keys(ep.policy)))
		}
	}
	return errors.Join(errs...)
}

// noRoom reports whether the kernel has no room for one entry in a set: too many, or too many interfaces with one address.
func noRoom(err error) bool {
	return errors.Is(err, ipsets.ErrFull) || errors.Is(err, ipsets.ErrCrowded)
}

// retry writes the entries again for which the kernel had no room; admit opens the endpoints.
func (e *endpoints) retry() error {
	for id, ep := range e.bound {
		if ep.refused == nil {
			continue
		}
		err := e.write(plan.Binding{Endpoint: ep.policy, Ingress: ep.tables[model.Ingress], Egress: ep.tables[model.Egress]})
		if err != nil && !noRoom(err) {
			return fmt.Errorf("endpoint %s: %w", id, err)
		}
		e.journal().endpoint(id, true)
		ep.refused = err
	}
	return nil
}

// err names the endpoints that are closed because the kernel has no room for their entries.
func (e *endpoints) err() error {
	var errs []error
	for _, id := range slices.SortedFunc(maps.Keys(e.bound), model.EndpointID.Compare) {
		if why := e.bound[id].refused; why != nil {
			errs = append(errs, fmt.Errorf("endpoint %s is closed: %w", id, why))
		}
	}
	return errors.Join(errs...)
}

// isOpen reports whether all addresses of an endpoint are open.
func (e *endpoints) isOpen(ep *endpoint) bool {
	return !slices.ContainsFunc(keys(ep.policy), func(k ipsets.Key) bool { return !e.open[k] })
}

// inherits reports whether addresses of an endpoint are not open yet because of connections of their former owners.
func (e *endpoints) inherits(ep *endpoint) bool {
	return slices.ContainsFunc(keys(ep.policy), func(k ipsets.Key) bool { return !e.open[k] && e.heirs.has(k.Prefix.Addr()) })
}

// ends returns the endpoints as the limiter of connections knows them. An address that several endpoints claim is in the list for each of
// them; the one that is open has it.
func (e *endpoints) ends() []shares.Endpoint {
	list := make([]shares.Endpoint, 0, len(e.holder))
	for k, id := range e.holder {
		list = append(list, shares.Endpoint{ID: id, Iface: k.Interface, Addrs: []netip.Addr{k.Prefix.Addr()}, Open: e.open[k]})
	}
	return append(list, e.sources.ends(e.bound)...)
}

// version changes with what ends returns.
func (e *endpoints) version() [2]uint64 { return [2]uint64{e.changes, e.sources.changes} }
