package calc

import (
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

// A pod in the network of its host is no endpoint. The graph knows its node until the pod has gone or has become an endpoint.
func TestTheNodeOfAPodInTheNetworkOfItsHostIsKnown(t *testing.T) {
	pod := model.WorkloadID("shop", "proxy")
	g := New("n1")
	for _, step := range []struct {
		what    string
		updates []model.Update
		want    string
	}{
		{"nothing is known", []model.Update{model.InSync{}}, ""},
		{"it comes", []model.Update{model.EndpointUpdate{ID: pod, Endpoint: &model.Endpoint{Node: "n2", HostNetwork: true}}}, "n2"},
		{"it comes again on another node", []model.Update{model.EndpointUpdate{ID: pod, Endpoint: &model.Endpoint{Node: "n3", HostNetwork: true}}}, "n3"},
		{"nothing changes", nil, "n3"},
		{"it becomes an endpoint", []model.Update{model.EndpointUpdate{ID: pod, Endpoint: &model.Endpoint{Node: "n3"}}}, ""},
		{"it comes again", []model.Update{model.EndpointUpdate{ID: pod, Endpoint: &model.Endpoint{Node: "n2", HostNetwork: true}}}, "n2"},
		{"it is deleted at last", []model.Update{model.EndpointUpdate{ID: pod, Endpoint: &model.Endpoint{Node: "n3", HostNetwork: true}}, model.EndpointUpdate{ID: pod}}, ""},
	} {
		g.Apply(step.updates)
		g.Flush()
		if got := g.HostOf(pod); got != step.want {
			t.Errorf("%s: node %q, want %q", step.what, got, step.want)
		}
	}
	if n := len(g.nodeNames.byName) + len(g.hosted) + g.endpoints.Len(); n != 0 {
		t.Errorf("something of the pod is left: %+v", g.endpointTable)
	}
}
