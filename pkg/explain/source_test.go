package explain_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/model"
)

// gateway is a pod that lists further sources, and may be judged by its own address.
func gateway(t *testing.T) *explain.State {
	t.Helper()
	addrs := func(texts ...string) (list []netip.Addr) {
		for _, a := range texts {
			list = append(list, netip.MustParseAddr(a))
		}
		return list
	}
	allow := []model.Rule{{Action: model.Allow}}
	return explain.NewState([]model.Update{
		model.EndpointUpdate{ID: model.WorkloadID("shop", "gw"), Endpoint: &model.Endpoint{Node: "n", Addrs: addrs("10.0.0.1", "10.0.0.9"), Labels: map[string]string{"app": "gw"},
			Profiles: []string{"kns.shop"}, Sources: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("224.0.0.0/4")}}},
		model.EndpointUpdate{ID: model.WorkloadID("shop", "db"), Endpoint: &model.Endpoint{Node: "n", Addrs: addrs("10.0.0.2"), Labels: map[string]string{"app": "db"}, Profiles: []string{"kns.shop"}}},
		model.NodeUpdate{Name: "n", Node: &model.Node{Addrs: addrs("10.0.0.200")}},
		model.ServiceUpdate{Key: model.ServiceKey{Namespace: "shop", Name: "s"}, Service: &model.Service{Cluster: addrs("10.0.0.100"), External: addrs("203.0.113.100")}},
		model.ProfileUpdate{Name: "kns.shop", Profile: &model.Profile{Ingress: allow, Egress: allow}},
		model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "db"}, Policy: &model.Policy{Tier: "default", Order: 1,
			Selector: mustSelector(t, "app == 'db'"), AppliesIngress: true,
			Ingress: []model.Rule{{Action: model.Allow, Source: model.Entity{Nets: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/25")}}}}}},
		// Of its own side, policy of a gateway sees its own address.
		model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "gw"}, Policy: &model.Policy{Tier: "default", Order: 1,
			Selector: mustSelector(t, "app == 'gw'"), AppliesEgress: true, AppliesIngress: true,
			Egress: []model.Rule{{Action: model.Allow, Source: model.Entity{Nets: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32")}}}}}},
	})
}

func TestExplainAPacketFromAFurtherSource(t *testing.T) {
	state := gateway(t)
	for _, test := range []struct{ source, dst, want string }{
		{"203.0.113.7", "shop/db:80", "allow"},
		{"203.0.113.200", "shop/db:80", "deny"},
		{"203.0.113.100", "shop/db:80", "allow"}, // the external address of a Service has no owner
		{"203.0.113.7", "198.51.100.1:80", "allow"},
		{"203.0.113.7", "10.0.0.1:80", "deny"}, // D-16 does not hold
		{"10.0.0.9", "10.0.0.1:80", "allow"},   // its own address is no further source
	} {
		r, err := explain.ParseRequest("shop/gw", test.dst)
		if err != nil {
			t.Fatal(err)
		}
		r.SourceAddr = netip.MustParseAddr(test.source)
		e, err := state.Explain(r)
		if err != nil {
			t.Fatal(err)
		}
		if e.Verdict != test.want || !strings.HasPrefix(e.Packet, test.source+" -> ") {
			t.Errorf("from %s to %s: %s, %s", test.source, test.dst, e.Verdict, e.Packet)
		}
		if further := test.source != "10.0.0.9"; strings.Contains(e.Caveat, "further") != further {
			t.Errorf("from %s to %s: caveat %q", test.source, test.dst, e.Caveat)
		}
	}
}

func TestExplainSaysWhyASourceIsSpoofed(t *testing.T) {
	state := gateway(t)
	for _, test := range []struct{ src, source, want string }{
		{"shop/gw", "192.0.2.1", "packets of shop/gw from 192.0.2.1 are dropped as spoofed: the pod lists no further source with that address, or its agent runs without --workload-source-spoofing Any"},
		{"shop/gw", "10.0.0.2", "packets of shop/gw from 10.0.0.2 are dropped as spoofed: the address is that of shop/db"},
		{"shop/gw", "10.0.0.200", "packets of shop/gw from 10.0.0.200 are dropped as spoofed: the address is that of node n (10.0.0.200)"},
		{"shop/gw", "10.0.0.100", "packets of shop/gw from 10.0.0.100 are dropped as spoofed: it is the cluster address of Service shop/s"},
		{"shop/gw", "224.0.0.1", "packets of shop/gw from 224.0.0.1 are dropped as spoofed: no packet of a pod may be from there, whatever it lists"},
		{"192.0.2.7", "203.0.113.7", "only pods have further sources, and 192.0.2.7 is none"},
		{"shop/gw", "2001:db8::1", "shop/gw has no IPv6 address"},
	} {
		r, err := explain.ParseRequest(test.src, "shop/db:80")
		if err != nil {
			t.Fatal(err)
		}
		r.SourceAddr = netip.MustParseAddr(test.source)
		if _, err = state.Explain(r); err == nil || err.Error() != test.want {
			t.Errorf("%s from %s: %v", test.src, test.source, err)
		}
	}
}
