package calc

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

// version is a policy that selects by sel, or the staged one that stands for it.
func version(name, selects string, staged bool, action model.StagedAction, directions ...model.Direction) model.PolicyUpdate {
	u := inTier(name, model.TierDefault, 1)
	u.Policy = &model.Policy{Tier: model.TierDefault, Order: 1, Selector: sel(selects), Staged: staged, StagedAction: action,
		AppliesIngress: slices.Contains(directions, model.Ingress), AppliesEgress: slices.Contains(directions, model.Egress)}
	if staged {
		u.Key, _ = u.Key.Staging()
	}
	return u
}

// TestAStagedPolicyTakesItsOwnAwayWhereItDoesNotApply: from pods that it does not select, and in directions that it is not about;
// whatever changes.
func TestAStagedPolicyTakesItsOwnAwayWhereItDoesNotApply(t *testing.T) {
	const set, del, ignore, in, out = model.StagedSet, model.StagedDelete, model.StagedIgnore, model.Ingress, model.Egress
	r := newRig(t, pod("shop/web", "10.0.0.1", label("app", "web")), pod("shop/db", "10.0.0.2", label("app", "db")))
	gone := func(u model.PolicyUpdate) model.PolicyUpdate { u.Policy = nil; return u }
	for i, step := range []struct {
		apply model.Update
		want  [4]string // ingress and egress of web, then of db
	}{
		{version("p", "all()", false, set, in, out), [4]string{"p", "p", "p", "p"}},
		{version("p", "app == 'web'", true, set, in), [4]string{"p staged", "p mark", "p mark", "p mark"}},
		{version("q", "app == 'web'", true, set, in), [4]string{"p staged staged", "p mark", "p mark", "p mark"}}, // none enforced of its name
		{version("p", "app == 'web'", true, ignore, in), [4]string{"p staged staged", "p", "p", "p"}},
		{version("p", "app == 'db'", true, set, in, out), [4]string{"p mark staged", "p mark", "p staged", "p staged"}},
		{version("p", "all()", true, del), [4]string{"p mark staged", "p mark", "p mark", "p mark"}},
		{version("p", "app == 'db'", false, set, in), [4]string{"staged", "", "p mark", ""}},
		{version("p", "app == 'nothing'", true, set, in), [4]string{"staged", "", "p mark", ""}},
		{pod("shop/db", "10.0.0.2", label("app", "nothing")), [4]string{"staged", "", "staged", ""}},
		{pod("shop/db", "10.0.0.2", label("app", "db")), [4]string{"staged", "", "p mark", ""}},
		{gone(version("p", "", true, set)), [4]string{"staged", "", "p", ""}},
	} {
		r.apply(step.apply)
		var got [4]string
		for at, name := range []string{"shop/web", "shop/db"} {
			got[2*at], got[2*at+1] = marks(r.endpoint(name).Ingress), marks(r.endpoint(name).Egress)
		}
		if got != step.want {
			t.Errorf("step %d:\n got %q\nwant %q", i, got, step.want)
		}
	}
}

// marks lists the policies of a direction.
func marks(p *model.DirectionPolicy) (text string) {
	for _, t := range p.Tiers {
		for _, policy := range t.Policies {
			what := policy.Key.Name
			switch {
			case policy.StagedAction == model.StagedDelete:
				what = "mark"
			case policy.Staged:
				what = "staged"
			}
			text += " " + what
		}
	}
	return strings.TrimSpace(text)
}

// TestARefusedStagedPolicyTakesNothingAway: its rules are not worked out on this node, so nothing of it is evaluated.
func TestARefusedStagedPolicyTakesNothingAway(t *testing.T) {
	const in = model.Ingress
	r := newRig(t, pod("shop/web", "10.0.0.1", label("app", "web")), pod("shop/db", "10.0.0.2", label("app", "db")))
	r.graph.sets.spending.limit, r.graph.sets.spending.perItem = 4, 0
	draft := version("p", "app == 'web'", true, model.StagedSet, in)
	for i := range 8 {
		draft.Policy.Ingress = append(draft.Policy.Ingress, model.Rule{Action: model.Allow,
			Source: model.Entity{Selector: sel(fmt.Sprintf("has(a%d)", i))}})
	}
	draft.Key.Kind, draft.Key.Namespace = model.KindStagedNetworkPolicy, "shop"
	enforced := version("p", "all()", false, model.StagedSet, in)
	enforced.Key.Kind, enforced.Key.Namespace = model.KindNetworkPolicy, "shop"
	r.graph.Apply([]model.Update{enforced, draft})
	r.graph.Flush()
	if web, db := marks(r.endpoint("shop/web").Ingress), marks(r.endpoint("shop/db").Ingress); web != "p staged" || db != "p" {
		t.Errorf("web %q, db %q", web, db)
	}
	draft.Policy.Ingress = nil
	r.graph.Apply([]model.Update{draft})
	r.graph.Flush()
	if web, db := marks(r.endpoint("shop/web").Ingress), marks(r.endpoint("shop/db").Ingress); web != "p staged" || db != "p mark" {
		t.Errorf("it fits now: web %q, db %q", web, db)
	}
}
