package wire

import (
	"fmt"
	"net/netip"

	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/model"
)

// Explain answers one request over the given objects.
func Explain(updates []model.Update, r explain.Request) (*Explanation, error) {
	res, err := explain.NewState(updates).Explain(r)
	if err != nil {
		return nil, err
	}
	return &Explanation{
		Verdict: verdict(res.Allow),
		Src:     res.Src.String(),
		Dst:     res.Dst.String(),
		Packet:  packetText(res.Packet),
		Egress:  side(res.Egress, model.Egress, res.Note),
		Ingress: side(res.Ingress, model.Ingress, res.Note),
		Note:    res.Note,
		Caveat:  res.Caveat,
	}, nil
}

func verdict(allow bool) string {
	if allow {
		return "allow"
	}
	return "deny"
}

func packetText(p model.Packet) string {
	proto := explain.ProtocolName(p.Protocol)
	switch {
	case model.HasPorts(p.Protocol):
		return fmt.Sprintf("%s -> %s %s", p.Src, netip.AddrPortFrom(p.Dst, p.DstPort), proto)
	case p.Protocol == model.ProtoICMP || p.Protocol == model.ProtoICMPv6:
		return fmt.Sprintf("%s -> %s %s type %d code %d", p.Src, p.Dst, proto, p.ICMPType, p.ICMPCode)
	}
	return fmt.Sprintf("%s -> %s %s", p.Src, p.Dst, proto)
}

func side(t *explain.Trace, d model.Direction, note string) ExplainSide {
	if t == nil {
		return ExplainSide{Verdict: "allow", Rule: "not judged: " + note, Tiers: []ExplainTier{}}
	}
	by := t.Verdict.By
	s := ExplainSide{Verdict: verdict(t.Verdict.Allow), Tier: by.Tier, Namespace: by.Policy.Namespace, Name: by.Policy.Name, Tiers: []ExplainTier{}}
	s.APIVersion, s.Kind = APIKind(by.Policy.Kind)
	switch by.Point {
	case model.AtEndOfTier:
		s.Rule = "end-of-tier"
	case model.AtNoProfile:
		s.Rule = "no-profile-match"
	default:
		s.Rule = fmt.Sprintf("%s[%d]", d, by.Index)
	}
	for _, tier := range t.Tiers {
		s.Tiers = append(s.Tiers, tierRow(tier, d))
	}
	return s
}

func tierRow(t explain.Tier, d model.Direction) ExplainTier {
	row := ExplainTier{Name: t.Name, End: t.End, Policies: []ExplainPolicy{}}
	for _, p := range t.Policies {
		policy := ExplainPolicy{Namespace: p.Key.Namespace, Name: p.Key.Name, Staged: p.Staged, Rules: []ExplainRule{}}
		_, policy.Kind = APIKind(p.Key.Kind)
		for _, r := range p.Rules {
			policy.Rules = append(policy.Rules, ExplainRule{
				Rule: fmt.Sprintf("%s[%d]", d, r.Index), Action: r.Action.String(), Matched: r.Mismatch == "", Why: r.Mismatch,
			})
		}
		row.Policies = append(row.Policies, policy)
	}
	return row
}
