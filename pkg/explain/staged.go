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

// staged evaluates the staged policies of a side about a packet, each alone and all together, and returns those that would
// decide otherwise than the enforced policies.
func (s *State) staged(of End, d model.Direction, pkt model.Packet, enforced *Side) ([]StagedAnswer, error) {
	p, err := s.policy(of.Endpoint, d)
	if err != nil {
		return nil, err
	}
	keys := staged.Keys(p)
	var answers []StagedAnswer
	ask := func(chosen func(model.PolicyKey) bool, about StagedAnswer) {
		t := Walk(staged.Enforce(p, chosen), pkt, s.graph)
		as := side(&t, d, of)
		if as.Verdict == enforced.Verdict {
			return
		}
		about.Verdict, about.Rule, about.Reason = as.Verdict, as.Rule, as.Reason
		answers = append(answers, about)
	}
	for _, key := range keys[:min(len(keys), mostStaged)] {
		about := StagedAnswer{Namespace: key.Namespace, Name: key.Name}
		about.APIVersion, about.Kind = key.Kind.API()
		ask(staged.Only(key), about)
	}
	if len(keys) > 1 {
		ask(staged.All, StagedAnswer{})
	}
	return answers, nil
}

// addStaged fills in the staged policies of the sides that were judged.
func (s *State) addStaged(f flow, p model.Packet, j *judged) (err error) {
	if j.egress.Decision != DecisionNone {
		if j.egress.Staged, err = s.staged(f.src, model.Egress, egressPacket(f.src, p), j.egress); err != nil {
			return err
		}
	}
	if j.ingress.Decision != DecisionNone {
		j.ingress.Staged, err = s.staged(f.dst, model.Ingress, p, j.ingress)
	}
	return err
}
