package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/model"
)

// Question is a request whose ends have been looked up.
type Question struct {
	src, dst string // what the ends are called: "shop/web", "Service shop/db"
	flows    []flow
	note     string // about the flows as a whole
	partial  bool   // it has not all that was asked about; note says what else there is
}

// flow is one pair of addresses, both of one family.
type flow struct {
	src, dst     End
	protocol     uint8 // 0: not said, for any port only
	port         uint16
	sourcePort   uint16
	anyPort      bool // every port
	icmpT, icmpC uint8
	rules        NodeRules
	byNode       netip.Addr // of the destination's node, if kube-proxy there may put it in the place of the source; else zero
}

// mostFlows is how many pairs of pods one request is answered for, and mostFailed how many are tried that have no flow.
const mostFlows, mostFailed = 64, 1 << 10

// Resolve looks up the ends of a request. Ends are addresses; pods by name or by the beginning of a name that only one
// pod has; nodes (node/NAME); workloads (deploy/NAME and the like), which are all of their pods; and as a destination
// Services, by name, by a name of the cluster's DNS or by address, which are all of their backends. An error describes
// the mistake in the request.
func Resolve(g *calc.Graph, r Request) (*Question, error) {
	family, err := r.family()
	if err != nil {
		return nil, err
	}
	l := lookup{g, r}
	from, err := l.source()
	if err != nil {
		return nil, err
	}
	to, err := l.destination()
	if err != nil {
		return nil, err
	}
	q := &Question{src: from.text, dst: to.text, note: to.note}
	left, err := q.fill(l, family, from, to)
	if err != nil {
		return nil, err
	}
	if left = slices.Concat(from.left, to.left, left); len(left) > 0 {
		q.partial = true
		q.add("not explained: " + shortened(left))
	}
	return q, nil
}

// fill makes the flows between all parties, as many as are answered. left are the pairs that have none, and why. There may be very many pairs, and
// the agent's loop waits, so of the others nothing is made.
func (q *Question) fill(l lookup, family int, from, to found) (left []string, err error) {
	n := 0
	for _, s := range from.parties {
		for _, d := range to.parties {
			if len(q.flows) > mostFlows || len(left) > mostFailed {
				n++
				continue
			}
			flows, failed := l.between(s, d, family, to.translated)
			if failed != nil {
				err = cmp.Or(err, failed) // the others say the same of other pods
				left = append(left, fmt.Sprintf("%s -> %s: %v", s.name, d.name, failed))
			}
			q.flows = append(q.flows, flows...)
		}
	}
	n += len(q.flows)
	if len(q.flows) == 0 {
		return nil, err
	}
	if n > mostFlows {
		q.flows, q.partial = q.flows[:min(len(q.flows), mostFlows)], true
		q.add(fmt.Sprintf("only %d of %d pairs are explained", len(q.flows), n))
	}
	return left, nil
}

// add adds to the note.
func (q *Question) add(text string) { q.note = strings.TrimPrefix(q.note+"; "+text, "; ") }

// between returns a flow for each pair of addresses of two parties. The destination may be a backend of a Service.
func (l lookup) between(s, d party, family int, translated bool) (flows []flow, err error) {
	sources, destinations, err := pair(s, d, family)
	if err != nil {
		return nil, err
	}
	if l.r.SourceAddr.IsValid() {
		further, err := l.furtherSource(sources[0])
		if err != nil {
			return nil, err
		}
		sources = []End{further}
	}
	for _, src := range sources {
		for _, dst := range destinations {
			f := flow{src: src, dst: dst, protocol: d.protocol, port: d.port, sourcePort: l.r.SourcePort, icmpT: l.r.ICMPType, icmpC: l.r.ICMPCode, rules: l.r.Rules}
			f.byNode = l.nodeInPlaceOf(src, dst, translated)
			f.anyPort = d.port == 0 && (d.protocol == 0 || model.HasPorts(d.protocol))
			flows = append(flows, f)
		}
	}
	return flows, nil
}

// Ends are the pods and addresses the question is about: what a State must know all about to answer it.
func (q *Question) Ends() (pods []model.EndpointID, addrs []netip.Addr) {
	for _, f := range q.flows {
		if f.byNode.IsValid() && !slices.Contains(addrs, f.byNode) {
			addrs = append(addrs, f.byNode)
		}
		for _, e := range []End{f.src, f.dst} {
			if e.IsPod() && !slices.Contains(pods, e.Endpoint) {
				pods = append(pods, e.Endpoint)
			}
			if !slices.Contains(addrs, e.Addr) {
				addrs = append(addrs, e.Addr)
			}
		}
	}
	return pods, addrs
}

// found is what one end of a request means.
type found struct {
	text    string
	parties []party
	note    string
	left    []string // what else was asked about, and why it is no party

	translated bool // they are backends of a Service
}

// party is one pod, node or outside address, by all of its addresses. As a destination it has a port.
type party struct {
	name     string
	ends     []End
	protocol uint8
	port     uint16
}

// isOwned reports whether it is a pod or a node.
func (p party) isOwned() bool { return p.ends[0].IsPod() || p.ends[0].Node != "" }

// pair chooses addresses of one family, that of IPv4 if both are possible.
func pair(src, dst party, family int) (a, b []End, err error) {
	for _, v6 := range []bool{false, true} {
		if family == 4 && v6 || family == 6 && !v6 {
			continue
		}
		a, b := ofFamily(src.ends, v6), ofFamily(dst.ends, v6)
		if len(a) > 0 && len(b) > 0 {
			return a, b, nil
		}
		for _, p := range []party{src, dst} {
			if len(ofFamily(p.ends, v6)) == 0 && family != 0 {
				return nil, nil, fmt.Errorf("%s has no IPv%d address", p.name, family)
			}
		}
	}
	return nil, nil, fmt.Errorf("%s and %s have no address family in common", src.name, dst.name)
}

func ofFamily(ends []End, v6 bool) (all []End) {
	for _, e := range ends {
		if e.Addr.Is6() == v6 {
			all = append(all, e)
		}
	}
	return all
}
