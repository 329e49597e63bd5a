// Package shares keeps the kernel's table of connections, which all pods of a node and the node itself share, from being filled by a
// pod (D-23). When the table is nearly full, it removes connections of the endpoints that have more than their share.
//
//   - shares.go: the owner of a connection; tally.go: how many connections of which rank each owner has; decide.go: how many of whose
//     are to go; all pure
//   - limiter.go: looks at the table and carries the decision out; report.go: log lines and the status of endpoints; use.go: how full
//     the table is
//   - publish.go: what the loop of a dataplane publishes for the limiter; fake.go: a table in memory
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
	left   map[netip.Addr]bool
	behind map[string]int // the endpoints with further sources by interface
	listed []further.Listed
	routes Routes
	read   func(mark uint32) Mark
}

// Known is what Ends are made from.
type Known struct {
	Endpoints []Endpoint
	Node      []netip.Addr // the node's own addresses
	Routes    Routes       // nil: there are none
	// Read reads the mark of a connection. nil: marks carry nothing about connections.
	Read func(mark uint32) Mark
	// Left has addresses of endpoints that have left. It counts only without marks, which would show that policy has judged their
	// connections.
	Left []netip.Addr
}

// Endpoint is one of this node.
type Endpoint struct {
	ID      model.EndpointID
	Iface   string
	Addrs   []netip.Addr
	Sources []netip.Prefix // further ones, which it lists
	Open    bool           // packets pass. Of endpoints that claim the same address, the open one has it
}

// Routes reads the node's routes out of interfaces, and those inside of them that lead elsewhere.
type Routes func(interfaces map[string]bool) ([]further.Route, error)

// Mark has what is known of a connection beside its ends.
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
	x := &Ends{owners: make([]model.EndpointID, 1, 1+len(k.Endpoints)), pods: make(map[netip.Addr]int, 2*len(k.Endpoints)),
		behind: map[string]int{}, node: setOf(k.Node), routes: k.Routes, read: k.Read}
	if k.Read == nil {
		x.left = setOf(k.Left)
	}
	numbers := make(map[model.EndpointID]int, len(k.Endpoints))
	for _, open := range []bool{false, true} {
		for _, e := range k.Endpoints {
			if e.Open == open {
				x.add(e, numbers)
			}
		}
	}
	return x
}

// add adds an endpoint, which replaces others that claim the same addresses. numbers has those of the endpoints that were added before.
func (x *Ends) add(e Endpoint, numbers map[model.EndpointID]int) {
	n, known := numbers[e.ID]
	if !known {
		n = len(x.owners)
		numbers[e.ID], x.owners = n, append(x.owners, e.ID)
	}
	for _, a := range e.Addrs {
		x.pods[a] = n
	}
	for _, p := range e.Sources {
		x.behind[e.Iface] = n
		x.listed = append(x.listed, further.Listed{Prefix: p, Interface: e.Iface})
	}
}

func setOf(list []netip.Addr) map[netip.Addr]bool {
	set := make(map[netip.Addr]bool, len(list))
	for _, a := range list {
		set[a] = true
	}
	return set
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
	m := x.mark(e)
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
		if x.read != nil && !m.Judged { // it passes through the node, whatever its addresses
			continue
		}
		if n, ok := x.behind[routed.Interface(end)]; ok {
			return n, true
		}
	}
	return unknown, m.Judged && (routed != nil || !x.lists(opener) && !x.lists(responder))
}

// mark returns what is known of a connection beside its ends. Without marks, connections of endpoints that have left count as judged. An
// endpoint of another node may have such an address by now: what this node forwards there in its own name, by a node port, is left out.
func (x *Ends) mark(e *conntrack.Entry) Mark {
	if x.read != nil {
		return x.read(e.Mark)
	}
	return Mark{Judged: x.left[e.Original.Src] || x.left[e.Reply.Src] && !x.node[e.Reply.Dst]}
}

// lists reports whether an endpoint lists an address as a further source.
func (x *Ends) lists(a netip.Addr) bool {
	return slices.ContainsFunc(x.listed, func(l further.Listed) bool { return l.Prefix.Contains(a) })
}
