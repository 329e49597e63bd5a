package agent

import (
	"context"
	"net/netip"
	"time"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/flows"
	"github.com/margay-project/margay/pkg/model"
)

const (
	// namesWithin is how long records wait for the loop. A loop that is busy for longer leaves them with names that were
	// asked for before. It is more than a machine usually keeps the loop from a CPU, and the buffer of events has room for
	// those that come meanwhile.
	namesWithin = time.Second
	// namesKept bounds the names kept of interfaces, and those of addresses. Beyond it all are dropped and looked up
	// again.
	namesKept = 4096
	// searchShare is the part of its time that the loop spends at most on looking addresses up: one in so many.
	searchShare = 20
)

// FlowNames gives the ends of flows their names. It caches the names, and asks the loop whether a name still
// holds: looking an address up takes time in proportion to the cluster, checking one does not.
//
// Not safe for concurrent use.
type FlowNames struct {
	Loop *Loop

	interfaces map[uint32]namedInterface // the last one of each number, those that are gone included
	peers      map[netip.Addr]namedPeer
	rest       time.Time // no search before
}

type namedInterface struct{ endpoint, name string }

type namedPeer struct {
	holder calc.Holder
	peer   *flows.Peer
}

// Name fills in Endpoint, Interface and Peer. An end stays without a name if it has none, or none that can be found in time.
func (n *FlowNames) Name(ctx context.Context, batch []flows.Unnamed) {
	ctx, cancel := context.WithTimeout(ctx, namesWithin)
	defer cancel()
	n.bound()
	// The error is that of the context. Records then get the names that are already known.
	_ = n.Loop.Query(ctx, func(v View) {
		for i := range v.states {
			if s := &v.states[i]; s.Ifindex != 0 {
				n.interfaces[s.Ifindex] = namedInterface{s.ID.String(), s.Iface}
			}
		}
		n.refresh(v.Graph, batch)
	})
	for _, u := range batch {
		at := n.interfaces[u.Ifindex]
		u.Record.Endpoint, u.Record.Interface, u.Record.Peer = at.endpoint, at.name, n.peers[u.Record.Remote()].peer
	}
}

// bound starts over when too much is kept.
func (n *FlowNames) bound() {
	if n.interfaces == nil || len(n.interfaces) > namesKept {
		n.interfaces = map[uint32]namedInterface{}
	}
	if n.peers == nil || len(n.peers) > namesKept {
		n.peers = map[netip.Addr]namedPeer{}
	}
}

// refresh brings the names of the batch's addresses up to date.
func (n *FlowNames) refresh(g *calc.Graph, batch []flows.Unnamed) {
	checked := map[netip.Addr]bool{}
	var wanted []netip.Addr
	for _, u := range batch {
		a := u.Record.Remote()
		if checked[a] {
			continue
		}
		checked[a] = true
		if known, ok := n.peers[a]; ok {
			if g.Holds(known.holder, a) {
				continue
			}
			delete(n.peers, a)
		}
		if g.MayBeHeld(a) {
			wanted = append(wanted, a)
		}
	}
	started := time.Now()
	if len(wanted) == 0 || started.Before(n.rest) {
		return
	}
	for a, h := range g.Holders(wanted) {
		n.peers[a] = namedPeer{h, peerOf(h)}
	}
	ended := time.Now()
	n.rest = ended.Add(searchShare * ended.Sub(started))
}

func peerOf(h calc.Holder) *flows.Peer {
	switch {
	case h.Node != "":
		return &flows.Peer{Kind: flows.PeerNode, Name: h.Node}
	case h.Service != model.ServiceKey{}:
		return &flows.Peer{Kind: flows.PeerService, Name: h.Service.String()}
	}
	return &flows.Peer{Kind: flows.PeerPod, Name: h.Endpoint.String()}
}
