package explain

import (
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/staged"
)

// StagedAnswer is what a side would be if a staged policy were enforced, where that is another verdict. Without a Kind: if
// all of them were.
type StagedAnswer struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name,omitempty"`
	Verdict    string `json:"verdict"`
	Rule       string `json:"rule"`   // that would decide
	Reason     string `json:"reason"` // in words, for people
}

// mostStaged is how many staged policies of a side are evaluated one by one. All of them together always are.
const mostStaged = 256

// mostStagedByPort is how many if every port is asked about, so that each is evaluated for every range of ports that is judged apart. Of
// very many ranges it is fewer, so that an answer does not take minutes.
func mostStagedByPort(ranges int) int {
	const most, evaluations = 16, 4096
	return min(most, evaluations/ranges)
}

// variant is the policy of a side as it would be with some staged policies enforced.
type variant struct {
	of        End
	direction model.Direction
	about     StagedAnswer // which ones: it has no verdict
	policy    *model.DirectionPolicy
}

// variants are the policy of a side with each of its first staged policies enforced, and with all of them.
func (s *State) variants(of End, d model.Direction, most int) ([]variant, error) {
	p, err := s.policy(of.Endpoint, d)
	if err != nil {
		return nil, err
	}
	var list []variant
	keys := staged.Keys(p)
	for _, key := range keys[:min(len(keys), most)] {
		about := StagedAnswer{Namespace: key.Namespace, Name: key.Name}
		about.APIVersion, about.Kind = key.Kind.API()
		list = append(list, variant{of, d, about, staged.Enforce(p, staged.Only(key))})
	}
	if len(keys) > 1 {
		list = append(list, variant{of, d, StagedAnswer{}, staged.Enforce(p, staged.All)})
	}
	return list, nil
}

// otherwise are the answers of those variants of a side that decide otherwise than the enforced policies.
func (s *State) otherwise(variants []variant, pkt model.Packet, enforced *Side) (answers []StagedAnswer) {
	for _, v := range variants {
		t := Walk(v.policy, pkt, s)
		if verdict(t.Verdict.Allow) == enforced.Verdict {
			continue
		}
		as, about := side(&t, v.direction, v.of), v.about
		about.Verdict, about.Rule, about.Reason = as.Verdict, as.Rule, as.Reason
		answers = append(answers, about)
	}
	return answers
}

// shadows are the variants of both sides of a flow.
type shadows struct{ egress, ingress []variant }

// shadows returns the variants of those sides of a flow that have a policy.
func (s *State) shadows(f flow, most int) (v shadows, err error) {
	if f.src.IsPod() {
		if v.egress, err = s.variants(f.src, model.Egress, most); err != nil {
			return v, err
		}
	}
	if f.dst.IsPod() {
		v.ingress, err = s.variants(f.dst, model.Ingress, most)
	}
	return v, err
}

// addStaged fills in the staged policies of the sides that were judged.
func (s *State) addStaged(v shadows, f flow, p model.Packet, j *judged) {
	if j.egress.Decision != DecisionNone {
		j.egress.Staged = s.otherwise(v.egress, egressPacket(f.src, p), j.egress)
	}
	if j.ingress.Decision != DecisionNone {
		j.ingress.Staged = s.otherwise(v.ingress, p, j.ingress)
	}
}
