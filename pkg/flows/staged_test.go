package flows

import (
	"fmt"
	"testing"
	"time"
)

func stagedRecord(policy string, second int) *Record {
	return &Record{Time: time.Unix(int64(second), 0), Direction: Ingress, Verdict: Allow,
		Decision: Decision{Rule: "r", Staged: &Staged{Verdict: Deny, Policy: policy, Rule: policy + "#ingress[0]"}}}
}

func TestExamplesAreTheLatestTenOfEachPolicy(t *testing.T) {
	hub := NewHub(2) // examples stay longer than records
	for i := range 25 {
		hub.Publish([]*Record{stagedRecord("default/snp/shop/a", i), {Verdict: Allow}, stagedRecord("default/snp/shop/b", i)})
	}
	list := hub.Examples.Of("default/snp/shop/a", Ingress)
	if len(list) != ExamplesOfPolicy || list[0].Time.Unix() != 15 || list[9].Time.Unix() != 24 {
		t.Errorf("%d examples, from %v", len(list), list[0].Time)
	}
	if got := hub.Examples.Of("default/snp/shop/a", Egress); len(got) != 0 {
		t.Errorf("examples of the other direction: %v", got)
	}
}

func TestExamplesOfManyPoliciesAreBounded(t *testing.T) {
	var e Examples
	for i := range 3 * examplePolicies {
		e.note([]*Record{stagedRecord(fmt.Sprint("p", i), i)})
	}
	if len(e.by) != examplePolicies {
		t.Errorf("%d policies have examples, want %d", len(e.by), examplePolicies)
	}
	if len(e.Of("p0", Ingress)) != 0 || len(e.Of(fmt.Sprint("p", 3*examplePolicies-1), Ingress)) != 1 {
		t.Error("those whose examples are the oldest go first")
	}
}
