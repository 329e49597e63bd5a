package plan

import (
	"testing"

	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

// How large a policy is, each plan asks for every endpoint that waits for it: 100 endpoints with 10,000 policies took 8 of the 11 s of a
// change for that. So it is worked out when the first endpoint gets the policy.
func TestTheSizeOfAPolicyIsKnown(t *testing.T) {
	p := &model.DirectionPolicy{Tiers: []model.TierPolicy{{Policies: []*model.PolicyRules{{Rules: make([]model.MatchRule, 5)}, {Rules: make([]model.MatchRule, 7)}}}}}
	s := newPolicies(nil, nil, nil, nil, nil)
	if f := s.use(p); f.rules != match.EntriesOf(p) || f.rules != 14 {
		t.Errorf("%d entries, want %d", f.rules, match.EntriesOf(p))
	}
}
