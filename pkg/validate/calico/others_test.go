package calico_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"net/netip"
	"strings"

	"github.com/margay-project/margay/pkg/model"
)

func TestTier(t *testing.T) {
	for name, tt := range map[string]struct {
		name, spec string
		want       model.Tier
	}{
		"order":              {"sec", "order: 10", model.Tier{Order: 10, Default: model.Deny}},
		"no order":           {"sec", "", model.Tier{Order: model.NoOrder, Default: model.Deny}},
		"pass":               {"sec", "order: 1.5, defaultAction: Pass", model.Tier{Order: 1.5, Default: model.Pass}},
		"built in":           {"kube-admin", "order: 1000, defaultAction: Pass", model.Tier{Order: 1000, Default: model.Pass}},
		"built in, no order": {"default", "", model.Tier{Order: model.NoOrder, Default: model.Deny}},
		"an older release's": {"adminnetworkpolicy", "order: 1000", model.Tier{Order: 1000, Default: model.Deny}},
	} {
		t.Run(name, func(t *testing.T) {
			d := parse(t, "Tier", "name: "+tt.name, tt.spec)
			want := []model.Update{model.TierUpdate{Name: tt.name, Tier: &tt.want}}
			if diff := cmp.Diff(want, d.Updates); diff != "" || len(d.Problems) > 0 {
				t.Errorf("(-want +got):\n%s%s", diff, problemText(d))
			}
		})
	}
}

var prefixes = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

func TestNetworkSets(t *testing.T) {
	nets := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::/32")}
	spec := "nets: ['2001:db8::1/32', 192.0.2.1, 10.1.2.3/8, 10.0.0.0/8]"
	d := parse(t, "NetworkSet", "name: partners, namespace: shop, labels: {role: partner}", spec)
	want := model.NetworkSetUpdate{ID: model.NetworkSetID{Namespace: "shop", Name: "partners"}, Set: &model.NetworkSet{
		Nets: nets, Labels: map[string]string{"role": "partner", "projectcalico.org/namespace": "shop"}, Profiles: []string{"kns.shop"}}}
	if diff := cmp.Diff([]model.Update{want}, d.Updates, prefixes); diff != "" || len(d.Problems) > 0 {
		t.Errorf("(-want +got):\n%s%s", diff, problemText(d))
	}
	d = parse(t, "crd.projectcalico.org/v1 GlobalNetworkSet", "name: partners, labels: {role: partner}", spec)
	want = model.NetworkSetUpdate{ID: model.NetworkSetID{Name: "partners"}, Set: &model.NetworkSet{Nets: nets, Labels: map[string]string{"role": "partner"}}}
	if diff := cmp.Diff([]model.Update{want}, d.Updates, prefixes); diff != "" || len(d.Problems) > 0 {
		t.Errorf("(-want +got):\n%s%s", diff, problemText(d))
	}
}

// Newer releases of Calico keep the labels of sets of the old group in an annotation.
func TestLabelsInAnAnnotation(t *testing.T) {
	const metadata = `name: a, labels: {role: former, team: a}, annotations: {projectcalico.org/metadata: '{"labels":{"role":"feed","pcns.team":"ops"}}'}`
	for kind, want := range map[string]map[string]string{
		"crd.projectcalico.org/v1 GlobalNetworkSet": {"role": "feed", "team": "a"},
		"GlobalNetworkSet":                          {"role": "former", "team": "a"},
	} {
		d := parse(t, kind, metadata, "")
		u, _ := d.Updates[0].(model.NetworkSetUpdate)
		if diff := cmp.Diff(want, u.Set.Labels); diff != "" {
			t.Errorf("%s (-want +got):\n%s%s", kind, diff, problemText(d))
		}
	}
	d := parse(t, "crd.projectcalico.org/v1 GlobalNetworkSet", `name: a, annotations: {projectcalico.org/metadata: '{"labels":1}'}`, "")
	if d.OK || len(d.Problems) != 1 || !strings.Contains(d.Problems[0].String(), "the labels that Calico keeps there cannot be read: ") {
		t.Errorf("an annotation that cannot be read: %v", d.Problems)
	}
}

