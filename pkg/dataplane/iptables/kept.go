package iptables

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/further"
	"github.com/margay-project/margay/pkg/ipsets"
)

// Routes returns the node's routes out of interfaces, and those inside of them that lead elsewhere.
type Routes func(interfaces map[string]bool) ([]further.Route, error)

// owners are those of connections that policy has allowed: endpoints, by their addresses and further sources.
type owners struct {
	addrs  map[netip.Addr]string // interfaces by address
	listed []further.Listed
	paths  []further.Route // the routes to listed
}

// reassigned reports whether a further source has another owner by the given lists and routes. A route alone does not reassign a source that had
// no owner: the endpoint that owns it now may have begun the connection since the route changed.
func (o *owners) reassigned(listed []further.Listed, routes []further.Route) func(netip.Addr) bool {
	was, rerouted, now := further.New(o.listed, o.paths), further.New(o.listed, routes), further.New(listed, routes)
	return func(a netip.Addr) bool {
		before, between := was.Interface(a), rerouted.Interface(a)
		return before != "" && before != between || between != now.Interface(a)
	}
}

// kept ends live connections where existing ones are kept, if an address or a further source of theirs is another endpoint's by now, or
// no endpoint's: policy has allowed them to the former owner (D-19). Marks of connections do not show the owner.
type kept struct {
	flows  Flows
	routes Routes
	log    *slog.Logger
	// wait returns when no packet is left that has met former chains or entries of sets: such a packet may still begin a connection.
	wait func() error
	// former are the owners in the worlds in force, until packets go to this one. nil: there are none, or live flows are judged again.
	former *owners
	// listed are the further sources of endpoints, and paths the routes to these, both as of the connections that there are.
	listed []further.Listed
	paths  []further.Route
	// followed are the further sources as of the last follow. They are not listed if routes could not be read then.
	followed []further.Listed
	unread   bool // the last attempt to read routes failed
	moved    bool // routes are not paths any more, or followed is not listed and routes can be read
	// fresh: all connections that there are will be judged when packets go to this world, so there is none to end until then.
	fresh  bool
	looked time.Time
	cost   time.Duration // of the last look
}

// resume notes whose the connections are that the worlds in force have allowed. Without readable routes it knows none of further sources:
// those end when an endpoint lists them, or lists them no more.
func (k *kept) resume(worlds []*inForce, sets ipsets.Kernel) error {
	e, err := readWorlds(worlds, sets)
	if err != nil {
		return fmt.Errorf("read whose connections are kept: %w", err)
	}
	k.listed, k.followed = e.Listed, e.Listed
	if routes, err := k.read(k.listed); err == nil {
		k.paths = routes
	}
	k.former = &owners{e.Locals, k.listed, k.paths}
	return nil
}

// inherit ends the connections of addresses that have other endpoints now than in the worlds in force: the owner has changed while no agent
// ran. Call it before packets go to this world: until then a new endpoint has no connections.
func (k *kept) inherit(now map[netip.Addr]string) error {
	if k.former == nil || maps.Equal(k.former.addrs, now) {
		return nil
	}
	if err := endConnections(k.flows, func(a netip.Addr) bool { return k.former.addrs[a] != now[a] }); err != nil {
		return fmt.Errorf("end connections of addresses that have other endpoints now: %w", err)
	}
	return nil
}

// succeed does that once more, also for further sources, when packets go to this world. Until then a former owner that still runs could
// begin a connection again, since the former world allowed that. The present owner may lose a connection that it has begun since.
func (k *kept) succeed(owners func() map[netip.Addr]string) error {
	k.fresh = false
	was := k.former
	if was == nil {
		return nil
	}
	if now := owners(); !maps.Equal(was.addrs, now) || !slices.Equal(was.listed, k.followed) || !slices.Equal(was.paths, k.paths) {
		if err := k.wait(); err != nil {
			return err
		}
		reassigned := was.reassigned(k.followed, k.paths)
		if err := endConnections(k.flows, func(a netip.Addr) bool { return was.addrs[a] != now[a] || reassigned(a) }); err != nil {
			return fmt.Errorf("end connections that former owners of addresses have begun until packets went to the new chains: %w", err)
		}
	}
	k.former = nil
	return nil
}

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
	if slices.Equal(now, k.followed) {
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

// followSources ends the connections of further sources that are another endpoint's when the plan is carried out, or no endpoint's, where
// existing ones are kept.
func (s *state) followSources(p plan.Plan) error {
	if s.static.kept == nil {
		return nil
	}
	return s.static.kept.follow(s.endpoints.sources.planned(p, s.endpoints.bound))
}

// rerouteSources does that for those that the node routes elsewhere.
func rerouteSources(s *state) error {
	if s.static.kept == nil {
		return nil
	}
	return s.static.kept.reroute()
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

// reroute ends the connections of further sources that the node does not route any more to the endpoint that lists them, and those that follow
// has left for want of routes.
func (k *kept) reroute() error {
	if !k.moved {
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

// endConnections removes all connections with an end for which of holds from the kernel's table.
func endConnections(flows Flows, of func(netip.Addr) bool) error {
	for _, family := range []conntrack.Family{conntrack.IPv4, conntrack.IPv6} {
		if _, err := flows.DeleteAddresses(family, of); err != nil {
			return err
		}
	}
	return nil
}
