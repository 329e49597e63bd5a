package explain

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/model"
)

// Result is how policy judges one packet.
type Result struct {
	Packet  model.Packet
	Src     End
	Dst     End
	Allow   bool
	Egress  *Trace // of the source; nil: the source is no pod, nothing judges it
	Ingress *Trace // of the destination; nil: it is no pod, or the traffic is the pod's own or its node's
	Note    string // why a side is not judged; empty if both are
	Caveat  string // what else than policy may stop the flow
}

// End is one end of the flow.
type End struct {
	Addr     netip.Addr
	Endpoint model.EndpointID // zero: no pod
	Node     string           // of the pod, or the node whose own address it is

	own netip.Addr // of the pod, if Addr is a further source of it
}

// IsPod reports whether the end is a pod.
func (e End) IsPod() bool { return e.Endpoint != model.EndpointID{} }

func (e End) String() string {
	switch {
	case e.IsPod():
		return fmt.Sprintf("%s (%s)", e.Endpoint, e.Addr)
	case e.Node != "":
		return fmt.Sprintf("node %s (%s)", e.Node, e.Addr)
	}
	return e.Addr.String()
}

// name is the end without its address, if it has a name.
func (e End) name() string {
	if e.IsPod() {
		return e.Endpoint.String()
	}
	return e.String()
}

// errNoPod says that no policy judges a flow.
var errNoPod = errors.New("no policy judges this flow")

// State is a datastore to explain, or the part of one that is around the ends of a question (calc.Graph.Around), as if
// every pod were local.
type State struct {
	graph *calc.Graph
	texts map[model.SetID]string // of sets, as far as they were asked for
}

// NewState takes the last update of every object.
func NewState(updates []model.Update) *State {
	s := &State{graph: calc.New(""), texts: map[model.SetID]string{}}
	s.graph.Apply(updates)
	s.graph.Apply([]model.Update{model.InSync{}})
	s.graph.Flush()
	return s
}

// Graph is the state as it was calculated. It must not be changed.
func (s *State) Graph() *calc.Graph { return s.graph }

// Explain answers a request over the objects that a State was made of.
func (s *State) Explain(r Request) (*Explanation, error) {
	q, err := Resolve(s.graph, r)
	if err != nil {
		return nil, err
	}
	return s.Answer(q)
}

// Packet judges one packet by the pods that own its addresses, whatever the packet is.
func (s *State) Packet(p model.Packet) (*Result, error) {
	l := lookup{graph: s.graph}
	return s.judge(l.address(p.Src).ends[0], l.address(p.Dst).ends[0], p)
}

func (s *State) judge(src, dst End, p model.Packet) (*Result, error) {
	sides, err := sidesOf(src, dst, p, s.Pod(), NodeRules{})
	if err != nil {
		return nil, err
	}
	res := &Result{Src: src, Dst: dst, Packet: p, Allow: true, Note: sides.note}
	if sides.egress {
		res.Caveat, _ = NodeRules{}.beside(src, dst, p, false)
		if res.Egress, err = s.walk(src.Endpoint, model.Egress, p); err != nil {
			return nil, err
		}
		res.Allow = res.Egress.Verdict.Allow
	}
	if sides.ingress {
		if res.Ingress, err = s.walk(dst.Endpoint, model.Ingress, p); err != nil {
			return nil, err
		}
		res.Allow = res.Allow && res.Ingress.Verdict.Allow
	}
	return res, nil
}

func (s *State) walk(id model.EndpointID, d model.Direction, p model.Packet) (*Trace, error) {
	policy, err := s.policy(id, d)
	if err != nil {
		return nil, err
	}
	t := Walk(policy, p, s)
	return &t, nil
}

// SetContains implements Sets.
func (s *State) SetContains(id model.SetID, addr netip.Addr) bool {
	return s.graph.SetContains(id, addr)
}

// SetText implements Sets. A tenant may have given a selector a text that takes milliseconds to make, and name it in a thousand rules.
func (s *State) SetText(id model.SetID) (text string, ok bool) {
	if text, ok = s.texts[id]; !ok {
		if text, ok = s.graph.SetText(id); ok {
			s.texts[id] = text
		}
	}
	return text, ok
}

func (s *State) policy(id model.EndpointID, d model.Direction) (*model.DirectionPolicy, error) {
	ep, ok := s.graph.LocalEndpoint(id)
	if !ok {
		return nil, fmt.Errorf("no policy was calculated for %s", id)
	}
	if d == model.Egress {
		return ep.Egress, nil
	}
	return ep.Ingress, nil
}
