package explain

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// Limits on how much of a Service is looked at, since enforcement waits for that. Its author may have made 100,000 backends, and may give it an
// address that others ask about.
const (
	mostSlices   = 1 << 10 // EndpointSlices
	mostBackends = 1 << 10 // pairs of an address and a port; more than mostFlows
)

// backendList are backends of a Service by address and port.
type backendList struct {
	list []backend
	more bool // there are others
}

type backend struct {
	addr netip.Addr
	port model.NamedPort
}

// add adds those of some addresses that are to be kept, each with a port.
func (b *backendList) add(addrs []netip.Addr, port model.NamedPort, keep func(netip.Addr) bool) {
	for _, a := range addrs {
		if len(b.list) == mostBackends {
			b.more = true
			return
		}
		if keep(a) {
			b.list = append(b.list, backend{a, port})
		}
	}
}

// slices are the EndpointSlices of a Service, of very many only some.
func (l lookup) slices(key model.ServiceKey, of *backendList) []*model.EndpointSlice {
	list := l.graph.Slices(key)
	if len(list) > mostSlices {
		of.more, list = true, list[:mostSlices]
	}
	return list
}

// addBackends adds backends of a Service to what was found. A pod with addresses of both families is one backend.
func (l lookup) addBackends(f *found, key model.ServiceKey, backends *backendList) {
	type place struct {
		name     string
		port     uint16
		protocol uint8
	}
	owners, at := l.owners(backends.list), map[place]int{}
	for _, b := range backends.list {
		p := owners[b.addr]
		p.protocol, p.port = b.port.Protocol, b.port.Port
		k := place{p.name, p.port, p.protocol}
		i, known := at[k]
		if !known {
			at[k] = len(f.parties)
			f.parties = append(f.parties, p)
			continue
		}
		if o := &f.parties[i]; !slices.ContainsFunc(o.ends, func(e End) bool { return e.Addr == b.addr }) {
			o.ends = append(slices.Clip(o.ends), p.ends...)
		}
	}
	if backends.more {
		f.left = append(f.left, fmt.Sprintf("further backends of Service %s, of which it has very many", key))
	}
}

// owners returns the party that has each address, without a port. It looks at every endpoint once; address does so for each address.
func (l lookup) owners(list []backend) map[netip.Addr]party {
	var addrs []netip.Addr
	parties := make(map[netip.Addr]party, len(list))
	for _, b := range list {
		if _, known := parties[b.addr]; !known {
			parties[b.addr] = party{}
			addrs = append(addrs, b.addr)
		}
	}
	holders := l.graph.Holders(addrs)
	for _, addr := range addrs {
		end := End{Addr: addr}
		holder := holders[addr]
		if holder.Endpoint != (model.EndpointID{}) {
			ep, _ := l.graph.FindEndpoint(holder.Endpoint)
			end.Endpoint, end.Node = holder.Endpoint, ep.Node
			parties[addr] = party{name: end.Endpoint.String(), ends: []End{end}}
			continue
		}
		if holder.Node != "" {
			end.Node = l.graph.NodeByAddr(addr) // of several the first
		} else if slices.Contains(l.r.NodeAddrs, addr) {
			end.Node = l.r.Rules.Node
		}
		parties[addr] = party{name: end.String(), ends: []End{end}}
	}
	return parties
}
