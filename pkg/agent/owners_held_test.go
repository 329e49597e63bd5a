package agent

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/validate"
)

// TestEveryReasonOfAnEndpointIsAProblem: held policy, staged policies and further sources that are not in force.
func TestEveryReasonOfAnEndpointIsAProblem(t *testing.T) {
	var got []string
	for _, p := range heldProblems([]dataplane.EndpointStatus{
		{ID: podID(1), Condition: dataplane.Enforced},
		{ID: podID(2), Condition: dataplane.Held, Reason: "closed: too large", Staged: "too many", Sources: "packets from P are dropped"},
		{ID: podID(3), Condition: dataplane.NoInterface, Reason: "waiting for its interface"},
	}) {
		got = append(got, p.String())
	}
	name := "Pod " + podID(2).Namespace + "/" + podID(2).Name
	want := []string{name + ": rejected: closed: too large", name + ": warning: its staged policies are not evaluated: too many",
		name + ": warning: packets from P are dropped"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAnEventAboutTheOwnNodeIsLeftToNoOtherAgent: of what all agents know, a few send the Event.
func TestAnEventAboutTheOwnNodeIsLeftToNoOtherAgent(t *testing.T) {
	var local []string
	for _, p := range []validate.Problem{{Ref: validate.Ref{Kind: "Node", Name: "n1"}}, {Ref: validate.Ref{Kind: "Node", Name: "n2"}},
		{Ref: validate.Ref{Kind: "Pod", Namespace: "t", Name: "n1"}}} {
		if item := problemEvent(p, "n1"); item.Local {
			local = append(local, item.Problem.Ref.Kind+" "+item.Problem.Ref.Name)
		}
	}
	if diff := cmp.Diff([]string{"Node n1"}, local); diff != "" {
		t.Errorf("local (-want +got):\n%s", diff)
	}
}
