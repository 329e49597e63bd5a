package explain_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/corpus"
	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/model"
)

func TestExplainNamesStagedPoliciesThatWouldDecideOtherwise(t *testing.T) {
	all := mustSelector(t, "all()")
	draft := func(name string, action model.Action) model.Update {
		return model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: name}, Policy: &model.Policy{
			Tier: model.TierDefault, Order: 1, Selector: all, AppliesIngress: true, Staged: true,
			Ingress: []model.Rule{{Action: action, Source: model.Entity{Nets: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}}},
		}}
	}
	state := explain.NewState([]model.Update{
		model.EndpointUpdate{ID: model.WorkloadID("shop", "a"), Endpoint: &model.Endpoint{
			Node: "n", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Profiles: []string{"kns.shop"}}},
		model.ProfileUpdate{Name: "kns.shop", Profile: &model.Profile{Ingress: []model.Rule{{Action: model.Allow}}}},
		draft("a", model.Allow), draft("b", model.Deny), draft("c", model.Pass),
	})
	// From 192.0.2.7, a allows, b denies, c passes on; together a comes first. From elsewhere, the end of the tier denies.
	for from, want := range map[string][]explain.StagedAnswer{
		"192.0.2.7": {{APIVersion: "projectcalico.org/v3", Kind: "NetworkPolicy", Namespace: "shop", Name: "b", Verdict: "deny", Rule: "ingress[0]",
			Reason: "by NetworkPolicy shop/b ingress[0] in tier default"}},
		"198.51.100.1": {stagedEnd("a", "a"), stagedEnd("b", "b"), stagedEnd("c", "c"), stagedEnd("", "a")},
	} {
		r, err := explain.ParseRequest(from, "shop/a:80")
		if err != nil {
			t.Fatal(err)
		}
		e, err := state.Explain(r)
		if err != nil {
			t.Fatal(err)
		}
		if e.Verdict != "allow" {
			t.Errorf("from %s: %s; staged policies are not enforced", from, e.Verdict)
		}
		if diff := cmp.Diff(want, e.Ingress.Staged); diff != "" {
			t.Errorf("from %s (-want +got):\n%s", from, diff)
		}
	}
}

// Without a port, staged policies are evaluated for every port, and ports that only they tell apart are answered apart.
func TestStagedPoliciesAreEvaluatedForEveryPort(t *testing.T) {
	tcp, all := uint8(model.ProtoTCP), mustSelector(t, "all()")
	draft := func(name string, p *model.Policy) model.Update {
		p.Tier, p.Selector, p.Staged = model.TierDefault, all, true
		return model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: name}, Policy: p}
	}
	ports := model.Entity{Ports: []model.PortRange{{Lo: 80, Hi: 443}}}
	updates := []model.Update{
		model.EndpointUpdate{ID: model.WorkloadID("shop", "a"), Endpoint: &model.Endpoint{
			Node: "n", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Profiles: []string{"kns.shop"}}},
		model.ProfileUpdate{Name: "kns.shop", Profile: &model.Profile{Ingress: []model.Rule{{Action: model.Allow}}}},
		draft("a", &model.Policy{AppliesIngress: true, Ingress: []model.Rule{{Action: model.Deny, Protocol: &tcp, Destination: ports}, {Action: model.Allow, Index: 1}}}),
	}
	answers := func() string {
		r, err := explain.ParseRequest("192.0.2.7", "shop/a")
		if err != nil {
			t.Fatal(err)
		}
		e, err := explain.NewState(updates).Explain(r)
		if err != nil {
			t.Fatal(err)
		}
		if e.Verdict != "allow" {
			t.Errorf("%s; staged policies are not enforced", e.Verdict)
		}
		var got []string
		for _, p := range e.Ports {
			for _, a := range p.Ingress.Staged {
				got = append(got, fmt.Sprintf("%s %d-%d %s by %s %s", p.Protocol, p.From, p.To, a.Verdict, a.Name, a.Rule))
			}
		}
		return strings.Join(got, "; ")
	}
	if got, want := answers(), "tcp 80-443 deny by a ingress[0]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for i := range 20 { // more than are evaluated alone; the last one denies everything
		p := &model.Policy{Order: float64(i + 1), AppliesIngress: true}
		if i < 19 {
			p.Ingress = []model.Rule{{Action: model.Allow}}
		}
		updates = append(updates, draft(fmt.Sprintf("b-%02d", i), p))
	}
	if got, want := answers(), "tcp 80-443 deny by a ingress[0]; tcp 80-443 deny by  ingress[0]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var odd []model.PortRange
	for p := range uint16(3000) {
		odd = append(odd, model.PortRange{Lo: 1000 + 2*p, Hi: 1000 + 2*p})
	}
	updates = append(updates, draft("c", &model.Policy{Order: 99, AppliesIngress: true, Ingress: []model.Rule{{Action: model.Deny, Protocol: &tcp, Destination: model.Entity{Ports: odd}}}}))
	if got, want := answers(), "tcp 80-443 deny by  ingress[0]"; got != want { // of very many ranges only all together
		t.Errorf("with 3,000 ports of rules: got %s, want %s", got[:min(len(got), 200)], want)
	}
}

// stagedEnd is a staged policy whose tier's end would deny, by another one's name.
func stagedEnd(name, by string) explain.StagedAnswer {
	a := explain.StagedAnswer{Verdict: "deny", Rule: "end-of-tier",
		Reason: "by the end of tier default: no rule of it matches, and NetworkPolicy shop/" + by + " selects the pod"}
	if name != "" {
		a.APIVersion, a.Kind, a.Namespace, a.Name = "projectcalico.org/v3", "NetworkPolicy", "shop", name
	}
	return a
}

