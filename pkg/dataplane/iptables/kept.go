package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/further"
	"github.com/margay-project/margay/pkg/ipsets"
)

// Routes returns the node's routes out of interfaces, and those inside of them that lead elsewhere.
type Routes func(interfaces map[string]bool) ([]further.Route, error)

// kept ends live connections where existing ones are kept, if an address or a further source of theirs is another endpoint's by now, or
// no endpoint's: policy has allowed them to the former owner (D-19). Marks of connections do not show the owner.
type kept struct {
	flows  Flows
	routes Routes
	// former are the addresses and interfaces of the endpoints that the worlds in force know, until packets go to this one. nil: there are
	// none, or live flows are judged again.
	former map[netip.Addr]string
	// listed are the further sources of endpoints, and paths the routes to these, both as of the connections that there are.
	listed []further.Listed
	paths  []further.Route
	moved  bool // routes are not paths any more
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
	k.former, k.listed = e.Locals, e.Listed
	if routes, err := k.read(k.listed); err == nil {
		k.paths = routes
	}
	return nil
}

// inherit ends the connections of addresses that have other endpoints now than in the worlds in force: the owner has changed while no agent
// ran. Call it before packets go to this world: until then a new endpoint has no connections.
func (k *kept) inherit(now map[netip.Addr]string) error {
	if k.former == nil {
		return nil
	}
	other := func(a netip.Addr) bool { return k.former[a] != now[a] }
	for _, owners := range []map[netip.Addr]string{k.former, now} {
		for a := range owners {
			if other(a) {
				if err := endConnections(k.flows, other); err != nil {
					return fmt.Errorf("end connections of addresses that have other endpoints now: %w", err)
				}
				return nil
			}
		}
	}
	return nil
}

// read returns the routes to endpoints that list further sources.
func (k *kept) read(lists ...[]further.Listed) ([]further.Route, error) {
	listed := slices.Concat(lists...)
	if len(listed) == 0 || k.routes == nil {
		return nil, nil
	}
	routes, err := k.routes(further.Interfaces(listed))
	if err != nil {
		return nil, fmt.Errorf("read routes, to end connections of former further sources: %w", err)
	}
	return routes, nil
}

// follow ends the connections of further sources that an endpoint lists no more, or that it lists from now on: those are of former owners, since
// its own packets were dropped. Call it after the former and before the latter take effect. Without the routes of now, those of before
// count: another plan does not have to wait for them.
func (k *kept) follow(now []further.Listed) error {
	if slices.Equal(now, k.listed) {
		return nil
	}
	routes, err := k.read(k.listed, now)
	if err != nil {
		routes = k.paths
	}
	if k.fresh {
		k.listed, k.paths = slices.Clone(now), routes
		return nil
	}
	return k.move(now, routes)
}

// followSources ends the connections of further sources that are no endpoint's any more, or another's, where existing ones are kept.
func followSources(s *state) error {
	if s.static.kept == nil {
		return nil
	}
	return s.static.kept.follow(s.endpoints.sources.all(s.endpoints.bound))
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

// look reports whether the routes to further sources have changed.
func (k *kept) look(now func() time.Time) (moved bool, err error) {
	began := now()
	if len(k.listed) == 0 || k.moved || began.Sub(k.looked) < lookPart*k.cost {
		return k.moved, nil
	}
	routes, err := k.read(k.listed)
	if err != nil {
		return false, err
	}
	k.looked = now()
	k.cost = k.looked.Sub(began)
	k.moved = !slices.Equal(routes, k.paths)
	return k.moved, nil
}

// reroute ends the connections of further sources that the node does not route any more to the endpoint that lists them.
func (k *kept) reroute() error {
	if !k.moved {
		return nil
	}
	routes, err := k.read(k.listed)
	if err != nil {
		return err
	}
	if k.fresh {
		k.paths = routes
	} else if err := k.move(k.listed, routes); err != nil {
		return err
	}
	k.moved = false
	return nil
}

// move makes the given lists and routes those of the connections that there are: it ends all others. A connection whose further source had no
// owner by the routes of before stays: the endpoint that owns it now may have begun the connection since the routes changed.
func (k *kept) move(listed []further.Listed, routes []further.Route) error {
	was, rerouted, now := further.New(k.listed, k.paths), further.New(k.listed, routes), further.New(listed, routes)
	err := endConnections(k.flows, func(a netip.Addr) bool {
		before, between := was.Interface(a), rerouted.Interface(a)
		return before != "" && before != between || between != now.Interface(a)
	})
	if err != nil {
		return fmt.Errorf("end connections of former further sources: %w", err)
	}
	k.listed, k.paths = slices.Clone(listed), routes
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
