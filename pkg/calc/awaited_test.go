package calc

import (
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

// guarded are a pod of this node, a policy of its namespace that allows everything, and a policy of an administrator that denies it
// to namespaces of a team.
func guarded() []model.Update {
	open := model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "evil", Name: "open"}, Policy: &model.Policy{
		Tier: model.TierDefault, Selector: sel("projectcalico.org/namespace == 'evil'"), AppliesEgress: true, Egress: []model.Rule{{Action: model.Allow}}}}
	guard := model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "guard"}, Policy: &model.Policy{
		Tier: model.TierDefault, Order: -1, Selector: sel("pcns.team == 'evil'"), AppliesEgress: true, Egress: []model.Rule{{Action: model.Deny}}}}
	return []model.Update{pod("evil/x", "10.0.0.66"), open, guard, model.InSync{}}
}

func missing(g *Graph) (texts []string) {
	for _, p := range g.Problems() {
		if p.Kind == MissingNamespace {
			texts = append(texts, p.Object+": "+p.Text)
		}
	}
	return texts
}

// A pod that is known before its Namespace is not opened by policies of its own namespace while those that select it by labels of the
// Namespace do not apply yet.
func TestAPodIsNotEnforcedBeforeItsNamespaceIsKnown(t *testing.T) {
	id := model.WorkloadID("evil", "x")
	g := New(thisNode, AwaitNamespaces())
	g.Apply(guarded())
	if c := g.Flush(); len(c.Endpoints) != 0 {
		t.Fatalf("without its Namespace the pod is enforced: %+v", c.Endpoints)
	}
	if texts := missing(g); len(texts) != 1 || !strings.Contains(texts[0], "evil/x: Namespace evil is not known") || !strings.Contains(texts[0], "closed until it is") {
		t.Errorf("problems: %q", texts)
	}
	g.Apply([]model.Update{namespace("other")})
	if c := g.Flush(); len(c.Endpoints) != 0 {
		t.Fatalf("with another Namespace the pod is enforced: %+v", c.Endpoints)
	}
	g.Apply([]model.Update{namespace("evil", "team", "evil")})
	ep := g.Flush().Endpoints[id]
	if ep == nil || len(ep.Egress.Tiers) == 0 || !slices.ContainsFunc(ep.Egress.Tiers[0].Policies, func(p *model.PolicyRules) bool { return p.Key.Name == "guard" }) {
		t.Fatalf("with its Namespace the pod has %+v", ep)
	}
	if texts := missing(g); len(texts) != 0 || len(g.AwaitedPods()) != 0 {
		t.Errorf("problems in the end: %q, awaited %v", texts, g.AwaitedPods())
	}
	g.Apply([]model.Update{model.ProfileUpdate{Name: model.NamespaceProfile("evil")}, pod("evil/x", "10.0.0.67")})
	if ep := g.Flush().Endpoints[id]; ep == nil || ep.Addrs[0].String() != "10.0.0.67" {
		t.Errorf("a pod that changes after its Namespace has gone: %+v", ep)
	}
}

// A pod that leaves while it waits leaves nothing, one whose Namespace comes in the same flush does not wait, and without the option none does.
func TestOnlyPodsWithoutTheirNamespaceWait(t *testing.T) {
	id := model.WorkloadID("evil", "x")
	g := New(thisNode, AwaitNamespaces())
	g.Apply(append(guarded(), namespace("evil")))
	if c := g.Flush(); c.Endpoints[id] == nil {
		t.Error("a pod that comes with its Namespace waits")
	}
	g = New(thisNode, AwaitNamespaces())
	g.Apply(guarded())
	g.Flush()
	g.Apply([]model.Update{model.EndpointUpdate{ID: id}})
	g.Flush()
	g.Apply([]model.Update{namespace("evil")})
	if c := g.Flush(); len(c.Endpoints) != 0 || len(g.AwaitedPods()) != 0 {
		t.Errorf("a pod that has gone: %v, awaited %v", c.Endpoints, g.AwaitedPods())
	}
	g = New(thisNode)
	g.Apply(guarded())
	if c := g.Flush(); c.Endpoints[id] == nil {
		t.Error("without the option the pod waits")
	}
}
