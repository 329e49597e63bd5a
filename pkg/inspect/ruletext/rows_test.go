package ruletext

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
)

func TestRulesThatAreNeverReachedAreMarked(t *testing.T) {
	const both = bpf.RuleV4 | bpf.RuleV6
	key := model.PolicyKey{Kind: model.KindKubernetesNetworkPolicy, Namespace: "shop", Name: "db"}
	p := &match.Program{
		Rules: []bpf.Rule{
			{Id: 1, Action: bpf.RuleAllow, Flags: both | bpf.RuleProto, Proto: model.ProtoTCP},
			{Id: 2, Action: bpf.RuleDeny, Flags: both}, {Action: bpf.RuleAllow, Flags: both}, {Action: bpf.RuleDeny, Flags: both},
		},
		IDs: []model.RuleID{
			{Point: model.AtRule, Tier: "default", Policy: key}, {Point: model.AtEndOfTier, Tier: "default", Policy: key},
			{Point: model.AtRule, Policy: model.PolicyKey{Kind: model.KindProfile, Name: "kns.shop"}}, {Point: model.AtNoProfile},
		},
	}
	const api, kind = "networking.k8s.io/v1", "NetworkPolicy"
	want := []inspect.RuleRow{
		{
			Direction: "ingress", Rule: "default/knp/shop/db#ingress[0]", Reason: "NetworkPolicy shop/db ingress[0]",
			Tier: "default", Action: "Allow", Match: "tcp", ID: 1, Packets: 3, Bytes: 180,
			Object: inspect.Object{APIVersion: api, Kind: kind, Namespace: "shop", Name: "db"},
		},
		{
			Direction: "ingress", Index: 1, Rule: "default/knp/shop/db#end-of-tier", Reason: "no rule matches",
			Tier: "default", Action: "Deny", Match: "anything", ID: 2,
			Object: inspect.Object{APIVersion: api, Kind: kind, Namespace: "shop", Name: "db"},
		},
		{
			Direction: "ingress", Index: 2, Rule: "profile/kns.shop#ingress[0]", Reason: "no policy decides", Action: "Allow", Match: "anything", NeverReached: true,
			Object: inspect.Object{Kind: "Profile", Name: "kns.shop"},
		},
		{Direction: "ingress", Index: 3, Rule: "no-profile-match", Reason: "nothing allows it", Action: "Deny", Match: "anything", NeverReached: true},
	}
	got := Rows(p, model.Ingress, nil, inspect.Counts{1: {Packets: 3, Bytes: 180}})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The agent's loop waits for the words of a set. A tenant makes them long, and thousands of entries of one rule.
func TestTheWordsOfASetAreAskedForOnce(t *testing.T) {
	p := &match.Program{}
	for range 100 {
		p.Rules = append(p.Rules, bpf.Rule{Action: bpf.RuleAllow, Flags: bpf.RuleV4 | bpf.RuleV6, In: [3]uint32{7}})
		p.IDs = append(p.IDs, model.RuleID{Point: model.AtNoProfile})
	}
	asked := 0
	rows := Rows(p, model.Ingress, func(n uint32) string { asked++; return Set(n) }, nil)
	if asked != 1 || len(rows) != 100 || rows[99].Match != "from {set 7}" {
		t.Errorf("asked %d times for %d rows, the last one %q", asked, len(rows), rows[len(rows)-1].Match)
	}
}
