// Package shares keeps the kernel's table of connections, which all pods of a node and the node itself share, from being filled by a
// pod (D-23). When the table is nearly full, it removes connections of the endpoints that have more than their share.
//
//   - shares.go: the owner of a connection; tally.go: how many connections of which rank each owner has; decide.go: how many of whose
//     are to go; all pure
//   - limiter.go: looks at the table and carries the decision out; report.go: log lines and the status of endpoints
package shares

import (
	"net/netip"

	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/model"
)

// Ends knows whose the ends of connections are. It does not change, so goroutines can share it.
type Ends struct {
	owners []model.EndpointID // by number; the first one stands for all whose connections cannot be assigned
	pods   map[netip.Addr]int
	node   map[netip.Addr]bool
	listed prefixes
	read   func(mark uint32) Mark
}

// Known is what Ends are made from.
type Known struct {
	Pods   map[netip.Addr]model.EndpointID // the endpoints of this node by address
	Node   []netip.Addr                    // the node's own addresses
	Listed []netip.Prefix                  // the further sources of endpoints
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
		node: make(map[netip.Addr]bool, len(k.Node)), listed: newPrefixes(k.Listed), read: k.Read}
	numbers := map[model.EndpointID]int{}
	for a, id := range k.Pods {
		n, known := numbers[id]
		if !known {
			n = len(x.owners)
			numbers[id], x.owners = n, append(x.owners, id)
		}
		x.pods[a] = n
	}
	for _, a := range k.Node {
		x.node[a] = true
	}
	return x
}

// owner returns the number of the endpoint that a connection is charged to: its opener, or the responder if the opener is neither an
// endpoint of this node nor the node. Not ok: it belongs to the node, passes through it, or has a further source, which several
// endpoints may list. Then it is never removed.
func (x *Ends) owner(e *conntrack.Entry) (n int, ok bool) {
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
	}
	return unknown, m.Judged && !x.listed.contain(opener) && !x.listed.contain(responder)
}

// prefixes finds an address among many prefixes.
type prefixes struct {
	of      map[netip.Prefix]bool
	lengths map[int]bool
}

func newPrefixes(list []netip.Prefix) prefixes {
	p := prefixes{of: make(map[netip.Prefix]bool, len(list)), lengths: map[int]bool{}}
	for _, prefix := range list {
		p.of[prefix.Masked()], p.lengths[prefix.Bits()] = true, true
	}
	return p
}

func (p prefixes) contain(a netip.Addr) bool {
	for bits := range p.lengths {
		if prefix, err := a.Prefix(bits); err == nil && p.of[prefix] {
			return true
		}
	}
	return false
}
