package explain_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/model"
)

// greedy is a cluster in which a tenant's Service lists addresses of others as external ones: the cluster address of shop/dns, the pod shop/web,
// and a node that has two addresses. Policy denies what comes to the tenant's backend, and connections to the node's second address.
func greedy(t *testing.T) *explain.State {
	t.Helper()
	list := func(texts ...string) (all []netip.Addr) {
		for _, a := range texts {
			all = append(all, netip.MustParseAddr(a))
		}
		return all
	}
	allow := []model.Rule{{Action: model.Allow}}
	updates := []model.Update{
		model.ProfileUpdate{Name: "kns.shop", Profile: &model.Profile{Ingress: allow, Egress: allow}},
		model.NodeUpdate{Name: "n", Node: &model.Node{Addrs: list("192.168.0.1", "203.0.113.10")}},
		model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "out"}, Policy: &model.Policy{Tier: "default", Order: 1,
			Selector: mustSelector(t, "app == 'web'"), AppliesEgress: true, Egress: []model.Rule{
				{Action: model.Deny, Destination: model.Entity{Nets: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("10.0.0.66/32")}}},
				{Action: model.Allow, Index: 1}}}},
	}
	pod := func(name string, addrs ...netip.Addr) {
		updates = append(updates, model.EndpointUpdate{ID: model.WorkloadID("shop", name), Endpoint: &model.Endpoint{Node: "n2", Addrs: addrs,
			Labels: map[string]string{"app": name, "statefulset.kubernetes.io/pod-name": name}, Profiles: []string{"kns.shop"}}})
	}
	for name, addr := range map[string]string{"web": "10.0.0.1", "dns": "10.0.0.2", "evil": "10.0.0.66", "out-1": "10.0.0.3"} {
		pod(name, list(addr)...)
	}
	pod("out-2")
	pod("lost", list("192.168.0.1", "10.96.0.66")...)  // a node's, and a Service's
	for _, name := range []string{"twin", "younger"} { // the elder owns the address
		updates = append(updates, model.EndpointUpdate{ID: model.WorkloadID("shop", name), Endpoint: &model.Endpoint{Node: "n2", Addrs: list("10.0.0.9"),
			Created: map[string]uint32{"twin": 1, "younger": 2}[name], Profiles: []string{"kns.shop"}}})
	}
	for i := range 70 {
		pod(fmt.Sprintf("db-%d", i), netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}))
	}
	service := func(name string, port uint16, backends []netip.Addr, s model.Service) {
		key := model.ServiceKey{Namespace: "shop", Name: name}
		ports := []model.NamedPort{{Protocol: model.ProtoTCP, Port: port}}
		s.Ports = ports
		updates = append(updates, model.ServiceUpdate{Key: key, Service: &s}, model.EndpointSliceUpdate{ID: model.EndpointSliceID{Namespace: "shop", Name: name},
			Slice: &model.EndpointSlice{Service: key, Addrs: backends, Ports: ports}})
	}
	service("dns", 53, list("10.0.0.2"), model.Service{Cluster: list("10.96.0.10")})
	service("evil", 53, list("10.0.0.66"), model.Service{Cluster: list("10.96.0.66"), External: list("10.96.0.10", "10.0.0.2", "192.168.0.1", "198.51.100.1")})
	service("other", 80, list("10.0.0.2"), model.Service{Cluster: list("10.96.0.67"), External: list("198.51.100.1")})
	return explain.NewState(updates)
}

