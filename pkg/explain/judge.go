package explain

import (
	"fmt"
	"strings"

	"github.com/margay-project/margay/pkg/model"
)

// Judge evaluates the policy of pods, one side of a flow at a time. A State evaluates the objects of a datastore. Another
// Judge may evaluate the policy enforced in a kernel.
type Judge interface {
	// Side is the verdict of one direction of a pod about the first packet of a flow.
	Side(of End, d model.Direction, p model.Packet) (*Side, error)
	// Bounds are the ports from which on the policy of one direction of a pod may judge differently than just below them,
	// in any order. Ports below 1 are ignored.
	Bounds(of End, d model.Direction) ([]uint32, error)
	// Pod is the Judge's word for a pod that it knows: "pod", or "pod of this node".
	Pod() string
}

var _ Judge = (*State)(nil)

// Side implements Judge.
func (s *State) Side(of End, d model.Direction, p model.Packet) (*Side, error) {
	t, err := s.walk(of.Endpoint, d, p)
	if err != nil {
		return nil, err
	}
	return side(t, d, of), nil
}

// Bounds implements Judge.
func (s *State) Bounds(of End, d model.Direction) ([]uint32, error) {
	policy, err := s.policy(of.Endpoint, d)
	if err != nil {
		return nil, err
	}
	var bounds []uint32
	for _, t := range policy.Tiers {
		for _, p := range t.Policies {
			bounds = append(bounds, boundsOf(p.Rules)...)
		}
	}
	for _, p := range policy.Profiles {
		bounds = append(bounds, boundsOf(p.Rules)...)
	}
	return bounds, nil
}

// boundsOf are the bounds of rules by their destination ports.
func boundsOf(rules []model.MatchRule) []uint32 {
	var bounds []uint32
	for i := range rules {
		for _, m := range []*model.PortMatch{rules[i].Destination.Ports, rules[i].Destination.NotPorts} {
			if m == nil {
				continue
			}
			for _, r := range m.Ranges {
				bounds = append(bounds, uint32(r.Lo), uint32(r.Hi)+1)
			}
			for _, n := range m.Named {
				bounds = append(bounds, uint32(n.Port), uint32(n.Port)+1)
			}
		}
	}
	return bounds
}

// Pod implements Judge.
func (s *State) Pod() string { return "pod" }

// sides are the sides of a flow that policy judges.
type sides struct {
	egress, ingress bool
	note            string // why a side is not judged; empty if both are
}

// sidesOf says which sides of a flow between two ends are judged. pod is what ends with a policy are called.
func sidesOf(src, dst End, p model.Packet, pod string, rules NodeRules) (sides, error) {
	if !src.IsPod() && !dst.IsPod() {
		return sides{}, fmt.Errorf("neither %s nor %s is a %s: %w", src, dst, pod, errNoPod)
	}
	s := sides{egress: src.IsPod(), ingress: dst.IsPod()}
	switch {
	case src.IsPod() && src.Endpoint == dst.Endpoint && !src.own.IsValid():
		return sides{note: "a pod may always talk to itself"}, nil
	case src.IsPod() && isDiscovery(p):
		return sides{note: "a pod may always speak neighbour and listener discovery with its node"}, nil
	case src.IsPod() && !dst.IsPod() && dst.Node != "" && dst.Node == src.Node:
		s.note = rules.toOwnNode(src)
	case src.IsPod() && !dst.IsPod():
		s.note = "the destination is no " + pod + ": only the source's egress is judged"
	case !src.IsPod() && src.Node != "" && src.Node == dst.Node:
		return sides{note: "a node may always talk to its own pods"}, nil
	case !src.IsPod():
		s.note = "the source is no " + pod + ": only the destination's ingress is judged"
	}
	return s, nil
}

// judged is how policy judges one packet.
type judged struct {
	allow           bool
	egress, ingress *Side
	note            string
	caveat          string
}

// judgeBy judges a packet of a flow.
func judgeBy(j Judge, f flow, p model.Packet) (judged, error) {
	src, dst := f.src, f.dst
	which, err := sidesOf(src, dst, p, j.Pod(), f.rules)
	switch {
	case err != nil && dst.Node != "" && f.anyPort:
		return judged{}, fmt.Errorf("%w, unless the port is the NodePort of a Service: then ask about svc/NAME", err)
	case err != nil && dst.Node != "" && isNodePort(p):
		return judged{}, fmt.Errorf("%w, unless %d is the NodePort of a Service: then ask about svc/NAME", err, p.DstPort)
	case err != nil:
		return judged{}, err
	}
	result := judged{egress: notJudged(which.note), ingress: notJudged(which.note), note: which.note}
	dropped := false
	if which.egress {
		result.caveat, dropped = f.rules.beside(src, dst, p, f.anyPort)
		if result.egress, err = j.Side(src, model.Egress, egressPacket(src, p)); err != nil {
			return judged{}, err
		}
	}
	if which.ingress {
		if result.ingress, err = j.Side(dst, model.Ingress, p); err != nil {
			return judged{}, err
		}
	}
	if src.own.IsValid() {
		result.caveat = strings.TrimPrefix(result.caveat+"; the source is a further one of the pod: an answer goes where its node routes "+src.Addr.String(), "; ")
	}
	result.allow = !dropped && result.egress.Verdict == VerdictAllow && result.ingress.Verdict == VerdictAllow
	return result, nil
}

// notJudged is the side of a flow that no policy judges.
func notJudged(note string) *Side {
	text := "not judged: " + note
	return &Side{Verdict: VerdictAllow, Decision: DecisionNone, Rule: text, Reason: text, Tiers: []TierAnswer{}}
}
