package explain

import (
	"fmt"
	"net/netip"

	"github.com/margay-project/margay/pkg/model"
)

// Explanation is the answer to a Request, as tools print it with -o json. About one flow it has Egress and Ingress;
// about every port of one pair of ends, Ports; about several pairs, Answers.
type Explanation struct {
	Verdict     string         `json:"verdict"` // allow or deny; mixed: allow for a part of the question only
	Src         string         `json:"src"`
	Dst         string         `json:"dst"`
	Packet      string         `json:"packet,omitempty"`
	Source      *Place         `json:"source,omitempty"`
	Destination *Place         `json:"destination,omitempty"`
	Flow        *Flow          `json:"flow,omitempty"`
	Egress      *Side          `json:"egress,omitempty"`
	Ingress     *Side          `json:"ingress,omitempty"`
	Ports       []PortVerdict  `json:"ports,omitempty"`
	Answers     []*Explanation `json:"answers,omitempty"`
	Note        string         `json:"note,omitempty"`   // why a side is not judged
	Caveat      string         `json:"caveat,omitempty"` // what else than policy may stop the flow, or, where no side denies it, what does
	// NotEnforced are the pods whose policy in the kernel is not the one that is explained, each with why: "shop/db: keeps
	// its last policy: …". An agent fills it in, of the pods of its node.
	NotEnforced []string `json:"notEnforced,omitempty"`
}

// Verdicts.
const (
	VerdictAllow = "allow"
	VerdictDeny  = "deny"
	VerdictMixed = "mixed"
)

// Place is one end of a flow.
type Place struct {
	Namespace string     `json:"namespace,omitempty"` // empty, as Pod: no pod
	Pod       string     `json:"pod,omitempty"`
	Node      string     `json:"node,omitempty"`
	Address   netip.Addr `json:"address"`
}

// Flow is the protocol and the ports, or type and code, of the first packet.
type Flow struct {
	Protocol   string `json:"protocol"`
	Port       uint16 `json:"port,omitempty"`
	SourcePort uint16 `json:"sourcePort,omitempty"`
	ICMPType   *uint8 `json:"icmpType,omitempty"`
	ICMPCode   *uint8 `json:"icmpCode,omitempty"`
}

// Side is one side of an explanation.
type Side struct {
	Verdict    string       `json:"verdict"` // allow or deny
	APIVersion string       `json:"apiVersion,omitempty"`
	Kind       string       `json:"kind"` // of the object behind the verdict; empty: no object is
	Namespace  string       `json:"namespace"`
	Name       string       `json:"name"`
	Rule       string       `json:"rule"`               // "ingress[0]", "end-of-tier", "no-profile-match", or why nothing judged
	RuleName   string       `json:"ruleName,omitempty"` // what the object calls the rule: its annotation "name"
	Tier       string       `json:"tier,omitempty"`
	Decision   string       `json:"decision"` // see the constants
	Reason     string       `json:"reason"`   // the decision in words, for people
	Tiers      []TierAnswer `json:"tiers"`    // considered, in order
	// Staged are the staged policies that would have decided otherwise. By the objects only.
	Staged []StagedAnswer `json:"staged,omitempty"`
}

// String is the verdict and what decided, in one line for people.
func (s *Side) String() string { return s.decided().String() }

func (s *Side) decided() Decided { return Decided{s.Verdict, s.Decision, s.Reason, s.Staged} }

// Decisions name the kind of thing that decides a side.
const (
	DecisionRule      = "rule"        // a rule of a policy matches
	DecisionEndOfTier = "end-of-tier" // policies select the pod, and no rule of theirs matches
	DecisionNoPolicy  = "no-policy"   // no policy decides: the namespace or another profile of the pod does, or nothing
	DecisionNone      = "not-judged"  // policy is not asked
)

// TierAnswer is one tier as it was considered; without a name: the profiles.
type TierAnswer struct {
	Name     string         `json:"name"`
	Policies []PolicyAnswer `json:"policies"`
	End      string         `json:"end,omitempty"`
}

// PolicyAnswer is one policy or profile as it was considered.
type PolicyAnswer struct {
	APIVersion string       `json:"apiVersion,omitempty"`
	Kind       string       `json:"kind"`
	Namespace  string       `json:"namespace,omitempty"`
	Name       string       `json:"name"`
	Staged     bool         `json:"staged,omitempty"` // not enforced, so its rules were not considered: see Side.Staged
	Rules      []RuleAnswer `json:"rules"`
}

// RuleAnswer is one rule as it was considered. One rule of the API object can become several, one for each combination
// of peer and port; they have the same Rule.
type RuleAnswer struct {
	Rule     string    `json:"rule"`
	Name     string    `json:"name,omitempty"` // what the object calls it: its annotation "name"
	Action   string    `json:"action"`
	Matched  bool      `json:"matched"`
	Why      string    `json:"why,omitempty"`      // it did not match, in words
	Mismatch *Mismatch `json:"mismatch,omitempty"` // the same, in parts
}

// Answer judges the flows of a question, whose ends the State has to know all about.
func (s *State) Answer(q *Question) (*Explanation, error) { return Answer(q, s) }

