package iptables

import (
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/shares"
)

// ends has the ends of connections for the limiter, which runs beside the loop. The loop publishes them.
type ends struct {
	published atomic.Pointer[shares.Ends]
	of        *endpoints // those that were published
	changes   [2]uint64  // of the endpoints and of their further sources, as of then
	node      []netip.Addr
}

// publish publishes the endpoints of a state in force and the node's addresses, if either has changed. An address that several
// endpoints claim is that of the endpoint that is open.
func (x *ends) publish(s *state, node []netip.Addr, routes Routes) {
	e := s.endpoints
	changes := [2]uint64{e.changes, e.sources.changes}
	if x.of == e && x.changes == changes && slices.Equal(x.node, node) {
		return
	}
	x.of, x.changes, x.node = e, changes, slices.Clone(node)
	pods := make(map[netip.Addr]model.EndpointID, len(e.holder))
	for _, open := range []bool{false, true} {
		for k, id := range e.holder {
			if e.open[k] == open {
				pods[k.Prefix.Addr()] = id
			}
		}
	}
	behind := map[string]model.EndpointID{}
	for id, l := range e.sources.of {
		behind[l.iface] = id
	}
	marks := s.static.base.Marks
	x.published.Store(shares.NewEnds(shares.Known{Pods: pods, Node: x.node, Listed: e.sources.all(e.bound), Behind: behind, Routes: routes, Read: func(mark uint32) shares.Mark {
		g, turned, _ := marks.GenerationOf(mark)
		return shares.Mark{Judged: g != neverJudged, Turned: turned, Alone: marks.IsLone(mark)}
	}}))
}

// Limiter returns the limiter of the endpoints' connections in a table; the caller runs it. Call it at most once, before the first
// Apply. It limits nothing before policy is in force, and the status of endpoints has its findings.
func (d *IPTables) Limiter(table shares.Table) *shares.Limiter {
	d.flows.limiter = shares.New(table, d.flows.ends.published.Load, func() { d.kernel.Node.Nudge(0) }, d.log)
	return d.flows.limiter
}

// findings returns which endpoints have lost connections lately, and why.
func (t *flowTable) findings() map[model.EndpointID]string {
	if t.limiter == nil {
		return nil
	}
	return t.limiter.Findings()
}

// removed returns the number of connections that the limiter has removed.
func (t *flowTable) removed() uint64 {
	if t.limiter == nil {
		return 0
	}
	return t.limiter.Removed()
}
