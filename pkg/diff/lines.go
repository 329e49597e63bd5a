package diff

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/verify"
)

// line is a Change of pods that are judged alike, over one family.
type line struct {
	Change
	cell  verify.Cell
	first model.EndpointID
	peers []netip.Addr // of pods and nodes
	// direction is that of the Change. node is that of the first pod, and spread reports whether others are on other nodes.
	direction model.Direction
	own       netip.Addr // of the first pod
	node      string
	spread    bool
}

// note adds the changes of one address of a pod.
func (c *comparing) note(id model.EndpointID, d model.Direction, own netip.Addr, o *outcome) error {
	type group struct {
		cell  verify.Cell
		ports string
	}
	var order []group
	of := map[group]*line{}
	packets := map[group]model.Packet{}
	for i := range o.rows {
		r := &o.rows[i]
		remotes, mixed := c.others(id, d, own, r.owned)
		for _, a := range mixed {
			c.notCompared(id, d, fmt.Sprintf("packets of %s: policy does not judge them in one of the states, since they are the pod's own or its node's", a))
		}
		if len(r.owned) == 0 {
			remotes = r.Some
		}
		if len(remotes) == 0 {
			continue // no policy judges what these send
		}
		for cell, shifts := range byCell(r.List) {
			ports := portTexts(shifts, verify.Family(own))
			at := group{cell, strings.Join(ports, ", ")}
			l := of[at]
			if l == nil {
				l = &line{Change: Change{Direction: d.String(), Family: int(verify.Family(own)), Ports: ports}, cell: cell, first: id, direction: d, own: own}
				of[at], order = l, append(order, at)
				packets[at] = between(shifts[0].Packet, d, remotes[0])
			}
			if len(r.owned) > 0 {
				l.peers = append(l.peers, r.owned...)
			} else {
				l.Peers = append(l.Peers, Peer{Some: r.Some[:min(len(r.Some), mostExamples)], Inner: r.cidr, Other: true})
			}
		}
	}
	slices.SortFunc(order, func(a, b group) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for _, at := range order {
		if err := c.add(of[at], id, d, own, packets[at]); err != nil {
			return err
		}
	}
	return nil
}

// mostExamples bounds the examples of addresses that have no name.
const mostExamples = 2

// byCell sorts the changes of one kind of addresses by the verdicts before and after.
func byCell(list []verify.Shift) map[verify.Cell][]verify.Shift {
	of := map[verify.Cell][]verify.Shift{}
	for _, s := range list {
		of[s.Cell] = append(of[s.Cell], s)
	}
	return of
}

// between is a packet of a Shift with another remote address of the same kind.
func between(p model.Packet, d model.Direction, remote netip.Addr) model.Packet {
	if d == model.Egress {
		p.Dst = remote
	} else {
		p.Src = remote
	}
	return p
}

// others are those of the addresses whose packets policy judges: a pod may always talk to itself, and its node to it. mixed are those of
// which that holds in one state only.
func (c *comparing) others(id model.EndpointID, d model.Direction, own netip.Addr, addrs []netip.Addr) (list, mixed []netip.Addr) {
	for _, a := range addrs {
		exempt, judged := a == own, false
		for i, s := range []*state{c.before, c.after} {
			if slices.Contains(s.addrs(id), own) { // otherwise nothing is there that an exemption could be for
				is := s.exempts(id, d, c.owners[a][i])
				exempt, judged = exempt || is, judged || !is
			}
		}
		switch {
		case a == own:
		case exempt && judged:
			mixed = append(mixed, a)
		case !exempt:
			list = append(list, a)
		}
	}
	return list, mixed
}

// exempts reports whether packets of an owner of an address are allowed whatever policy says.
func (s *state) exempts(id model.EndpointID, d model.Direction, o owner) bool {
	ep, _ := s.graph.FindEndpoint(id)
	return o.pod == id || d == model.Ingress && o.node != "" && ep.Node == o.node
}

// add adds a line, or its pod to an equal one.
func (c *comparing) add(l *line, id model.EndpointID, d model.Direction, own netip.Addr, p model.Packet) error {
	c.changed++
	slices.SortFunc(l.peers, netip.Addr.Compare)
	key := fmt.Sprint(l.Direction, l.Family, l.cell, l.Ports, l.peers, l.Peers)
	if i, known := c.at[key]; known {
		c.lines[i].Pods = append(c.lines[i].Pods, id.String())
		c.lines[i].spread = c.lines[i].spread || c.lines[i].node != c.nodeOf(id)
		return nil
	}
	l.node = c.nodeOf(id)
	of := explain.End{Addr: own, Endpoint: id}
	var err error
	if l.Was, err = c.before.decision(of, d, p, l.cell.Was, l.cell.WasBy); err != nil {
		return err
	}
	if l.Becomes, err = c.after.decision(of, d, p, l.cell.Becomes, l.cell.BecomesBy); err != nil {
		return err
	}
	l.Pods = []string{id.String()}
	c.at[key] = len(c.lines)
	c.lines = append(c.lines, l)
	return nil
}

// nodeOf is the node of a pod.
func (c *comparing) nodeOf(id model.EndpointID) string {
	for _, s := range []*state{c.after, c.before} {
		if ep, ok := s.graph.FindEndpoint(id); ok {
			return ep.Node
		}
	}
	return ""
}

// judged are the peers of a line whose packets policy judges. Each of several pods is a peer of the others.
func (c *comparing) judged(l *line) []netip.Addr {
	judged, _ := c.others(l.first, l.direction, l.own, l.peers)
	return slices.DeleteFunc(slices.Clone(l.peers), func(a netip.Addr) bool {
		isNode := c.owners[a][0].node+c.owners[a][1].node != ""
		return !isIn(judged, a) && (len(l.Pods) == 1 || isNode && !l.spread)
	})
}

// isIn reports whether a sorted list has an address.
func isIn(list []netip.Addr, a netip.Addr) bool {
	_, is := slices.BinarySearchFunc(list, a, netip.Addr.Compare)
	return is
}

// finish names the peers, and joins lines that differ by the family only.
func (c *comparing) finish() {
	joined := map[string]int{}
	for _, l := range c.lines {
		l.Peers = append(l.Peers, c.namedPeers(c.judged(l))...) // those without a name first: there are more of them
		key := fmt.Sprint(l.Pods, l.Direction, l.Ports, l.cell)
		for _, p := range l.Peers {
			key += "," + p.Name
			if p.Inner.IsValid() {
				key += p.Inner.String()
			}
		}
		if i, known := joined[key]; known && c.report.Changes[i].Family != l.Family {
			c.report.Changes[i].join(l.Change)
			continue
		}
		joined[key] = len(c.report.Changes)
		if !c.hasOther(l.first, l.Family) {
			l.Family = 0
		}
		c.report.Changes = append(c.report.Changes, l.Change)
	}
	c.report.Same = len(c.report.Changes)+len(c.report.NotCompared) == 0
}

// hasOther reports whether a pod has an address of another family, too.
func (c *comparing) hasOther(id model.EndpointID, family int) bool {
	return slices.ContainsFunc(c.ownAddrs(id), func(a netip.Addr) bool { return int(verify.Family(a)) != family })
}

// join adds the peers of another family.
func (c *Change) join(other Change) {
	c.Family = 0
	for _, p := range other.Peers {
		i := slices.IndexFunc(c.Peers, func(of Peer) bool { return p.Name != "" && of.Name == p.Name })
		if i < 0 {
			c.Peers = append(c.Peers, p)
		} else {
			c.Peers[i].Some = append(c.Peers[i].Some, p.Some...)
		}
	}
}

// namedPeers are the pods and nodes that have the addresses, sorted by name.
func (c *comparing) namedPeers(addrs []netip.Addr) []Peer {
	var peers []Peer
	for _, a := range addrs {
		o := c.owners[a]
		name := o[1].String()
		switch {
		case o[1] == owner{}:
			name = o[0].String()
		case o[0] != owner{} && o[0] != o[1]:
			name = o[0].String() + ", then " + name
		}
		i := slices.IndexFunc(peers, func(p Peer) bool { return p.Name == name })
		if i < 0 {
			peers = append(peers, Peer{Name: name, Some: []netip.Addr{a}})
		} else {
			peers[i].Some = append(peers[i].Some, a)
		}
	}
	slices.SortFunc(peers, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	return peers
}
