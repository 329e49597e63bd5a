package shares

import (
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/margay-project/margay/pkg/model"
)

// mostLeft bounds the addresses of endpoints that have left which are remembered: the latest ones.
const mostLeft = 8192

// Publisher has the ends of connections for a Limiter, which runs beside the loop of a dataplane. The loop publishes them. Ends is safe for
// concurrent use, the other methods are the loop's. The zero Publisher has published nothing.
type Publisher struct {
	published atomic.Pointer[Ends]
	known     map[model.EndpointID]Endpoint // as published
	node      []netip.Addr                  // as published
	left      []netip.Addr                  // of endpoints that have left, the latest ones last
}

// Ends returns what was published last; nil: nothing was.
func (p *Publisher) Ends() *Ends { return p.published.Load() }

// IsNode reports whether something was published, with these addresses of the node.
func (p *Publisher) IsNode(addrs []netip.Addr) bool {
	return p.Ends() != nil && slices.Equal(addrs, p.node)
}

// Len returns how many endpoints were published.
func (p *Publisher) Len() int { return len(p.known) }

// Has reports whether an endpoint was published as it is now. Of one that was published in several parts only the last one counts.
func (p *Publisher) Has(e Endpoint) bool {
	known, ok := p.known[e.ID]
	return ok && known.Iface == e.Iface && known.Open == e.Open && slices.Equal(known.Addrs, e.Addrs) && slices.Equal(known.Sources, e.Sources)
}

// Publish publishes the Ends that k describes. The loop does that if they have changed. Publish fills in Left: addresses of endpoints that have
// left since they were published, but for those that some endpoint or the node has by now. The lists must not be changed any more,
// but for Node.
func (p *Publisher) Publish(k Known) {
	if k.Node = slices.Clone(k.Node); k.Read == nil { // else Left does not count
		p.remember(k)
	}
	p.node, p.known = k.Node, make(map[model.EndpointID]Endpoint, len(k.Endpoints))
	for _, e := range k.Endpoints {
		p.known[e.ID] = e
	}
	k.Left = p.left
	p.published.Store(NewEnds(k))
}

// remember adds the addresses that endpoints had, and forgets those that have an owner by now.
func (p *Publisher) remember(now Known) {
	has := map[netip.Addr]bool{}
	for _, e := range now.Endpoints {
		for _, a := range e.Addrs {
			has[a] = true
		}
	}
	for _, e := range p.known {
		for _, a := range e.Addrs {
			if !has[a] && !slices.Contains(p.left, a) {
				p.left = append(p.left, a)
			}
		}
	}
	p.left = slices.DeleteFunc(p.left, func(a netip.Addr) bool { return has[a] || slices.Contains(now.Node, a) })
	p.left = slices.Clone(p.left[max(0, len(p.left)-mostLeft):])
}