// An address is first that of its owner, though a tenant's Service lists it as an external one.
func TestAnAddressIsFirstItsOwners(t *testing.T) {
	state := greedy(t)
	for _, test := range []struct{ src, dst, verdict, packet, says string }{
		{"shop/web", "10.96.0.10:53", "allow", "10.0.0.1 -> 10.0.0.2:53 tcp", "Service shop/dns"},
		{"shop/web", "10.0.0.2:8080", "allow", "10.0.0.1 -> 10.0.0.2:8080 tcp", ""},
		{"shop/web", "10.0.0.2:53", "deny", "10.0.0.1 -> 10.0.0.66:53 tcp", "Service shop/evil"}, // kube-proxy translates it
		{"shop/web", "192.168.0.1:6443", "allow", "10.0.0.1 -> 192.168.0.1:6443 tcp", ""},
		{"10.0.0.2", "shop/web:80", "allow", "10.0.0.2 -> 10.0.0.1:80 tcp", ""},
		{"192.168.0.1", "shop/web:80", "allow", "192.168.0.1 -> 10.0.0.1:80 tcp", ""},
		{"shop/web", "198.51.100.1:80", "allow", "10.0.0.1 -> 10.0.0.2:80 tcp", "Service shop/other"},
		{"shop/web", "198.51.100.1:53", "deny", "10.0.0.1 -> 10.0.0.66:53 tcp", "Service shop/evil"},
	} {
		for range 5 { // maps have no order
			e := explainIn(t, state, test.src, test.dst)
			if e.Verdict != test.verdict || e.Packet != test.packet || !strings.Contains(e.Note, test.says) {
				t.Errorf("%s -> %s: %s, %s, %q; want %s, %s, %q", test.src, test.dst, e.Verdict, e.Packet, e.Note, test.verdict, test.packet, test.says)
			}
		}
	}
	if e := explainIn(t, state, "shop/web", "10.0.0.2"); !strings.Contains(e.Note, "also an external one of Service shop/evil") || e.Destination.Pod != "dns" {
		t.Errorf("about every port of a pod's address: %q, %+v", e.Note, e.Destination)
	}
	r, err := explain.ParseRequest("198.51.100.1", "shop/web:80")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := state.Explain(r); err == nil || !strings.Contains(err.Error(), "is an address of Service shop/evil, which opens no connections") {
		t.Errorf("the source is an external address that no pod or node has: %v", err)
	}
}

// Allow says that all that was asked about is allowed. What is not explained is said.
func TestWhatIsNotExplainedIsNotAllowed(t *testing.T) {
	state := greedy(t)
	for dst, want := range map[string]struct {
		answers int
		note    string
	}{
		"node/n:22":       {2, ""},
		"shop/sts/db:80":  {64, "only 64 of 70 pairs are explained"},
		"shop/sts/out:80": {1, "not explained: shop/out-2, which owns no address now"},
	} {
		e := explainIn(t, state, "shop/web", dst)
		if e.Verdict != explain.VerdictMixed || len(e.Answers) != want.answers || !strings.Contains(e.Note, want.note) {
			t.Errorf("%s: %s with %d answers, %q", dst, e.Verdict, len(e.Answers), e.Note)
		}
	}
}

// Whose an address is that a pod has and does not own is said.
func TestOfAPodWithoutItsAddressTheOwnerIsNamed(t *testing.T) {
	state := greedy(t)
	for pod, want := range map[string]string{
		"shop/younger": "shop/younger owns no address now (10.0.0.9 belongs to shop/twin), so no policy can be evaluated for it",
		"shop/lost":    "shop/lost owns no address now (10.96.0.66 is the cluster address of Service shop/evil, 192.168.0.1 belongs to node n), so no policy can be evaluated for it",
		"shop/out-2":   "shop/out-2 owns no address now, so no policy can be evaluated for it",
	} {
		r, err := explain.ParseRequest(pod, "shop/web:80")
		if err != nil {
			t.Fatal(err)
		}
		if e, err := state.Explain(r); err == nil || err.Error() != want {
			t.Errorf("got  %+v, %v\nwant %s", e, err, want)
		}
	}
}

func explainIn(t *testing.T, state *explain.State, src, dst string) *explain.Explanation {
	t.Helper()
	r, err := explain.ParseRequest(src, dst)
	if err != nil {
		t.Fatal(err)
	}
	e, err := state.Explain(r)
	if err != nil {
		t.Fatalf("%s -> %s: %v", src, dst, err)
	}
	return e
}
