package iptables

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/further"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/shares"
)

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
// no endpoint's: policy has allowed them to the former owner (D-19). Marks of connections do not show the owner. nil: existing connections
// are judged again, so none has to be ended.
type kept struct {
	flows  Flows
	routes shares.Routes
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
	fresh   bool
	leaving []netip.Addr // addresses whose connections have to be ended; see left
	looked  time.Time
	cost    time.Duration // of the last look
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

// begin notes whether the connections that there are go on, or will all be judged when packets go to this world.
func (k *kept) begin(resumed bool) {
	if k != nil {
		k.fresh = !resumed
	}
}

// adopt continues the owners of a kept of this agent, whose world is in force or was begun beside it: they are those of the connections that
// there are. resume has read routes that may have changed since, as the last look may have noticed, and perhaps the world of which succeed failed.
func (k *kept) adopt(of *kept) {
	switch {
	case of.former != nil:
		k.former, k.moved = of.former, true
	case !of.fresh:
		k.former, k.moved = &owners{k.former.addrs, of.listed, of.paths}, of.moved
	}
	k.listed, k.followed, k.paths = k.former.listed, k.former.listed, k.former.paths
}

// inherit ends the connections of addresses that have other endpoints now than in the worlds in force: the owner has changed while no agent
// ran. Call it before packets go to this world: until then a new endpoint has no connections.
func (k *kept) inherit(owners func() map[netip.Addr]string) error {
	if k == nil || k.former == nil {
		return nil
	}
	now := owners()
	if maps.Equal(k.former.addrs, now) {
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
	if k == nil {
		return nil
	}
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

// left ends the connections of addresses that endpoints have left: the next endpoint with such an address must not inherit them. It reads the
// table once for each IP version, however many addresses there are.
func (k *kept) left(list []netip.Addr) error {
	if k == nil {
		return nil
	}
	k.leaving = append(k.leaving, list...)
	for _, family := range []conntrack.Family{conntrack.IPv4, conntrack.IPv6} {
		leaving := map[netip.Addr]bool{}
		for _, a := range k.leaving {
			if a.Is4() == (family == conntrack.IPv4) {
				leaving[a] = true
			}
		}
		if len(leaving) == 0 {
			continue
		}
		if _, err := k.flows.DeleteAddresses(family, func(a netip.Addr) bool { return leaving[a] }); err != nil {
			return fmt.Errorf("end connections of %d addresses that endpoints have left: %w", len(leaving), err)
		}
		k.leaving = slices.DeleteFunc(k.leaving, func(a netip.Addr) bool { return leaving[a] })
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
