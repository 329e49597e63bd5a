package iptables

import (
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/further"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/shares"
)

// owners are those of connections that policy has allowed, by their further sources.
type owners struct {
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

// kept ends live connections where existing ones are kept, if a further source of theirs is another endpoint's by now, or no endpoint's: policy
// has allowed them to the former owner (D-19). Marks of connections do not show the owner. nil: existing connections are judged again, so none
// has to be ended. Those of other addresses are ended by heirs.
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
	k.former = &owners{k.listed, k.paths}
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
		k.former, k.moved = &owners{of.listed, of.paths}, of.moved
	}
	k.listed, k.followed, k.paths = k.former.listed, k.former.listed, k.former.paths
}

// succeed ends the connections of further sources that have another owner now than in the worlds in force, when packets go to this world. Until
// then a former owner that still runs could begin a connection again, since the former world allowed that.
func (k *kept) succeed() error {
	if k == nil {
		return nil
	}
	k.fresh = false
	was := k.former
	if was == nil {
		return nil
	}
	if !slices.Equal(was.listed, k.followed) || !slices.Equal(was.paths, k.paths) {
		if err := k.wait(); err != nil {
			return err
		}
		if err := endConnections(k.flows, was.reassigned(k.followed, k.paths)); err != nil {
			return fmt.Errorf("end connections that former owners of further sources have begun until packets went to the new chains: %w", err)
		}
	}
	k.former = nil
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
