package calc

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

func TestSizesAreThoseOfTheLastFlush(t *testing.T) {
	g := New("n")
	web := map[string]string{"app": "web"}
	policy := &model.Policy{Tier: model.TierDefault, Order: 1, Selector: selector.Equal("app", "web"), AppliesIngress: true,
		Ingress: []model.Rule{{Action: model.Allow, Source: model.Entity{Selector: selector.Equal("app", "web")}}}}
	g.Apply([]model.Update{
		model.EndpointUpdate{ID: model.WorkloadID("t", "here"), Endpoint: &model.Endpoint{Node: "n", Iface: "cali1",
			Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Labels: web}},
		model.EndpointUpdate{ID: model.WorkloadID("t", "there"), Endpoint: &model.Endpoint{Node: "other",
			Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")}, Labels: web}},
		model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "p"}, Policy: policy},
		model.ProfileUpdate{Name: "kns.t", Profile: &model.Profile{}},
		model.InSync{},
	})
	g.Flush()
	// Besides the policy's set there are the two reserved ones, which are empty.
	want := Sizes{LocalEndpoints: 1, RemoteEndpoints: 1, Policies: 1, Profiles: 1, Sets: 3, Members: 3}
	if diff := cmp.Diff(want, g.Sizes()); diff != "" {
		t.Error(diff)
	}
}
