// Package shares keeps the kernel's table of connections, which all pods of a node and the node itself share, from being filled by a
// pod (D-23). When the table is nearly full, it removes connections of the endpoints that have more than their share.
//
//   - shares.go: the owner of a connection; tally.go: how many connections of which rank each owner has; decide.go: how many of whose
//     are to go; all pure
//   - limiter.go: looks at the table and carries the decision out; report.go: log lines and the status of endpoints
package shares

import (
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/further"
	"github.com/margay-project/margay/pkg/model"
)

// Ends knows whose the ends of connections are. It does not change, so goroutines can share it.
type Ends struct {
	owners []model.EndpointID // by number; the first one stands for all whose connections cannot be assigned
	pods   map[netip.Addr]int
	node   map[netip.Addr]bool
	behind map[string]int // the endpoints with further sources by interface
	listed []further.Listed
	routes func(interfaces map[string]bool) ([]further.Route, error)
	read   func(mark uint32) Mark
}

// Known is what Ends are made from.
type Known struct {
	Pods   map[netip.Addr]model.EndpointID // the endpoints of this node by address
	Node   []netip.Addr                    // the node's own addresses
	Listed []further.Listed                // the further sources of endpoints
	Behind map[string]model.EndpointID     // these endpoints by interface
	// Routes reads the node's routes out of interfaces, and those inside of them that lead elsewhere. nil: there are none.
	Routes func(interfaces map[string]bool) ([]further.Route, error)
	Read   func(mark uint32) Mark
}

// Mark is what the mark of a connection says.
type Mark struct {
	Judged bool // policy of this node has judged the connection
	Turned bool // its first packet on record was an answer
	Alone  bool // a packet that was judged by itself has begun it: its ends do not show which endpoint has sent the packet
}

// unknown is the number of the owner of connections whose endpoint cannot be known: those of endpoints that have left, and those that
// packets judged by themselves have begun. All of them count as those of one endpoint.
const unknown = 0

// NewEnds returns the Ends of a node.
func NewEnds(k Known) *Ends {
	x := &Ends{owners: make([]model.EndpointID, 1, 1+len(k.Pods)), pods: make(map[netip.Addr]int, len(k.Pods)),
		behind: map[string]int{}, node: make(map[netip.Addr]bool, len(k.Node)), listed: k.Listed, routes: k.Routes, read: k.Read}
	numbers := map[model.EndpointID]int{}
	number := func(id model.EndpointID) int {
		n, known := numbers[id]
		if !known {
			n = len(x.owners)
			numbers[id], x.owners = n, append(x.owners, id)
		}
		return n
	}
	for a, id := range k.Pods {
		x.pods[a] = number(id)
	}
	for iface, id := range k.Behind {
		x.behind[iface] = number(id)
	}
	for _, a := range k.Node {
		x.node[a] = true
	}
	return x
}

// routed reads which further sources the node routes to the endpoints that list them.
func (x *Ends) routed() (*further.Routed, error) {
	if len(x.listed) == 0 || x.routes == nil {
		return further.New(nil, nil), nil
	}
	routes, err := x.routes(further.Interfaces(x.listed))
	if err != nil {
		return nil, err
	}
	return further.New(x.listed, routes), nil
}

// owner returns the number of the endpoint that a connection is charged to: its opener, or the responder if the opener is neither an
// endpoint of this node nor the node. A further source is that of the endpoint which it is routed to; routed nil: that is not known. Not ok:
// the connection belongs to the node, passes through it, or has a further source whose endpoint is not known. Then it is never removed.
func (x *Ends) owner(e *conntrack.Entry, routed *further.Routed) (n int, ok bool) {
	if e.Zone != 0 { // of another program
		return 0, false
	}
	m := x.read(e.Mark)
	if m.Alone {
		return unknown, true
	}
	opener, responder := e.Original.Src, e.Reply.Src
	if m.Turned {
		opener, responder = responder, opener
	}
	for _, end := range [...]netip.Addr{opener, responder} {
		if n, ok := x.pods[end]; ok {
			return n, true
		}
		if x.node[end] || end.IsLoopback() {
			return 0, false
		}
		if !m.Judged { // it passes through the node, whatever its addresses
			continue
		}
		if n, ok := x.behind[routed.Interface(end)]; ok {
			return n, true
		}
	}
	return unknown, m.Judged && (routed != nil || !x.lists(opener) && !x.lists(responder))
}

// lists reports whether an endpoint lists an address as a further source.
func (x *Ends) lists(a netip.Addr) bool {
	return slices.ContainsFunc(x.listed, func(l further.Listed) bool { return l.Prefix.Contains(a) })
}
