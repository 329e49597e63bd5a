package iptables

import (
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/margay-project/margay/pkg/shares"
)

// flowTable limits the connections of endpoints in the kernel's table.
type flowTable struct {
	limiter *shares.Limiter // nil: no connections are limited
	ends    ends
}

// ends has the ends of connections for the limiter, which runs beside the loop. The loop publishes them.
type ends struct {
	published atomic.Pointer[shares.Ends]
	of        *endpoints // those that were published
	changes   [2]uint64  // of the endpoints and of their further sources, as of then
	node      []netip.Addr
}

// publish publishes the endpoints of a state in force and the node's addresses, if either has changed. An address that several
// endpoints claim is that of the endpoint that is open.
func (x *ends) publish(s *state, node []netip.Addr, routes shares.Routes) {
	e := s.endpoints
	changes := [2]uint64{e.changes, e.sources.changes}
	if x.of == e && x.changes == changes && slices.Equal(x.node, node) {
		return
	}
	x.of, x.changes, x.node = e, changes, slices.Clone(node)
	list := make([]shares.Endpoint, 0, len(e.holder)+len(e.sources.of))
	for k, id := range e.holder {
		list = append(list, shares.Endpoint{ID: id, Iface: k.Interface, Addrs: []netip.Addr{k.Prefix.Addr()}, Open: e.open[k]})
	}
	for id, l := range e.sources.of {
		if e.bound[id] != nil { // else it leaves
			list = append(list, shares.Endpoint{ID: id, Iface: l.iface, Sources: l.listed})
		}
	}
	marks := s.static.base.Marks
	x.published.Store(shares.NewEnds(shares.Known{Endpoints: list, Node: x.node, Routes: routes, Read: func(mark uint32) shares.Mark {
		g, turned, _ := marks.GenerationOf(mark)
		return shares.Mark{Judged: g != neverJudged, Turned: turned, Alone: marks.IsLone(mark)}
	}}))
}

// Limiter returns the limiter of the endpoints' connections in a table; the caller runs it. Call it at most once, before the first
// Apply. It limits nothing before policy is in force. The status of endpoints has its
// findings, and Stats the use of the table.
func (d *IPTables) Limiter(table shares.Table) *shares.Limiter {
	d.flows.limiter = shares.New(table, d.flows.ends.published.Load, func() { d.kernel.Node.Nudge(0) }, d.log)
	return d.flows.limiter
}
