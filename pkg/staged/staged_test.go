package staged

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/model"
)

func rules(name string, staged bool) *model.PolicyRules {
	return &model.PolicyRules{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: name}, Staged: staged}
}

func names(p *model.DirectionPolicy) string {
	var list []string
	for _, t := range p.Tiers {
		for _, policy := range t.Policies {
			text := t.Name + "/" + policy.Key.Name
			if policy.Staged {
				text += "*"
			}
			list = append(list, text)
		}
	}
	return strings.Join(list, " ")
}

func TestEnforceHasTheChosenOnesAndNoOtherStagedOnes(t *testing.T) {
	refused := rules("refused", true)
	refused.Refused = "too much"
	p := &model.DirectionPolicy{Direction: model.Egress, Profiles: []*model.PolicyRules{rules("profile", false)}, Tiers: []model.TierPolicy{
		{Name: "a", Default: model.Deny, Policies: []*model.PolicyRules{rules("x", true), rules("y", true)}},
		{Name: "b", Default: model.Pass, Policies: []*model.PolicyRules{rules("p", false), rules("z", true), rules("q", false), refused}},
	}}
	before := names(p)
	for _, test := range []struct {
		chosen func(model.PolicyKey) bool
		want   string
	}{
		{All, "a/x a/y b/p b/z b/q"},
		{Only(model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "y"}), "a/y b/p b/q"},
		{func(model.PolicyKey) bool { return false }, "b/p b/q"},
	} {
		as := Enforce(p, test.chosen)
		if diff := cmp.Diff(test.want, names(as)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if last := as.Tiers[len(as.Tiers)-1]; as.Direction != model.Egress || len(as.Profiles) != 1 || last.Name != "b" || last.Default != model.Pass {
			t.Errorf("something else has changed: %+v", as)
		}
	}
	if names(p) != before {
		t.Errorf("the policy itself has changed: %s", names(p))
	}
	if keys := Keys(p); len(keys) != 3 || keys[0].Name != "x" || keys[2].Name != "z" {
		t.Errorf("staged policies %v, want x, y and z: the rules of the refused one are not known", keys)
	}
}

// versions are an enforced policy and staged ones that stand for it or take it away.
func versions(action model.StagedAction) *model.DirectionPolicy {
	key := model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "db"}
	draft := &model.PolicyRules{Key: key, Staged: true, StagedAction: action, Rules: []model.MatchRule{{Action: model.Allow}}}
	draft.Key.Kind = model.KindStagedNetworkPolicy
	other := model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "other"}
	return &model.DirectionPolicy{Profiles: []*model.PolicyRules{rules("profile", false)}, Tiers: []model.TierPolicy{{Name: "t", Default: model.Deny,
		Policies: []*model.PolicyRules{{Key: key}, {Key: other}, draft}}}}
}

func TestAStagedPolicyStandsForTheEnforcedOneOfItsName(t *testing.T) {
	for action, want := range map[model.StagedAction]string{
		model.StagedSet: "t/other t/db", model.StagedLearn: "t/other t/db", model.StagedDelete: "t/other", model.StagedIgnore: "t/db t/other",
	} {
		p := versions(action)
		if got := names(Enforce(p, All)); got != want {
			t.Errorf("%s: %s, want %s", action, got, want)
		}
		if got := Shadow(p); (got == nil) != (action == model.StagedIgnore) || got != nil && names(got) != want {
			t.Errorf("%s: shadow %+v, want %s", action, got, want)
		}
	}
}

// TestWhatADeletionUncoversIsCreditedToIt: what decides in place of the policy that is gone, and behind it.
func TestWhatADeletionUncoversIsCreditedToIt(t *testing.T) {
	p := versions(model.StagedDelete)
	s, draft := Shadow(p), p.Tiers[0].Policies[2].Key
	tier := s.Tiers[0]
	for what, c := range map[string]*model.Credit{"the other policy": tier.Policies[0].Credit, "the end of the tier": tier.Credit,
		"the profile": s.Profiles[0].Credit, "no profile": s.Credit} {
		if c == nil || c.Policy != draft || c.Tier != "t" {
			t.Errorf("%s: credit %+v, want %v", what, c, draft)
		}
	}
	if p.Tiers[0].Policies[1].Credit != nil || p.Profiles[0].Credit != nil {
		t.Error("the enforced policy has changed")
	}
}

// The end of a tier that staged policies alone would isolate is credited to the first of them. If enforced policies isolate already, no staged policy gets the credit.
func TestTheEndOfATierIsCreditedToWhatIsolates(t *testing.T) {
	as := Shadow(&model.DirectionPolicy{Direction: model.Ingress, Tiers: []model.TierPolicy{
		{Name: "a", Default: model.Deny, Policies: []*model.PolicyRules{rules("x", true), rules("y", true)}},
		{Name: "b", Default: model.Deny, Policies: []*model.PolicyRules{rules("z", true), rules("p", false)}},
	}})
	if c := as.Tiers[0].Credit; c == nil || c.Policy.Name != "x" || c.Tier != "a" {
		t.Errorf("tier a is credited to %+v, want x", c)
	}
	if c := as.Tiers[1].Credit; c != nil {
		t.Errorf("tier b is credited to %+v", c)
	}
}
