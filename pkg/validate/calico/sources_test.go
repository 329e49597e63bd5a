package calico_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/validate/calico"
)

// TestFurtherSourcesOfWorkloadEndpoints: as of pods, by the same setting.
func TestFurtherSourcesOfWorkloadEndpoints(t *testing.T) {
	o := &calico.WorkloadEndpoint{Spec: calico.WorkloadEndpointSpec{
		Workload: calico.Workload{Node: "n1"}, Network: calico.Network{InterfaceName: "tap0", IPNetworks: []string{"10.0.0.1/32"}},
		AllowSpoofedSourcePrefixes: []string{"203.0.113.0/24", "x", "2001:db8::/64"}}}
	u, problems, ok := calico.Workloads{SourceSpoofing: true}.Convert(o)
	if want := []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8::/64")}; !ok || !slices.Equal(u.Endpoint.Sources, want) {
		t.Errorf("further sources %v, want %v; %v", u.Endpoint, want, problems)
	}
	if len(problems) != 1 || problems[0].Field != "spec.allowSpoofedSourcePrefixes" || problems[0].Reason != `"x" is not a CIDR; ignored` {
		t.Errorf("problems %v", problems)
	}
	u, problems, ok = calico.Workloads{}.Convert(o)
	if !ok || u.Endpoint.Sources != nil || len(problems) != 1 || !strings.Contains(problems[0].Reason, "Disabled") {
		t.Errorf("%v with the setting Disabled: %+v, %v", ok, u.Endpoint, problems)
	}
}
