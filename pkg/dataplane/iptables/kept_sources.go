package iptables

import (
	"fmt"
	"slices"
	"time"

	"github.com/margay-project/margay/pkg/further"
)

// read returns the routes to endpoints that list further sources. It logs the first error in a row: not every caller waits for routes.
func (k *kept) read(lists ...[]further.Listed) ([]further.Route, error) {
	listed := slices.Concat(lists...)
	if len(listed) == 0 || k.routes == nil {
		return nil, nil
	}
	routes, err := k.routes(further.Interfaces(listed))
	switch {
	case err != nil && !k.unread:
		k.log.Warn("the node's routes cannot be read: until they can, connections of further sources go on although the node may route these to "+
			"another pod; will try again each second", "err", err)
	case err == nil && k.unread:
		k.log.Info("the node's routes can be read again: connections of further sources that another pod has by now end")
	}
	if k.unread = err != nil; err != nil {
		return nil, fmt.Errorf("read routes, to end connections of former further sources: %w", err)
	}
	return routes, nil
}

// follow ends the connections of further sources that an endpoint lists no more, or that it lists from now on: those are of former owners, since
// its own packets were dropped. Call it after the former have ceased to count and before the latter count. Without the routes of now,
// those of before count: another plan does not have to wait for them. Then reroute ends the others once a look has found routes.
func (k *kept) follow(now []further.Listed) error {
	if k == nil || slices.Equal(now, k.followed) {
		return nil
	}
	routes, err := k.read(k.listed, now)
	if k.fresh {
		k.listed, k.followed = slices.Clone(now), slices.Clone(now)
		if err == nil {
			k.paths = routes
		}
		return nil
	}
	if err := k.wait(); err != nil {
		return err
	}
	if err == nil {
		return k.move(now, routes)
	}
	if err := k.end(now, k.paths); err != nil {
		return err
	}
	k.followed = slices.Clone(now)
	return nil
}

// lookPart is the part of the time that looking at routes may take: one in so many.
const lookPart = 50

// look reads the routes to further sources, and reports whether reroute has to end connections.
func (k *kept) look(now func() time.Time) (moved bool) {
	began := now()
	if len(k.listed)+len(k.followed) == 0 || k.moved || began.Sub(k.looked) < lookPart*k.cost {
		return k.moved
	}
	routes, err := k.read(k.listed, k.followed)
	if err != nil {
		return false // the next look tries again
	}
	k.looked = now()
	k.cost = k.looked.Sub(began)
	k.moved = !slices.Equal(routes, k.paths) || !slices.Equal(k.followed, k.listed)
	return k.moved
}

// moves reports whether reroute has to end connections from now on, by a look; false also if an earlier one has found that.
func (k *kept) moves() bool { return k != nil && !k.moved && k.look(time.Now) }

// reroute ends the connections of further sources that the node does not route any more to the endpoint that lists them, and those that follow
// has left for want of routes.
func (k *kept) reroute() error {
	if k == nil || !k.moved {
		return nil
	}
	routes, err := k.read(k.listed, k.followed)
	if err != nil {
		return err
	}
	if k.fresh {
		k.paths = routes
	} else if err := k.move(k.followed, routes); err != nil {
		return err
	}
	k.moved = false
	return nil
}

// move makes the given lists and routes those of the connections that there are: it ends all others.
func (k *kept) move(listed []further.Listed, routes []further.Route) error {
	if err := k.end(listed, routes); err != nil {
		return err
	}
	k.listed, k.followed, k.paths = slices.Clone(listed), slices.Clone(listed), routes
	return nil
}

// end ends the connections of further sources that have another owner by the given lists and routes.
func (k *kept) end(listed []further.Listed, routes []further.Route) error {
	was := owners{listed: k.listed, paths: k.paths}
	if err := endConnections(k.flows, was.reassigned(listed, routes)); err != nil {
		return fmt.Errorf("end connections of former further sources: %w", err)
	}
	return nil
}
