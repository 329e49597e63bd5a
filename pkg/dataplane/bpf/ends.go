package bpf

import (
	"net/netip"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/shares"
)

// flowTable limits the connections of endpoints in the kernel's own table, where kube-proxy and others have connections tracked. Programs do
// not need that table, and write nothing into it.
type flowTable struct {
	limiter *shares.Limiter // nil: no connections are limited
	ends    shares.Publisher
	routes  shares.Routes
}

// Limiter returns the limiter of the connections of d's endpoints in a table; the caller runs it. routes reads the node's routes to further
// sources. Call Limiter at most once, before the first Apply. It limits nothing before policy is in force. The status of endpoints has its
// findings, Stats the use of the table, and Counters what it has removed.
func Limiter(d *BPF, table shares.Table, routes shares.Routes) *shares.Limiter {
	t := &d.flowTable
	t.routes = routes
	t.limiter = shares.New(table, t.ends.Ends, func() { d.kernel.host.Nudge(0) }, d.kernel.log)
	return t.limiter
}

// publish publishes the endpoints and the node's addresses for the limiter, if there is one and either has changed. It does nothing while
// plans have not named all endpoints that an earlier agent has left: their addresses are not known.
func (t *flowTable) publish(bound map[model.EndpointID]*endpoint, node []netip.Addr) {
	if t.limiter == nil {
		return
	}
	same := t.ends.IsNode(node) && t.ends.Len() == len(bound)
	for id, ep := range bound {
		if ep.policy == nil {
			return
		}
		same = same && t.ends.Has(endOf(id, ep))
	}
	if same {
		return
	}
	list := make([]shares.Endpoint, 0, len(bound))
	for id, ep := range bound {
		list = append(list, endOf(id, ep))
	}
	t.ends.Publish(shares.Known{Endpoints: list, Node: node, Routes: t.routes})
}

// endOf is an endpoint, with a policy, as the limiter knows it.
func endOf(id model.EndpointID, ep *endpoint) shares.Endpoint {
	return shares.Endpoint{ID: id, Iface: ep.policy.Iface, Addrs: ep.policy.Addrs, Sources: ep.policy.Sources, Open: ep.ifindex != 0}
}
