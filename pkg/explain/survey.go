package explain

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/model"
)

// PortVerdict is how policy judges some ports between two ends.
type PortVerdict struct {
	Protocol string  `json:"protocol"`
	From     uint16  `json:"from,omitempty"` // first port; 0: the protocol has none
	To       uint16  `json:"to,omitempty"`   // last port
	Verdict  string  `json:"verdict"`        // allow or deny
	Egress   Decided `json:"egress"`
	Ingress  Decided `json:"ingress"`
	Caveat   string  `json:"caveat,omitempty"` // what denies the ports if no side does
	// ICMPType is the type that the verdict is about: of every port, that of an echo request. Null: the protocol is not ICMP.
	ICMPType *uint8 `json:"icmpType,omitempty"`
}

// Decided is what decides on one side.
type Decided struct {
	Verdict  string `json:"verdict"`  // allow or deny
	Decision string `json:"decision"` // as that of a Side
	Reason   string `json:"reason"`   // as that of a Side
	// Staged are as those of a Side, of which at most the first 16 are evaluated alone.
	Staged []StagedAnswer `json:"staged,omitempty"`
}

// String is the verdict and what decided, in one line for people.
func (d Decided) String() string {
	switch d.Decision {
	case DecisionNone:
		return d.Reason
	case DecisionRule:
		return d.Verdict + " " + d.Reason
	}
	return d.Verdict + ": " + d.Reason
}

// mostJudged is how many rules are looked at for an answer about every port, of each protocol: every range of ports that they tell apart is
// judged by all of them. A tenant may have made so many of both that it would take hours.
const mostJudged = 1 << 22

// rules is how many rules judge a flow.
func (s *State) rules(f flow) (n int) {
	for d, end := range map[model.Direction]End{model.Egress: f.src, model.Ingress: f.dst} {
		p, err := s.policy(end.Endpoint, d)
		if err != nil {
			continue // it is no pod
		}
		for _, t := range p.Tiers {
			for _, policy := range t.Policies {
				n += len(policy.Rules)
			}
		}
	}
	return n
}

// survey judges every port of TCP, UDP and SCTP and an ICMP echo request, or every port of the one protocol that is
// asked for. Ports that are judged alike are judged once, by the first of them.
func survey(f flow, j Judge) (*Explanation, error) {
	s := &surveyed{flow: f, rules: f.rules, judge: j, answer: f.explanation()}
	s.flow.rules.TunnelPorts = nil // else one of them could stand for a range of ports; besides names them
	starts, err := starts(f, j)
	if err != nil {
		return nil, err
	}
	if state, ok := j.(*State); ok {
		if n := state.rules(f); n > mostJudged/len(starts) {
			return nil, fmt.Errorf("policy between %s and %s has %d rules and tells %d ranges of ports apart, too many to list: ask about one port", f.src, f.dst, n, len(starts))
		}
		if s.shadows, err = state.shadows(f, mostStagedByPort(len(starts))); err != nil {
			return nil, err
		}
	}
	for _, p := range f.protocols() {
		if !model.HasPorts(p) {
			if err := s.note(p, 0, 0); err != nil {
				return nil, err
			}
			continue
		}
		for i, from := range starts {
			to := uint16(math.MaxUint16)
			if i+1 < len(starts) {
				to = starts[i+1] - 1
			}
			if err := s.note(p, from, to); err != nil {
				return nil, err
			}
		}
	}
	e := s.answer
	for _, p := range e.Ports {
		e.Verdict = both(e.Verdict, p.Verdict)
	}
	if err := s.besides(); err != nil {
		return nil, err
	}
	e.Caveat = strings.Join(s.caveats, "; ")
	return e, nil
}

// protocols are those that a question without a port is about.
func (f flow) protocols() []uint8 {
	switch {
	case f.protocol != 0:
		return []uint8{f.protocol}
	case f.dst.Addr.Is6():
		return []uint8{model.ProtoTCP, model.ProtoUDP, model.ProtoSCTP, model.ProtoICMPv6}
	}
	return []uint8{model.ProtoTCP, model.ProtoUDP, model.ProtoSCTP, model.ProtoICMP}
}