// Answer judges the flows of a question.
func Answer(q *Question, j Judge) (*Explanation, error) {
	var answers []*Explanation
	for _, f := range q.flows {
		answer, err := answer(f, j)
		if err != nil {
			return nil, err
		}
		answers = append(answers, answer)
	}
	if len(answers) == 1 && !q.partial {
		if answers[0].Note == "" {
			answers[0].Note = q.note
		}
		return answers[0], nil
	}
	e := &Explanation{Src: q.src, Dst: q.dst, Answers: answers, Note: q.note}
	for _, a := range answers {
		e.Verdict = both(e.Verdict, a.Verdict)
	}
	if q.partial && e.Verdict == VerdictAllow {
		e.Verdict = VerdictMixed
	}
	return e, nil
}

func answer(f flow, j Judge) (*Explanation, error) {
	if f.anyPort {
		return survey(f, j)
	}
	packet := f.packet()
	res, err := judgeBy(j, f, packet)
	if err != nil {
		return nil, err
	}
	if state, ok := j.(*State); ok {
		shadows, err := state.shadows(f, mostStaged)
		if err != nil {
			return nil, err
		}
		state.addStaged(shadows, f, packet, &res)
	}
	if res.caveat == "" && f.byNode.IsValid() {
		if res.caveat, err = byNode(f, j, packet, res.ingress); err != nil {
			return nil, err
		}
	}
	e := f.explanation()
	e.Verdict, e.Packet, e.Note, e.Caveat = verdict(res.allow), packetText(packet), res.note, res.caveat
	e.Flow = flowOf(packet)
	e.Egress, e.Ingress = res.egress, res.ingress
	return e, nil
}

func (f flow) explanation() *Explanation {
	return &Explanation{Src: f.src.String(), Dst: f.dst.String(), Source: place(f.src), Destination: place(f.dst)}
}

// packet is the first packet of the flow.
func (f flow) packet() model.Packet {
	p := model.Packet{Src: f.src.Addr, Dst: f.dst.Addr, Protocol: f.protocol}
	switch {
	case model.HasPorts(f.protocol):
		p.SrcPort, p.DstPort = f.sourcePort, f.port
	case f.protocol == model.ProtoICMP || f.protocol == model.ProtoICMPv6:
		p.ICMPType, p.ICMPCode = f.icmpT, f.icmpC
	}
	return p
}

// both is the verdict of two; the first may be empty.
func both(a, b string) string {
	if a == "" || a == b {
		return b
	}
	return VerdictMixed
}

func verdict(allow bool) string {
	if allow {
		return VerdictAllow
	}
	return VerdictDeny
}

func place(e End) *Place {
	return &Place{Namespace: e.Endpoint.Namespace, Pod: e.Endpoint.Name, Node: e.Node, Address: e.Addr}
}

func flowOf(p model.Packet) *Flow {
	f := &Flow{Protocol: ProtocolName(p.Protocol), Port: p.DstPort, SourcePort: p.SrcPort}
	if p.Protocol == model.ProtoICMP || p.Protocol == model.ProtoICMPv6 {
		f.ICMPType, f.ICMPCode = &p.ICMPType, &p.ICMPCode
	}
	return f
}

func packetText(p model.Packet) string {
	proto := ProtocolName(p.Protocol)
	switch {
	case model.HasPorts(p.Protocol):
		return fmt.Sprintf("%s -> %s %s", p.Src, netip.AddrPortFrom(p.Dst, p.DstPort), proto)
	case p.Protocol == model.ProtoICMP || p.Protocol == model.ProtoICMPv6:
		return fmt.Sprintf("%s -> %s %s type %d code %d", p.Src, p.Dst, proto, p.ICMPType, p.ICMPCode)
	}
	return fmt.Sprintf("%s -> %s %s", p.Src, p.Dst, proto)
}

func side(t *Trace, d model.Direction, of End) *Side {
	by := t.Verdict.By
	s := &Side{Verdict: verdict(t.Verdict.Allow), Tier: by.Tier, Namespace: by.Policy.Namespace, Name: by.Policy.Name, Tiers: []TierAnswer{}}
	s.APIVersion, s.Kind = by.Policy.Kind.API()
	switch by.Point {
	case model.AtEndOfTier:
		s.Rule = "end-of-tier"
	case model.AtNoProfile:
		s.Rule = "no-profile-match"
	default:
		s.Rule, s.RuleName = fmt.Sprintf("%s[%d]", d, by.Index), t.ruleName()
	}
	s.Decision, s.Reason = reason(t, d, of)
	for _, tier := range t.Tiers {
		s.Tiers = append(s.Tiers, tierAnswer(tier, d))
	}
	return s
}

func tierAnswer(t Tier, d model.Direction) TierAnswer {
	row := TierAnswer{Name: t.Name, End: t.End, Policies: []PolicyAnswer{}}
	for _, p := range t.Policies {
		policy := PolicyAnswer{Namespace: p.Key.Namespace, Name: p.Key.Name, Staged: p.Staged, Rules: []RuleAnswer{}}
		policy.APIVersion, policy.Kind = p.Key.Kind.API()
		for _, r := range p.Rules {
			policy.Rules = append(policy.Rules, RuleAnswer{
				Rule: fmt.Sprintf("%s[%d]", d, r.Index), Name: r.Name, Action: r.Action.String(), Matched: r.Mismatch == nil,
				Why: r.Mismatch.String(), Mismatch: r.Mismatch,
			})
		}
		row.Policies = append(row.Policies, policy)
	}
	return row
}
