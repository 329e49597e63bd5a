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
	owners []model.EndpointID // by number; the first one stands for all former endpoints
	pods   map[netip.Addr]int
	node   map[netip.Addr]bool
	read   func(mark uint32) (judged, turned bool)
}

// former is the number of the owner of connections that policy of this node has judged and that have no end on this node any more:
// all endpoints that have left count as one.
const former = 0

// NewEnds returns the Ends of a node: the endpoints by address, the node's own addresses, and the reading of marks. read reports
// whether policy of this node has judged a connection, and whether its first packet on record was an answer.
func NewEnds(pods map[netip.Addr]model.EndpointID, node []netip.Addr, read func(mark uint32) (judged, turned bool)) *Ends {
	x := &Ends{owners: make([]model.EndpointID, 1, 1+len(pods)), pods: make(map[netip.Addr]int, len(pods)),
		node: make(map[netip.Addr]bool, len(node)), read: read}
	numbers := map[model.EndpointID]int{}
	for a, id := range pods {
		n, known := numbers[id]
		if !known {
			n = len(x.owners)
			numbers[id], x.owners = n, append(x.owners, id)
		}
		x.pods[a] = n
	}
	for _, a := range node {
		x.node[a] = true
	}
	return x
}

// owner returns the number of the endpoint that a connection is charged to: its opener, or the responder if the opener is neither an
// endpoint of this node nor the node. Not ok: it belongs to the node, or passes through it, and is never removed.
func (x *Ends) owner(e *conntrack.Entry) (n int, ok bool) {
	if e.Zone != 0 { // of another program
		return 0, false
	}
	judged, turned := x.read(e.Mark)
	opener, responder := e.Original.Src, e.Reply.Src
	if turned {
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
	return former, judged
}