// echo is the type of an echo request.
func echo(protocol uint8) uint8 {
	if protocol == model.ProtoICMPv6 {
		return 128
	}
	return 8
}

// surveyed is where a survey has got to.
type surveyed struct {
	flow    flow
	rules   NodeRules // of the flow, with the ports of tunnels
	judge   Judge
	answer  *Explanation
	shadows shadows
	caveats []string // about the answer as a whole
}

// judged judges a packet of a protocol, to a port if it has any. Of ICMP that is an echo request.
func (s *surveyed) judged(protocol uint8, port uint16) (judged, model.Packet, error) {
	f := s.flow
	f.protocol, f.port, f.icmpT, f.icmpC = protocol, port, echo(protocol), 0
	p := f.packet()
	res, err := judgeBy(s.judge, f, p)
	return res, p, err
}

// note judges the first of some ports and notes the verdict for all of them.
func (s *surveyed) note(protocol uint8, from, to uint16) error {
	res, p, err := s.judged(protocol, from)
	if err != nil {
		return err
	}
	if state, ok := s.judge.(*State); ok {
		state.addStaged(s.shadows, s.flow, p, &res)
	}
	e := s.answer
	e.Note = res.note
	v := PortVerdict{
		Protocol: ProtocolName(protocol), From: from, To: to, Verdict: verdict(res.allow),
		Egress: res.egress.decided(), Ingress: res.ingress.decided(),
	}
	if from == 0 {
		v.ICMPType = &p.ICMPType
	}
	switch byPolicy := res.egress.Verdict == VerdictDeny || res.ingress.Verdict == VerdictDeny; {
	case res.caveat == "" || byPolicy:
	case !res.allow:
		v.Caveat = res.caveat
	case !slices.Contains(s.caveats, res.caveat):
		s.caveats = append(s.caveats, res.caveat)
	}
	if n := len(e.Ports); n > 0 && e.Ports[n-1].extend(v) {
		return nil
	}
	e.Ports = append(e.Ports, v)
	return nil
}

// extend makes p about the ports of next, too, if they follow and are judged alike.
func (p *PortVerdict) extend(next PortVerdict) bool {
	alike := p.Protocol == next.Protocol && p.Verdict == next.Verdict && p.Caveat == next.Caveat
	if next.From == 0 || !alike || !p.Egress.equal(next.Egress) || !p.Ingress.equal(next.Ingress) {
		return false
	}
	p.To = next.To
	return true
}

func (d Decided) equal(o Decided) bool {
	return d.Verdict == o.Verdict && d.Decision == o.Decision && d.Reason == o.Reason && slices.Equal(d.Staged, o.Staged)
}

// besides notes what may become of other flows between the two ends than the listed ports, and of some of these.
func (s *surveyed) besides() error {
	f, ports := s.flow, s.answer.Ports
	if ports[0].Egress.Decision != DecisionNone {
		var protocols []string // of tunnels that policy allows
		for _, p := range tunnelProtocols {
			if f.protocol != 0 {
				break
			}
			res, _, err := s.judged(p, 0)
			if err != nil {
				return err
			}
			if res.egress.Verdict == VerdictAllow && res.ingress.Verdict == VerdictAllow {
				protocols = append(protocols, fmt.Sprint(p))
			}
		}
		s.add(s.rules.tunnels(f.src, protocols, ports))
	}
	s.add(nodePorts(f.dst, ports))
	return nil
}

func (s *surveyed) add(caveat string) {
	if caveat != "" {
		s.caveats = append(s.caveats, caveat)
	}
}

// starts are the ports from which on policy may judge differently than just below them, ascending from 1.
func starts(f flow, j Judge) ([]uint16, error) {
	starts, all := []uint16{1}, []uint32(nil)
	for d, end := range map[model.Direction]End{model.Egress: f.src, model.Ingress: f.dst} {
		if !end.IsPod() {
			continue
		}
		bounds, err := j.Bounds(end, d)
		if err != nil {
			return nil, err
		}
		all = append(all, bounds...)
	}
	for _, port := range all {
		if port >= 1 && port <= math.MaxUint16 {
			starts = append(starts, uint16(port))
		}
	}
	slices.Sort(starts)
	return slices.Compact(starts), nil
}
