package validate_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/margay-project/margay/pkg/model"
	. "github.com/margay-project/margay/pkg/validate"
)

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

func TestClusterObjects(t *testing.T) {
	allowAll := []model.Rule{{Action: model.Allow}}
	tests := map[string]struct {
		text string
		want model.Update
	}{
		"namespace": {
			"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {env: prod, projectcalico.org/name: x, kubernetes.io/metadata.name: z}}",
			model.ProfileUpdate{Name: "kns.shop", Profile: &model.Profile{
				Labels: map[string]string{"pcns.env": "prod", "pcns.projectcalico.org/name": "shop",
					"pcns.kubernetes.io/metadata.name": "shop"},
				Ingress: allowAll, Egress: allowAll,
			}},
		},
		"namespace without labels": {
			"apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}",
			model.ProfileUpdate{Name: "kns.shop", Profile: &model.Profile{
				Labels:  map[string]string{"pcns.projectcalico.org/name": "shop", "pcns.kubernetes.io/metadata.name": "shop"},
				Ingress: allowAll, Egress: allowAll,
			}},
		},
		"service account": {
			"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: runner, namespace: shop, labels: {team: a}}",
			model.ProfileUpdate{Name: "ksa.shop.runner", Profile: &model.Profile{
				Labels: map[string]string{"pcsa.team": "a", "pcsa.projectcalico.org/name": "runner"},
			}},
		},
		"node": {
			"apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {zone: a}}\nstatus:\n  addresses:\n" +
				"  - {type: Hostname, address: n1}\n  - {type: InternalIP, address: 192.0.2.1}\n" +
				"  - {type: ExternalIP, address: '2001:db8::1'}\n  - {type: InternalIP, address: 192.0.2.1}\n" +
				"  - {type: ExternalDNS, address: n1.example.com}",
			model.NodeUpdate{Name: "n1", Node: &model.Node{
				Addrs: addrs("192.0.2.1", "2001:db8::1"), Labels: map[string]string{"zone": "a"},
			}},
		},
		"service": {
			"apiVersion: v1\nkind: Service\nmetadata: {name: db, namespace: shop}\n" +
				"spec: {clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, 'fd00::1'], externalIPs: [192.0.2.7]}\n" +
				"status: {loadBalancer: {ingress: [{ip: 192.0.2.8}, {hostname: lb.example.com}]}}",
			model.ServiceUpdate{Key: model.ServiceKey{Namespace: "shop", Name: "db"}, Service: &model.Service{
				Cluster: addrs("10.96.0.1", "fd00::1"), External: addrs("192.0.2.7", "192.0.2.8"),
			}},
		},
		"service with the old field only": {
			"apiVersion: v1\nkind: Service\nmetadata: {name: db, namespace: shop}\nspec: {clusterIP: 10.96.0.1}",
			model.ServiceUpdate{Key: model.ServiceKey{Namespace: "shop", Name: "db"}, Service: &model.Service{
				Cluster: addrs("10.96.0.1"),
			}},
		},
		"service whose load balancer speaks for itself": {
			"apiVersion: v1\nkind: Service\nmetadata: {name: db, namespace: shop}\nspec: {clusterIP: 10.96.0.1}\n" +
				"status: {loadBalancer: {ingress: [{ip: 192.0.2.8, ipMode: Proxy}, {ip: 192.0.2.9, ipMode: VIP}]}}",
			model.ServiceUpdate{Key: model.ServiceKey{Namespace: "shop", Name: "db"}, Service: &model.Service{
				Cluster: addrs("10.96.0.1"), External: addrs("192.0.2.9"),
			}},
		},
		"headless service with external addresses, which nobody translates": {
			"apiVersion: v1\nkind: Service\nmetadata: {name: db, namespace: shop}\n" +
				"spec: {clusterIP: None, clusterIPs: [None], externalIPs: [192.0.2.7]}",
			model.ServiceUpdate{Key: model.ServiceKey{Namespace: "shop", Name: "db"}, Service: &model.Service{Headless: true}},
		},
		"headless service": {
			"apiVersion: v1\nkind: Service\nmetadata: {name: db, namespace: shop}\nspec: {clusterIP: None, clusterIPs: [None]}",
			model.ServiceUpdate{Key: model.ServiceKey{Namespace: "shop", Name: "db"}, Service: &model.Service{Headless: true}},
		},
		"endpoint slice": {
			"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n" +
				"metadata: {name: db-x, namespace: shop, labels: {kubernetes.io/service-name: db}}\n" +
				"endpoints:\n- {addresses: [10.0.0.1], conditions: {ready: true}}\n" +
				"- {addresses: [10.0.0.2, 10.0.0.1], conditions: {ready: false, terminating: true}}\n" +
				"ports: [{name: sql, port: 5432, protocol: TCP}, {port: 53, protocol: UDP}, {name: any}]",
			model.EndpointSliceUpdate{ID: model.EndpointSliceID{Namespace: "shop", Name: "db-x"}, Slice: &model.EndpointSlice{
				Service: model.ServiceKey{Namespace: "shop", Name: "db"},
				Addrs:   addrs("10.0.0.1", "10.0.0.2"),
				Ports: []model.NamedPort{{Name: "sql", Protocol: model.ProtoTCP, Port: 5432},
					{Protocol: model.ProtoUDP, Port: 53}},
			}},
		},
		"endpoint slice of no service": {
			"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nmetadata: {name: x, namespace: shop}\n" +
				"endpoints: [{addresses: [10.0.0.1]}]\n",
			model.EndpointSliceUpdate{ID: model.EndpointSliceID{Namespace: "shop", Name: "x"}},
		},
		"endpoint slice of host names": {
			"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: FQDN\n" +
				"metadata: {name: x, namespace: shop, labels: {kubernetes.io/service-name: db}}\n" +
				"endpoints: [{addresses: [db.example.com]}]\n",
			model.EndpointSliceUpdate{ID: model.EndpointSliceID{Namespace: "shop", Name: "x"}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, parseUpdate(t, tt.text), compare); diff != "" {
				t.Errorf("update (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClusterObjectsReportWhatTheyCannotRead(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"node": {
			"apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus:\n  addresses:\n  - {type: InternalIP, address: x}",
			`dir/a.yaml:6: Node n1: warning: status.addresses[0].address: "x" is not an IP address; ignored`,
		},
		"service": {
			"apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec:\n  clusterIP: a\n  externalIPs: [b]\n" +
				"status:\n  loadBalancer:\n    ingress:\n    - ip: c",
			`dir/a.yaml:5: Service default/s: warning: spec.clusterIP: "a" is not an IP address; ignored
dir/a.yaml:6: Service default/s: warning: spec.externalIPs[0]: "b" is not an IP address; ignored
dir/a.yaml:10: Service default/s: warning: status.loadBalancer.ingress[0].ip: "c" is not an IP address; ignored`,
		},
		"endpoint slice": {
			"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: s, labels: {kubernetes.io/service-name: a}}\n" +
				"endpoints:\n- addresses: [x]\nports:\n- port: 0\n",
			`dir/a.yaml:5: EndpointSlice default/s: warning: endpoints[0].addresses[0]: "x" is not an IP address; ignored
dir/a.yaml:7: EndpointSlice default/s: warning: ports[0]: port 0 is not in 1-65535; ignored`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := parseOne(t, tt.text)
			if diff := cmp.Diff(tt.want, problemText(d)); diff != "" || !d.OK {
				t.Errorf("ok %v, problems (-want +got):\n%s", d.OK, diff)
			}
		})
	}
}

func TestWithdrawNamesTheSameKeys(t *testing.T) {
	us := []model.Update{
		model.EndpointUpdate{ID: model.WorkloadID("a", "b"), Endpoint: &model.Endpoint{}},
		model.ProfileUpdate{Name: "kns.a", Profile: &model.Profile{}},
		model.TierUpdate{Name: "t", Tier: &model.Tier{}},
		model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Name: "p"}, Policy: &model.Policy{}},
		model.NetworkSetUpdate{ID: model.NetworkSetID{Name: "s"}, Set: &model.NetworkSet{}},
		model.ServiceUpdate{Key: model.ServiceKey{Name: "v"}, Service: &model.Service{}},
		model.EndpointSliceUpdate{ID: model.EndpointSliceID{Name: "e"}, Slice: &model.EndpointSlice{}},
		model.NodeUpdate{Name: "n", Node: &model.Node{}},
		model.InSync{},
	}
	want := []model.Update{
		model.EndpointUpdate{ID: model.WorkloadID("a", "b")},
		model.ProfileUpdate{Name: "kns.a"},
		model.TierUpdate{Name: "t"},
		model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindNetworkPolicy, Name: "p"}},
		model.NetworkSetUpdate{ID: model.NetworkSetID{Name: "s"}},
		model.ServiceUpdate{Key: model.ServiceKey{Name: "v"}},
		model.EndpointSliceUpdate{ID: model.EndpointSliceID{Name: "e"}},
		model.NodeUpdate{Name: "n"},
	}
	if diff := cmp.Diff(want, Withdraw(us), compare); diff != "" {
		t.Errorf("withdrawn (-want +got):\n%s", diff)
	}
}