// TestStagedAnswersAreThoseOfTheOracle: what explain says of a staged policy is what the oracle says once it is enforced.
func TestStagedAnswersAreThoseOfTheOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		updates := corpus.DrawModel(t)
		state := explain.NewState(updates)
		var now corpus.Oracle
		if err := now.Load(updates); err != nil {
			t.Fatal(err)
		}
		oracles := oraclesOf(t, updates)
		for _, p := range sample(corpus.DrawProbes(t, updates), 40) {
			enforced, err := now.Judge(p.Endpoint, p.Direction, p.Packet)
			if err != nil {
				t.Fatal(err)
			}
			if enforced.By.Point == model.AtSelf || enforced.By.Point == model.AtHost {
				continue
			}
			of := explain.End{Endpoint: p.Endpoint, Addr: p.Packet.Dst}
			answers, err := state.Staged(of, p.Direction, p.Packet)
			if err != nil {
				t.Fatal(err)
			}
			for which, as := range oracles {
				then, err := as.Judge(p.Endpoint, p.Direction, p.Packet)
				if err != nil {
					t.Fatal(err)
				}
				at := slices.IndexFunc(answers, func(a explain.StagedAnswer) bool {
					return a.APIVersion+" "+a.Kind+" "+a.Namespace+"/"+a.Name == which
				})
				switch {
				case at < 0 && which != together && then.Allow != enforced.Allow:
					t.Fatalf("%v: with %s enforced the oracle says allow %t by %s; explain says nothing of it: %+v", p, which, then.Allow, then.By, answers)
				case at >= 0 && (answers[at].Verdict == "allow") != then.Allow:
					t.Fatalf("%v: with %s enforced the oracle says allow %t by %s; explain %+v", p, which, then.Allow, then.By, answers[at])
				}
			}
		}
	})
}

// together stands for all staged policies.
const together = "  /"

func nameOf(key model.PolicyKey) string {
	apiVersion, kind := key.Kind.API()
	return apiVersion + " " + kind + " " + key.Namespace + "/" + key.Name
}

// oraclesOf judge by the updates with each of their staged policies enforced, and with all of them.
func oraclesOf(t *rapid.T, updates []model.Update) map[string]*corpus.Oracle {
	oracles := map[string]*corpus.Oracle{}
	last := map[model.PolicyKey]int{} // version of each policy
	for i, u := range updates {
		if p, ok := u.(model.PolicyUpdate); ok {
			last[p.Key] = i
		}
	}
	load := func(name string, chosen func(model.PolicyKey) bool) {
		as, later := slices.Clone(updates), []model.Update(nil)
		for i, u := range as {
			p, ok := u.(model.PolicyUpdate)
			if !ok || p.Policy == nil || !p.Policy.Staged || !chosen(p.Key) || last[p.Key] != i {
				continue
			}
			if p.Policy.StagedAction == model.StagedIgnore {
				continue
			}
			enforced := *p.Policy
			enforced.Staged = false
			as[i] = model.PolicyUpdate{Key: p.Key}
			then := model.PolicyUpdate{Key: p.Key.Enforced(), Policy: &enforced}
			if p.Policy.StagedAction == model.StagedDelete {
				then.Policy = nil
			}
			later = append(later, then)
		}
		as = append(as, later...)
		oracles[name] = &corpus.Oracle{}
		if err := oracles[name].Load(as); err != nil {
			t.Fatal(err)
		}
	}
	load(together, func(model.PolicyKey) bool { return true })
	for _, u := range updates {
		if p, ok := u.(model.PolicyUpdate); ok && p.Policy != nil && p.Policy.Staged {
			load(nameOf(p.Key), func(k model.PolicyKey) bool { return k == p.Key })
		}
	}
	return oracles
}

// Of two policies with equal order, name and namespace the kind decides which comes first: that of a staged one is the kind that it stands for.
func TestAStagedPolicyComesWhereTheEnforcedOneWould(t *testing.T) {
	policy := func(kind model.PolicyKind, namespace, tier string, staged bool, action model.Action) model.Update {
		return model.PolicyUpdate{Key: model.PolicyKey{Kind: kind, Namespace: namespace, Name: "db"}, Policy: &model.Policy{Tier: tier, Order: 1000,
			Selector: mustSelector(t, "all()"), AppliesIngress: true, Staged: staged, Ingress: []model.Rule{{Action: action}}}}
	}
	for _, test := range []struct {
		staged, enforced    model.PolicyKind
		namespace, tier, as string
	}{
		{model.KindStagedKubernetesNetworkPolicy, model.KindNetworkPolicy, "shop", model.TierDefault, "allow"},
		{model.KindStagedNetworkPolicy, model.KindKubernetesNetworkPolicy, "shop", model.TierDefault, ""},
		{model.KindStagedGlobalNetworkPolicy, model.KindKubernetesClusterNetworkPolicy, "", model.TierKubeAdmin, "allow"},
	} {
		state := explain.NewState([]model.Update{
			model.EndpointUpdate{ID: model.WorkloadID("shop", "a"), Endpoint: &model.Endpoint{Node: "n", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}},
			policy(test.staged, test.namespace, test.tier, true, model.Allow), policy(test.enforced, test.namespace, test.tier, false, model.Deny),
		})
		r, err := explain.ParseRequest("192.0.2.7", "shop/a:80")
		if err != nil {
			t.Fatal(err)
		}
		e, err := state.Explain(r)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if len(e.Ingress.Staged) > 0 {
			got = e.Ingress.Staged[0].Verdict
		}
		if e.Verdict != "deny" || got != test.as {
			t.Errorf("%s beside %s: %s, and as if staged policies were enforced %q, want %q", test.staged, test.enforced, e.Verdict, got, test.as)
		}
	}
}
