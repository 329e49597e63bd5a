package calc

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

func TestProfilesThatDoNotExistAreProblemsByWhatTheyStandFor(t *testing.T) {
	of := func(profiles ...string) func(*model.Endpoint) {
		return func(ep *model.Endpoint) { ep.Profiles = profiles }
	}
	r := newRig(t, pod("shop/web", "10.0.0.2", of("kns.shop", "ksa.shop.default", "custom")))
	want := []Problem{
		{MissingNamespace, id("shop/web"), model.PolicyKey{}, "shop", "endpoint shop/web", "Namespace shop does not exist: traffic that no policy decides is denied"},
		{MissingProfile, id("shop/web"), model.PolicyKey{}, "shop", "endpoint shop/web", "profile custom does not exist"},
	}
	if diff := cmp.Diff(want, r.graph.Problems()); diff != "" {
		t.Error(diff)
	}
	r.apply(model.ProfileUpdate{Name: model.NamespaceProfile("shop"), Profile: &model.Profile{}},
		model.ProfileUpdate{Name: "custom", Profile: &model.Profile{}})
	if got := r.graph.Problems(); len(got) != 0 {
		t.Errorf("problems %v", got)
	}
}

// A policy in a namespace that is misspelt applies to no pod, which its author does not notice.
func TestPoliciesInNamespacesThatDoNotExistAreProblems(t *testing.T) {
	policy := func(namespace string) model.PolicyUpdate {
		return model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindKubernetesNetworkPolicy, Namespace: namespace, Name: "db"},
			Policy: &model.Policy{Tier: model.TierDefault, Selector: selector.All(), AppliesIngress: true}}
	}
	r := newRig(t, policy("shop"), policy("shpo"))
	if got := r.graph.Problems(); len(got) != 0 {
		t.Errorf("problems of policies without any Namespace: %v", got)
	}
	r.apply(namespace("shop"))
	want := []Problem{{MissingNamespace, model.EndpointID{}, policy("shpo").Key, "shpo", "NetworkPolicy shpo/db",
		"Namespace shpo does not exist: a policy applies to pods of its own namespace only"}}
	if diff := cmp.Diff(want, r.graph.Problems()); diff != "" {
		t.Error(diff)
	}
	r.apply(namespace("shpo"))
	if got := r.graph.Problems(); len(got) != 0 {
		t.Errorf("problems %v", got)
	}
}

// Nothing calculates host endpoints yet, and an id without a kind names nothing. Neither is enforced in silence as if it
// were the pod of that name, nor takes its place.
func TestEndpointsOfOtherKindsAreReportedAndNotEnforced(t *testing.T) {
	r := newRig(t, namespace("shop"), pod("shop/web", "10.0.0.2"))
	other := func(id model.EndpointID, node string) model.EndpointUpdate {
		return model.EndpointUpdate{ID: id, Endpoint: &model.Endpoint{Node: node, Iface: "eth0", Addrs: addrs("192.0.2.1")}}
	}
	host, none := model.HostID("eth0"), model.WorkloadID("shop", "web")
	none.Kind = 0
	if c := r.apply(other(host, thisNode), other(none, thisNode), other(model.HostID("far"), "other")); len(c.Endpoints) != 0 {
		t.Errorf("changes %v", c.Endpoints)
	}
	want := []Problem{
		{UnknownEndpoint, host, model.PolicyKey{}, "", "endpoint host:eth0", "endpoints of this kind (host) are not enforced"},
		{UnknownEndpoint, none, model.PolicyKey{}, "shop", "endpoint shop/web", "endpoints of this kind (endpoint kind 0) are not enforced"},
	}
	if diff := cmp.Diff(want, r.graph.Problems()); diff != "" {
		t.Error(diff)
	}
	if _, found := r.graph.EndpointByAddr(addrs("192.0.2.1")[0]); found || r.endpoint("shop/web") == nil {
		t.Error("an endpoint of another kind has an address, or has taken a pod's place")
	}
	r.apply(model.EndpointUpdate{ID: host}, model.EndpointUpdate{ID: none})
	if got := r.graph.Problems(); len(got) != 0 {
		t.Errorf("problems %v", got)
	}
}
