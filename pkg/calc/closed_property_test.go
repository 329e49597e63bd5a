package calc

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/staged"
)

// Whatever is left out of sets, by whichever limit and after whichever history: no packet is allowed that is denied without limits.
func TestWhatIsLeftOutAllowsNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, dp, w := newGraph(""), newDataplane(), world{}
		r, f, b := g.sets.room, g.sets.selected.found, &g.sets.services.backends
		r.common, r.assured, r.each = rapid.IntRange(0, 8).Draw(t, "common"), rapid.IntRange(0, 3).Draw(t, "assured"), rapid.IntRange(0, 3).Draw(t, "each")
		f.most, g.prefixes.most, f.tries = rapid.IntRange(0, 8).Draw(t, "prefixes found"), rapid.IntRange(0, 8).Draw(t, "prefixes"), rapid.IntRange(1, 4).Draw(t, "tries")
		b.pairs.most, b.addrs.most, b.most = rapid.IntRange(0, 6).Draw(t, "pairs"), rapid.IntRange(0, 6).Draw(t, "addresses"), rapid.IntRange(1, 4).Draw(t, "ports")
		g.sets.selected.numbers.most = rapid.IntRange(0, 2).Draw(t, "numbers")
		g.InParts(rapid.IntRange(0, 2).Draw(t, "in parts"))
		g.Apply([]model.Update{model.InSync{}})
		for range rapid.IntRange(1, 6).Draw(t, "batches") {
			for range rapid.IntRange(1, 12).Draw(t, "changes") {
				u := orAbsent(t, drawClosed(t))
				w.set(u)
				g.Apply([]model.Update{u})
			}
			for n := 0; n == 0 || len(g.Turning()) > 0 || g.HasMore(); n++ {
				if err := dp.apply(g.Flush()); err != nil {
					t.Fatal(err)
				}
				if n > 1000 {
					t.Fatal("flushes without end")
				}
			}
			checkRoom(t, g)
			truth := fresh(t, "", w)
			for id, ep := range dp.Endpoints {
				for range 8 {
					checkClosed(t, id, ep, truth.Endpoints[id], dp, truth)
				}
			}
		}
	})
}

func checkClosed(t *rapid.T, id model.EndpointID, ep, wanted *model.EndpointPolicy, dp, truth *dataplane) {
	dir := oneOf(t, "direction", model.Ingress, model.Egress)
	pkt, ok := drawPacket(t, ep, dir)
	if !ok {
		return
	}
	policy, want := ep.Ingress, wanted.Ingress
	if dir == model.Egress {
		policy, want = ep.Egress, wanted.Egress
	}
	if got := dp.judge(policy, pkt); got.Allow && !truth.judge(want, pkt).Allow {
		t.Fatalf("%s of %s, %+v is allowed by %+v, and without limits it is not: %+v", dir, id, pkt, got, truth.judge(want, pkt))
	}
	if got := dp.judge(staged.Enforce(policy, staged.All), pkt); got.Allow && !truth.judge(staged.Enforce(want, staged.All), pkt).Allow {
		t.Fatalf("%s of %s, %+v would be allowed by %+v, and without limits it would not be", dir, id, pkt, got)
	}
}

// drawClosed is a change of anything, with network sets of namespaces and EndpointSlices of few addresses.
func drawClosed(t *rapid.T) model.Update {
	switch rapid.IntRange(0, 3).Draw(t, "what") {
	case 0:
		namespace := oneOf(t, "namespace", "", "a", "b")
		u := model.NetworkSetUpdate{ID: model.NetworkSetID{Namespace: namespace, Name: oneOf(t, "network set", "n1", "n2")},
			Set: &model.NetworkSet{Labels: drawLabels(t, "app", "role")}}
		if namespace != "" {
			u.Set.Profiles = []string{model.NamespaceProfile(namespace)}
		}
		u.Set.Nets = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) netip.Prefix {
			a := drawAddr().Draw(t, "address")
			p, _ := a.Prefix(a.BitLen() - oneOf(t, "host bits", 0, 0, 0, 1, 2))
			return p
		}), 0, 6).Draw(t, "nets")
		slices.SortFunc(u.Set.Nets, netip.Prefix.Compare)
		u.Set.Nets = slices.Compact(u.Set.Nets)
		return u
	case 1:
		u := drawPolicy(t)
		u.Key.Namespace, u.Policy.Selector, u.Policy.Tier = oneOf(t, "policy of", "", "a", "b"), sel("all()"), oneOf(t, "tier", "security", "platform")
		if u.Key.Namespace == "" {
			u.Key.Kind = model.KindGlobalNetworkPolicy
		}
		if rapid.Bool().Draw(t, "selectors alone") {
			u.Policy.AppliesIngress, u.Policy.AppliesEgress, u.Policy.Staged = true, true, false
			u.Policy.Ingress, u.Policy.Egress = drawBySelectors(t), drawBySelectors(t)
		}
		return u
	}
	switch u := drawUpdate(t).(type) {
	case model.EndpointUpdate:
		u.Endpoint.Unconfirmed = false
		return u
	case model.ProfileUpdate:
		u.Profile.Ingress, u.Profile.Egress = []model.Rule{{Action: model.Allow}}, []model.Rule{{Action: model.Allow}}
		return u
	case model.TierUpdate:
		u.Tier.Default = model.Pass
		return u
	case model.RoutesUpdate:
		return model.ProfileUpdate{Name: oneOf(t, "profile", "kns.a", "kns.b", "ksa.a.x"), Profile: &model.Profile{
			Ingress: []model.Rule{{Action: model.Allow}}, Egress: []model.Rule{{Action: model.Allow}}}}
	default:
		return u
	}
}

// drawBySelectors are rules whose sides have selectors and nothing else, so that what is left out decides.
func drawBySelectors(t *rapid.T) (rules []model.Rule) {
	side := func() (e model.Entity) {
		switch oneOf(t, "side", "any", "in", "not in", "both") {
		case "in":
			e.Selector = sel(drawSelector(t))
		case "not in":
			e.NotSelector = sel(drawSelector(t))
		case "both":
			e.Selector, e.NotSelector = sel(drawSelector(t)), sel(drawSelector(t))
		}
		return e
	}
	for i := range rapid.IntRange(1, 2).Draw(t, "rules") {
		rules = append(rules, model.Rule{Action: oneOf(t, "action", model.Allow, model.Deny, model.Pass, model.Log), Index: i, Source: side(), Destination: side()})
	}
	return rules
}
