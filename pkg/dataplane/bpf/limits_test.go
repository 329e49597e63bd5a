package bpf

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

var evil = model.WorkloadID("evil", "m")

// tenant is the pod evil/m on this node and a policy of its own, whose every rule is about another address.
func tenant(rules int) []model.Update {
	policy := &model.Policy{Tier: model.TierDefault, Order: 1, Selector: selector.Equal("app", "m"), AppliesIngress: true}
	for i := range rules {
		a := netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)})
		policy.Ingress = append(policy.Ingress, model.Rule{Action: model.Allow, Index: i,
			Source: model.Entity{Nets: []netip.Prefix{netip.PrefixFrom(a, 32)}}})
	}
	return []model.Update{
		model.EndpointUpdate{ID: evil, Endpoint: &model.Endpoint{Node: "n", Iface: "cali2",
			Addrs: []netip.Addr{netip.MustParseAddr("10.0.9.1")}, Labels: map[string]string{"app": "m"}}},
		model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "evil", Name: "m"}, Policy: policy},
	}
}

// noTenant takes the policy away.
func noTenant() model.Update {
	return model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: "evil", Name: "m"}}
}

// wantHeld checks what is said of evil/m.
func (n *node) wantHeld(t *testing.T, when, what string) {
	t.Helper()
	for _, s := range n.Endpoints() {
		if s.ID == evil {
			if !strings.HasPrefix(s.Reason, what) || (s.Reason == "") != (what == "") {
				t.Errorf("%s: evil/m %q, want %q", when, s.Reason, what)
			}
			return
		}
	}
	t.Errorf("%s: nothing is said of evil/m", when)
}

// smallMaps are maps that one tenant's policies overflow.
var smallMaps = map[string]uint32{bpf.MargayMapSetNames: 64, bpf.MargayMapClassSets: 64}

// One tenant's policies that are too many for the node's maps hold up no change of the others, neither on a node that
// enforces something nor on one that starts with them.
func TestPoliciesOfOneTenantHoldUpNobodyElse(t *testing.T) {
	testutil.Privileged(t)
	for _, first := range []bool{false, true} {
		t.Run(fmt.Sprintf("first start %v", first), func(t *testing.T) {
			n := openNode(t, testutil.BPFFS(t), smallMaps)
			defer mustClose(t, n.BPF)
			want := "keeps its last policy: "
			if first {
				n.graph.Apply(tenant(300))
				want = "closed: "
			} else {
				n.mustApply(t, append(tenant(1), stage{role: "friend", allow: []string{"friend"}, ports: []uint16{22}}.updates()...)...)
				n.graph.Apply(tenant(300))
			}
			for _, port := range []uint16{80, 443} {
				held(t, n.apply(stage{role: "friend", allow: []string{"friend"}, ports: []uint16{port}}.updates()...), "evil/m")
				if !n.host.Guarded || n.host.Attached[1000] == "" {
					t.Fatal("the node is not guarded, or endpoint a has no programs")
				}
				if !passes(t, n.BPF, "10.0.0.1", port) || passes(t, n.BPF, "10.0.0.1", 523-port) || passes(t, n.BPF, "10.0.0.1", 22) {
					t.Errorf("port %d: the policy of a is not the new one", port)
				}
				n.wantHeld(t, fmt.Sprint("port ", port), want)
			}
			n.mustApply(t, noTenant())
			n.wantHeld(t, "without the policy", "")
		})
	}
}

// held checks that everything is enforced but what the error says, in which the name is.
func held(t *testing.T, err error, name string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("error %v, want one that names %s", err, name)
	}
}

// Names are for people: without room for them policy is enforced all the same, also by an agent that starts with what is
// there of them.
func TestNamesThatDoNotFitHoldUpNoPolicy(t *testing.T) {
	testutil.Privileged(t)
	dir := testutil.BPFFS(t)
	entries := map[string]uint32{bpf.MargayMapSetNames: 4, bpf.MargayMapRuleNames: 4}
	updates := func(port uint16) []model.Update {
		return append(tenant(12), stage{role: "friend", allow: []string{"friend"}, ports: []uint16{port}}.updates()...)
	}
	first := openNode(t, dir, entries)
	for _, port := range []uint16{80, 443} {
		first.mustApply(t, updates(port)...)
		if !passes(t, first.BPF, "10.0.0.1", port) || passes(t, first.BPF, "10.0.0.2", port) {
			t.Errorf("port %d: the policy of a is not enforced", port)
		}
	}
	if first.state.names.Missing() == 0 {
		t.Fatal("all names fit: the test tests nothing")
	}
	mustClose(t, first.BPF)
	second := openNode(t, dir, entries)
	defer mustClose(t, second.BPF)
	second.mustApply(t, updates(22)...)
	if !passes(t, second.BPF, "10.0.0.1", 22) || passes(t, second.BPF, "10.0.0.1", 443) || passes(t, second.BPF, "10.0.0.2", 22) {
		t.Error("after a restart the policy of a is not enforced")
	}
	second.mustApply(t, noTenant())
	if n := second.state.names.Missing(); n != 0 {
		t.Errorf("%d names are missing although there is room", n)
	}
}
