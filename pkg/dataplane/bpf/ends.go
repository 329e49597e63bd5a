package bpf

import (
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/shares"
)

// mostLeft bounds the addresses of endpoints that have left which are remembered: the latest ones.
const mostLeft = 8192

// flowTable limits the connections of endpoints in the kernel's own table, where kube-proxy and others have connections tracked. Programs do
// not need that table, and write nothing into it.
type flowTable struct {
	limiter *shares.Limiter // nil: no connections are limited
	ends    ends
}

// ends has the ends of connections for the limiter, which runs beside the loop. The loop publishes them.
type ends struct {
	published atomic.Pointer[shares.Ends]
	routes    shares.Routes
	known     map[model.EndpointID]shares.Endpoint // as published
	node      []netip.Addr                         // as published
	left      []netip.Addr                         // of endpoints that have left, the latest ones last
}

// Limiter returns the limiter of the connections of d's endpoints in a table; the caller runs it. routes reads the node's routes to further
// sources. Call Limiter at most once, before the first Apply. It limits nothing before policy is in force. The status of endpoints has its
// findings, Stats the use of the table, and Counters what it has removed.
func Limiter(d *BPF, table shares.Table, routes shares.Routes) *shares.Limiter {
	t := &d.flowTable
	t.ends.routes = routes
	t.limiter = shares.New(table, t.ends.published.Load, func() { d.kernel.host.Nudge(0) }, d.kernel.log)
	return t.limiter
}

// publish publishes the endpoints and the node's addresses, if either has changed.
func (t *flowTable) publish(bound map[model.EndpointID]*endpoint, node []netip.Addr) {
	if t.limiter != nil {
		t.ends.publish(bound, node)
	}
}

// publish does nothing while plans have not named all endpoints that an earlier agent has left: their addresses are not known.
func (x *ends) publish(bound map[model.EndpointID]*endpoint, node []netip.Addr) {
	same := x.published.Load() != nil && len(bound) == len(x.known) && slices.Equal(node, x.node)
	for id, ep := range bound {
		if ep.policy == nil {
			return
		}
		same = same && isKnown(x.known[id], ep)
	}
	if same {
		return
	}
	known, list := make(map[model.EndpointID]shares.Endpoint, len(bound)), make([]shares.Endpoint, 0, len(bound))
	has := map[netip.Addr]bool{}
	for id, ep := range bound {
		e := shares.Endpoint{ID: id, Iface: ep.policy.Iface, Addrs: ep.policy.Addrs, Sources: ep.policy.Sources, Open: ep.ifindex != 0}
		known[id] = e
		list = append(list, e)
		for _, a := range e.Addrs {
			has[a] = true
		}
	}
	x.remember(has, node)
	x.known, x.node = known, slices.Clone(node)
	x.published.Store(shares.NewEnds(shares.Known{Endpoints: list, Node: x.node, Routes: x.routes, Left: x.left}))
}

// isKnown reports whether an endpoint is as it was published.
func isKnown(e shares.Endpoint, ep *endpoint) bool {
	return e.Iface == ep.policy.Iface && e.Open == (ep.ifindex != 0) && slices.Equal(e.Addrs, ep.policy.Addrs) && slices.Equal(e.Sources, ep.policy.Sources)
}

// remember adds the addresses that endpoints had, and forgets those that some endpoint or the node has by now.
func (x *ends) remember(has map[netip.Addr]bool, node []netip.Addr) {
	for _, e := range x.known {
		for _, a := range e.Addrs {
			if !has[a] && !slices.Contains(x.left, a) {
				x.left = append(x.left, a)
			}
		}
	}
	x.left = slices.DeleteFunc(x.left, func(a netip.Addr) bool { return has[a] || slices.Contains(node, a) })
	x.left = slices.Clone(x.left[max(0, len(x.left)-mostLeft):])
}