// A set cannot give itself the labels of another namespace, of a service account, or of pods: rules would take its
// addresses for theirs.
func TestANetworkSetCannotPassForPods(t *testing.T) {
	labels := "labels: {pcns.team: ops, pcsa.role: admin, projectcalico.org/orchestrator: k8s, projectcalico.org/serviceaccount: root, a: b}"
	for kind, want := range map[string]map[string]string{
		"NetworkSet":       {"a": "b", "projectcalico.org/namespace": "shop"},
		"GlobalNetworkSet": {"a": "b"},
	} {
		metadata := "name: a, " + labels
		if kind == "NetworkSet" {
			metadata += ", namespace: shop"
		}
		d := parse(t, kind, metadata, "")
		u, _ := d.Updates[0].(model.NetworkSetUpdate)
		if diff := cmp.Diff(want, u.Set.Labels); diff != "" || len(d.Problems) != 4 {
			t.Errorf("%s (-want +got):\n%s%s", kind, diff, problemText(d))
		}
	}
}

func TestProfile(t *testing.T) {
	d := parse(t, "Profile", "name: kns.shop", "labelsToApply: {pcns.env: p}, ingress: [{action: Pass, source: {notSelector: has(a)}}], egress: [{action: Log}]")
	u, _ := d.Updates[0].(model.ProfileUpdate)
	if u.Name != "kns.shop" || u.Profile == nil || len(d.Problems) > 0 {
		t.Fatalf("%+v\n%s", u, problemText(d))
	}
	got := fmt.Sprint(u.Profile.Labels, "\n", rulesText(u.Profile.Ingress, u.Profile.Egress))
	if want := "map[pcns.env:p]\nin[0] Pass from !{has(a)}\nout[0] Log\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWorkloadEndpoint(t *testing.T) {
	d := parse(t, "WorkloadEndpoint", "name: n1-os-vm1-tap0, namespace: shop, labels: {app: vm, pcns.team: ops}",
		`orchestrator: openstack, workload: vm1, node: n1, endpoint: tap0, interfaceName: tap0, mac: 'ca:fe:1d:52:bb:e9',
 ipNetworks: [10.65.0.2/32, '2001:db8::2/128', 10.65.0.2, 127.0.0.1/32], ipv4Gateway: 10.65.0.1, profiles: [prof1], serviceAccountName: runner,
 ports: [{name: http, protocol: TCP, port: 8080}, {protocol: 17, port: 53, hostPort: 53}]`)
	want := model.EndpointUpdate{ID: model.WorkloadID("shop", "n1-os-vm1-tap0"), Endpoint: &model.Endpoint{
		Node: "n1", Iface: "tap0", Addrs: []netip.Addr{netip.MustParseAddr("10.65.0.2"), netip.MustParseAddr("2001:db8::2")},
		Labels: map[string]string{"app": "vm", "projectcalico.org/namespace": "shop", "projectcalico.org/orchestrator": "openstack",
			"projectcalico.org/serviceaccount": "runner"},
		Profiles: []string{"prof1"}, Ports: []model.NamedPort{{Name: "http", Protocol: model.ProtoTCP, Port: 8080}},
	}}
	if diff := cmp.Diff([]model.Update{want}, d.Updates, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(d.Problems) != 1 { // the loopback address
		t.Error(problemText(d))
	}
	d = parse(t, "WorkloadEndpoint", "name: a, namespace: shop", "node: n1, interfaceName: tap0")
	if u, _ := d.Updates[0].(model.EndpointUpdate); !d.OK || u.Endpoint != nil {
		t.Errorf("without an address it is no endpoint: %+v\n%s", u, problemText(d))
	}
}
