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
