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
