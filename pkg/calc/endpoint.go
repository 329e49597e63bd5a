package calc

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/labelindex"
	"github.com/margay-project/margay/pkg/model"
)

// endpoint is one endpoint of the cluster: little, because there may be very many.
type endpoint struct {
	item                   // in the cluster-wide index
	namespace, name string // of the workload
	node            nodeNumber
	created         uint32 // Unix seconds
}

// id is the key of the endpoint in its table, which has workloads only.
func (ep *endpoint) id() model.EndpointID { return model.WorkloadID(ep.namespace, ep.name) }

// iface is the endpoint's interface, empty unless it is on this node.
func (ep *endpoint) iface() string { return ep.Value.iface() }

// sources are the endpoint's further sources, none unless it is on this node.
func (ep *endpoint) sources() []netip.Prefix {
	if ep.Value.extra == nil {
		return nil
	}
	return ep.Value.extra.source
}

func (ep *endpoint) isTerminating() bool { return ep.Value.extra != nil && ep.Value.extra.terminating }
func (ep *endpoint) isUnconfirmed() bool { return ep.Value.extra != nil && ep.Value.extra.unconfirmed }
func (ep *endpoint) isParticular() bool  { return ep.Value.extra != nil && ep.Value.extra.particular }

// claimed are the addresses that the endpoint claims. That may be more than it owns.
func (ep *endpoint) claimed() iter.Seq[netip.Addr] {
	if ep.isParticular() {
		return slices.Values(ep.Value.extra.claims)
	}
	return ep.Value.addrs()
}

func (t *endpointTable) newEndpoint(id model.EndpointID, now *model.Endpoint) *endpoint {
	ep := &endpoint{namespace: id.Namespace, name: id.Name, node: t.nodeNames.hold(now.Node), created: now.Created}
	own := t.owners.own(id, t.claimed(now))
	ep.Value.setAddrs(own)
	if now.Terminating || now.Unconfirmed || len(own) != len(now.Addrs) {
		x := ep.Value.more()
		x.particular, x.terminating, x.unconfirmed, x.claims = true, now.Terminating, now.Unconfirmed, now.Addrs
	}
	if t.isLocal(now.Node) {
		x := ep.Value.more()
		x.iface, x.source = now.Iface, now.Sources
	}
	t.sets.selected.labels.Join(&ep.item, identityOf(now))
	t.sets.enter(&ep.item)
	return ep
}

// value is the endpoint as it was given, but that Iface and Sources are only there on its own node.
func (t *endpointTable) value(ep *endpoint) *model.Endpoint {
	id := ep.Group().Identity()
	return &model.Endpoint{
		Node:        t.nodeNames.names[ep.node],
		Iface:       ep.iface(),
		Addrs:       slices.Collect(ep.claimed()),
		Labels:      id.Labels,
		Profiles:    id.Parents,
		Ports:       id.Ports,
		Created:     ep.created,
		Terminating: ep.isTerminating(),
		Unconfirmed: ep.isUnconfirmed(),
		Sources:     ep.sources(),
	}
}

// same reports whether the stored endpoint has the value already.
func (t *endpointTable) same(was *endpoint, now *model.Endpoint) bool {
	if was.isTerminating() != now.Terminating || was.isUnconfirmed() != now.Unconfirmed || was.created != now.Created {
		return false
	}
	if was.isParticular() && !slices.Equal(was.Value.extra.claims, now.Addrs) || !was.isParticular() && !was.Value.hasAddrs(now.Addrs) {
		return false
	}
	here := was.iface() == now.Iface && slices.Equal(was.sources(), now.Sources)
	return t.nodeNames.names[was.node] == now.Node && (here || !t.isLocal(now.Node)) &&
		was.Group().Has(identityOf(now))
}

func identityOf(ep *model.Endpoint) labelindex.Identity {
	return labelindex.Identity{Labels: ep.Labels, Parents: ep.Profiles, Ports: ep.Ports}
}
