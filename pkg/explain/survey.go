package explain

import (
	"math"
	"slices"

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
}

// Decided is what decides on one side.
type Decided struct {
	Verdict  string `json:"verdict"`  // allow or deny
	Decision string `json:"decision"` // as that of a Side
	Reason   string `json:"reason"`   // as that of a Side
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

// survey judges every port of TCP, UDP and SCTP and an ICMP echo request, or every port of the one protocol that is
// asked for. Ports that policy does not tell apart are judged once.
func survey(f flow, j Judge) (*Explanation, error) {
	e := f.explanation()
	rules := f.rules
	f.rules.TunnelPorts = nil // ports that policy does not tell apart are judged once, by the first of them
	protocols := []uint8{f.protocol}
	if f.protocol == 0 {
		protocols = []uint8{model.ProtoTCP, model.ProtoUDP, model.ProtoSCTP, model.ProtoICMP}
		if f.dst.Addr.Is6() {
			protocols[3] = model.ProtoICMPv6
		}
	}
	starts, err := starts(f, j)
	if err != nil {
		return nil, err
	}
	for _, p := range protocols {
		f.protocol = p
		if !model.HasPorts(p) {
			f.icmpT = echo(p)
			if err := note(e, f, j, 0, 0); err != nil {
				return nil, err
			}
			continue
		}
		for i, from := range starts {
			to := uint16(math.MaxUint16)
			if i+1 < len(starts) {
				to = starts[i+1] - 1
			}
			if err := note(e, f, j, from, to); err != nil {
				return nil, err
			}
		}
	}
	for _, p := range e.Ports {
		e.Verdict = both(e.Verdict, p.Verdict)
	}
	e.Caveat = rules.besidePorts(f.src, f.dst, e.Ports)
	return e, nil
}

// echo is the type of an echo request.
func echo(protocol uint8) uint8 {
	if protocol == model.ProtoICMPv6 {
		return 128
	}
	return 8
}

// note judges the first of some ports and notes the verdict for all of them.
func note(e *Explanation, f flow, j Judge, from, to uint16) error {
	f.port = from
	res, err := judgeBy(j, f, f.packet())
	if err != nil {
		return err
	}
	e.Note = res.note
	v := PortVerdict{
		Protocol: ProtocolName(f.protocol), From: from, To: to, Verdict: verdict(res.allow),
		Egress: res.egress.decided(), Ingress: res.ingress.decided(),
	}
	if !res.allow && res.egress.Verdict == VerdictAllow && res.ingress.Verdict == VerdictAllow {
		v.Caveat = res.caveat
	}
	if n := len(e.Ports); n > 0 {
		last := &e.Ports[n-1]
		same := *last
		same.From, same.To = v.From, v.To
		if same == v && from > 0 {
			last.To = to
			return nil
		}
	}
	e.Ports = append(e.Ports, v)
	return nil
}

// starts are the ports from which on policy may judge differently than just below them, ascending from 1.
func starts(f flow, j Judge) ([]uint16, error) {
	starts := []uint16{1}
	var all []uint32
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
