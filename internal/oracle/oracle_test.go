package oracle_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/margay-project/margay/internal/oracle"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// What the evaluators say of policy is proven by test/corpus; here is what no corpus file reaches.

var (
	web = model.WorkloadID("shop", "web")
	db  = model.WorkloadID("shop", "db")

	webAddr = netip.MustParseAddr("10.0.0.1")
	dbAddr  = netip.MustParseAddr("10.0.0.2")
	outside = netip.MustParseAddr("203.0.113.1")

	denyDB = model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "deny-db"}
)

func updates() []model.Update {
	allow := []model.Rule{{Action: model.Allow}}
	return []model.Update{
		model.ProfileUpdate{Name: "open", Profile: &model.Profile{Ingress: allow, Egress: allow}},
		model.EndpointUpdate{ID: web, Endpoint: &model.Endpoint{Addrs: []netip.Addr{webAddr}, Profiles: []string{"open"}}},
		model.EndpointUpdate{ID: db, Endpoint: &model.Endpoint{
			Addrs: []netip.Addr{dbAddr}, Profiles: []string{"open"}, Labels: map[string]string{"app": "db"},
		}},
		model.PolicyUpdate{Key: denyDB, Policy: &model.Policy{
			Tier: model.TierDefault, Selector: selector.Equal("app", "db"), AppliesIngress: true,
		}},
	}
}

func tcp(src, dst netip.Addr) model.Packet {
	return model.Packet{Src: src, Dst: dst, Protocol: model.ProtoTCP, SrcPort: 40000, DstPort: 80}
}

func TestFlowJudgesTheEndsThatAreEndpoints(t *testing.T) {
	c := oracle.New(updates())
	tests := []struct {
		name            string
		pkt             model.Packet
		egress, ingress string // empty: no such leg
		allow           bool
	}{
		{"both", tcp(webAddr, dbAddr), "profile/open#egress[0]", "default/gnp/deny-db#end-of-tier", false},
		{"only the source", tcp(dbAddr, outside), "profile/open#egress[0]", "", true},
		{"only the destination", tcp(outside, dbAddr), "", "default/gnp/deny-db#end-of-tier", false},
		{"neither", tcp(outside, outside), "", "", true},
		{"one that is both", tcp(dbAddr, dbAddr), "self", "self", true},
	}
	text := func(v *model.Verdict) string {
		if v == nil {
			return ""
		}
		return v.By.String()
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := c.Flow(test.pkt)
			if text(f.Egress) != test.egress || text(f.Ingress) != test.ingress || f.Allow() != test.allow {
				t.Errorf("egress %q, ingress %q, allow %v; want %q, %q, %v",
					text(f.Egress), text(f.Ingress), f.Allow(), test.egress, test.ingress, test.allow)
			}
		})
	}
}

func TestAbsentObjectsAreGone(t *testing.T) {
	c := oracle.New(append(updates(), model.PolicyUpdate{Key: denyDB}, model.EndpointUpdate{ID: web}))
	if diff := cmp.Diff([]model.EndpointID{db}, c.Endpoints()); diff != "" {
		t.Error(diff)
	}
	if v := c.Judge(db, model.Ingress, tcp(outside, dbAddr)); !v.Allow {
		t.Errorf("the deleted policy still denies: %v", v.By)
	}
	if v := c.Judge(web, model.Egress, tcp(webAddr, outside)); v.Allow {
		t.Errorf("an endpoint that is not known lets a packet pass: %v", v.By)
	}
}

func TestLaterUpdateReplacesEarlier(t *testing.T) {
	moved := model.EndpointUpdate{ID: db, Endpoint: &model.Endpoint{Addrs: []netip.Addr{dbAddr}, Profiles: []string{"open"}}}
	c := oracle.New(append(updates(), moved))
	if v := c.Judge(db, model.Ingress, tcp(outside, dbAddr)); !v.Allow {
		t.Errorf("a label that is gone still selects: %v", v.By)
	}
}

func TestPodsOutsideThePodNetworkHaveNoSay(t *testing.T) {
	pod := func(name string, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec:       corev1.PodSpec{NodeName: "n1"},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"},
		}
		change(p)
		return p
	}
	k := oracle.Kubernetes{
		Pods: []*corev1.Pod{
			pod("running", func(*corev1.Pod) {}),
			pod("host", func(p *corev1.Pod) { p.Spec.HostNetwork = true }),
			pod("failed", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }),
			pod("pending", func(p *corev1.Pod) { p.Status.PodIP = "" }),
			pod("unscheduled", func(p *corev1.Pod) { p.Spec.NodeName = "" }),
		},
		Policies: []*networkingv1.NetworkPolicy{},
	}
	for _, p := range append(k.Pods, pod("absent", func(*corev1.Pod) {})) {
		got := k.Allows(model.WorkloadID("shop", p.Name), model.Egress, tcp(webAddr, outside))
		if want := p.Name == "running"; got != want {
			t.Errorf("%s: allow is %v, want %v", p.Name, got, want)
		}
	}
}
