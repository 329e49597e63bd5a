package lint_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/lint"
	"github.com/margay-project/margay/pkg/model"
)

const pods = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec: {nodeName: n1, containers: [{name: c, ports: [{name: http, containerPort: 80}]}]}
status: {podIPs: [{ip: 10.0.0.1}, {ip: "fd00::1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: db, namespace: shop, labels: {app: db}}
spec: {nodeName: n2, containers: [{name: c, ports: [{name: dns, protocol: UDP, containerPort: 53}]}]}
status: {podIPs: [{ip: 10.0.0.2}]}
---
`

func knp(name, spec string) string {
	return "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: " + name + ", namespace: shop}\nspec: " + spec + "\n---\n"
}

// byService is a policy of all pods that names the Service db.
const byService = "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: a, namespace: shop}\n" +
	"spec: {ingress: [{action: Allow, source: {services: {name: db}}}], egress: [{action: Allow, destination: {services: {name: db}}}]}\n---\n"

// slice is the EndpointSlice of a Service.
func slice(service, endpoints string) string {
	return "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: " + service + ", namespace: shop, labels: {kubernetes.io/service-name: " + service +
		"}}\naddressType: IPv4\nports: [{port: 5432}]\nendpoints: [" + endpoints + "]\n---\n"
}

func updates(t *testing.T, text string) []model.Update {
	t.Helper()
	var all []model.Update
	for _, doc := range kinds.Parse("lint.yaml", []byte(text)) {
		if len(doc.Problems) > 0 {
			t.Fatal(doc.Problems)
		}
		all = append(all, doc.Updates...)
	}
	return all
}

func TestFindings(t *testing.T) {
	for _, test := range []struct {
		name, policies string
		want           []string
	}{
		{"nothing to find", knp("ok", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 5432}]}]}`), nil},
		{"deny all", knp("deny", `{podSelector: {}, policyTypes: [Ingress, Egress]}`), nil},
		{"no pod", knp("p", `{podSelector: {matchLabels: {app: nope}}}`), []string{"knp/shop/p: selects no pod"}},
		{
			"peer that is nobody", knp("p", `{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: nope}}}, {podSelector: {matchLabels: {app: web}}}]}]}`),
			[]string{`knp/shop/p#ingress[0]: the source selects nothing: pods app=nope in namespace shop`},
		},
		{"port name", knp("p", `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: http}]}]}`), nil},
		{
			"port name nobody has", knp("p", `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: https}]}]}`),
			[]string{`knp/shop/p#ingress[0]: no pod has a port named "https" of protocol TCP`},
		},
		{
			"port name of another protocol", knp("p", `{podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: dns}]}]}`),
			[]string{`knp/shop/p#ingress[0]: no pod has a port named "dns" of protocol TCP`},
		},
		{
			"port name of pods that the policy does not apply to", knp("p", `{podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: http}]}]}`),
			[]string{`knp/shop/p#ingress[0]: no pod that the policy applies to has a port named "http" of protocol TCP`},
		},
		{
			"port name of some of the pods", knp("p", `{podSelector: {}, ingress: [{ports: [{port: http}, {port: dns, protocol: UDP}]}]}`), nil,
		},
		{
			"port names of other pods beside one that a pod has",
			knp("p", `{podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: http}, {port: dns, protocol: UDP}]}, {ports: [{port: http}, {port: 81}]}]}`), nil,
		},
		{
			"port name of pods that are no destination",
			knp("p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: http}]}]}`),
			[]string{`knp/shop/p#egress[0]: the destination selects no pod with a port named "http" of protocol TCP`},
		},
		{
			"port name of one destination of two",
			knp("p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: db}}}, {podSelector: {matchLabels: {app: web}}}], ports: [{port: http}]}]}`), nil,
		},
		{
			"port name of any destination", knp("p", `{podSelector: {matchLabels: {app: db}}, policyTypes: [Egress], egress: [{ports: [{port: http}]}]}`), nil,
		},
		{
			"port name of a source", "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: a, namespace: shop}\nspec: {selector: app == 'db', types: [Ingress, Egress], " +
				"ingress: [{action: Allow, protocol: TCP, source: {selector: app == 'db', ports: [http]}}, {action: Allow, protocol: TCP, source: {selector: app == 'web', ports: [http]}}], " +
				"egress: [{action: Allow, protocol: TCP, source: {ports: [http]}}, {action: Allow, protocol: UDP, source: {ports: [dns]}}]}\n---\n",
			[]string{
				`np/shop/a#ingress[0]: the source selects no pod with a port named "http" of protocol TCP`,
				`np/shop/a#egress[0]: no pod that the policy applies to has a port named "http" of protocol TCP`,
			},
		},
		{
			"shadowed rule", knp("p", `{podSelector: {matchLabels: {app: db}}, ingress: [{ports: [{port: 1, endPort: 1000}]}, {ports: [{port: 443}]}]}`),
			[]string{"knp/shop/p#ingress[1]: never decides: earlier rules match every packet that it could match"},
		},
		{
			"shadowed on one pod of two",
			knp("a", `{podSelector: {matchLabels: {app: db}}, ingress: [{}]}`) + knp("p", `{podSelector: {}, ingress: [{ports: [{port: 443}]}]}`), nil,
		},
		{
			"any IPv4 address in a cluster of both families", knp("p", `{podSelector: {matchLabels: {app: web}}, egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0}}]}], policyTypes: [Egress]}`),
			[]string{"knp/shop/p#egress[0]: the destination is any IPv4 address, so the rule matches no IPv6 packet"},
		},
		{"any IPv4 address for a pod of that family", knp("p", `{podSelector: {matchLabels: {app: db}}, egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0}}]}], policyTypes: [Egress]}`), nil},
		{
			"no rules", "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: c}\nspec: {tier: Admin, priority: 1, subject: {namespaces: {}}}\n---\n",
			[]string{"kcnp/c: has no rules, so it decides nothing"},
		},
		{
			"a deletion of nothing", "apiVersion: projectcalico.org/v3\nkind: StagedNetworkPolicy\nmetadata: {name: a, namespace: shop}\nspec: {stagedAction: Delete}\n---\n",
			[]string{"snp/shop/a: there is no enforced policy of its name that selects a pod, so it would take nothing away"},
		},
		{
			"a deletion", "apiVersion: projectcalico.org/v3\nkind: StagedKubernetesNetworkPolicy\nmetadata: {name: a, namespace: shop}\nspec: {stagedAction: Delete}\n---\n" +
				knp("a", `{podSelector: {}, ingress: [{}]}`), nil,
		},
		{
			"a replacement that selects no pod", "apiVersion: projectcalico.org/v3\nkind: StagedKubernetesNetworkPolicy\nmetadata: {name: a, namespace: shop}\n" +
				"spec: {podSelector: {matchLabels: {app: nope}}, ingress: [{ports: [{port: http}]}]}\n---\n" + knp("a", `{podSelector: {}, ingress: [{}]}`),
			[]string{"sknp/shop/a: selects no pod, and would take NetworkPolicy shop/a away from those that it selects"},
		},
		{
			"a replacement that selects fewer pods", "apiVersion: projectcalico.org/v3\nkind: StagedKubernetesNetworkPolicy\nmetadata: {name: a, namespace: shop}\n" +
				"spec: {podSelector: {matchLabels: {app: web}}, ingress: [{ports: [{port: http}]}]}\n---\n" + knp("a", `{podSelector: {}, ingress: [{}]}`), nil,
		},
		{
			"Services without backends", slice("db", "") + slice("mail", "") + byService,
			[]string{"np/shop/a#ingress[0]: the source Service shop/db has no backends", "np/shop/a#egress[0]: the destination Service shop/db has no backends"},
		},
		{
			"Services with backends", slice("db", "{addresses: [10.99.0.1]}") + byService, nil,
		},
		{
			"Services without EndpointSlices", "apiVersion: v1\nkind: Service\nmetadata: {name: db, namespace: shop}\nspec: {clusterIP: 10.96.0.9, selector: {app: db}, ports: [{port: 5432}]}\n---\n" +
				slice("mail", "{addresses: [10.99.0.1]}") + byService,
			[]string{
				"np/shop/a#ingress[0]: the source matches nothing: there is no EndpointSlice of Service shop/db",
				"np/shop/a#egress[0]: the destination matches nothing: there is no EndpointSlice of Service shop/db",
			},
		},
		{"some IPv4 network", knp("p", `{podSelector: {matchLabels: {app: web}}, egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}]}], policyTypes: [Egress]}`), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, f := range lint.Check(updates(t, pods+test.policies)) {
				got = append(got, f.Object()+": "+f.Text)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// services are two Services of a cluster that gives out 10.96.0.0/12. The backend of one is a machine outside.
const services = `
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {clusterIP: 10.96.0.9, externalIPs: [192.0.2.9]}
---
apiVersion: v1
kind: Service
metadata: {name: mail, namespace: shop}
spec: {clusterIP: 10.96.7.7, clusterIPs: [10.96.7.7, "fd00:96::7"]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: mail, namespace: shop, labels: {kubernetes.io/service-name: mail}}
addressType: IPv4
ports: [{port: 25}]
endpoints: [{addresses: [10.99.0.1]}]
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {addresses: [{type: InternalIP, address: 10.97.0.1}]}
---
`

// Policy is judged after the node has put a backend in the place of a Service's address, so networks of Services match nothing.
func TestNetworksOfServices(t *testing.T) {
	const instead = "; no packet has a Service's address when policy judges, so name the backends instead"
	egress := func(nets string) string {
		return knp("p", `{podSelector: {matchLabels: {app: db}}, policyTypes: [Egress], egress: [{to: [`+nets+`]}]}`)
	}
	for _, test := range []struct {
		name, policies string
		want           []string
	}{
		{"the address of a Service", egress(`{ipBlock: {cidr: 10.96.0.9/32}}`), []string{"knp/shop/p#egress[0]: the destination 10.96.0.9/32 is the address of Service shop/db" + instead}},
		{"an external address", egress(`{ipBlock: {cidr: 192.0.2.9/32}}`), []string{"knp/shop/p#egress[0]: the destination 192.0.2.9/32 is the address of Service shop/db" + instead}},
		{"the network of an external address", egress(`{ipBlock: {cidr: 192.0.2.0/24}}`), nil},
		{
			"an IPv6 address", knp("p", `{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: "fd00:96::7/128"}}]}]}`),
			[]string{"knp/shop/p#egress[0]: the destination fd00:96::7/128 is the address of Service shop/mail" + instead},
		},
		{
			"a range of Services", egress(`{ipBlock: {cidr: 10.96.0.0/16}}`),
			[]string{"knp/shop/p#egress[0]: the destination 10.96.0.0/16 contains the address 10.96.0.9 of Service shop/db and none of a pod or node" + instead},
		},
		{
			"a range of Services but for one", egress(`{ipBlock: {cidr: 10.96.0.0/16, except: [10.96.0.8/29]}}`),
			[]string{"knp/shop/p#egress[0]: the destination 10.96.0.0/16 contains the address 10.96.7.7 of Service shop/mail and none of a pod or node" + instead},
		},
		{"a range of Services without any", egress(`{ipBlock: {cidr: 10.96.0.0/16, except: [10.96.0.0/20]}}`), nil},
		{"a range with the address of a node", egress(`{ipBlock: {cidr: 10.96.0.0/15}}`), nil},
		{"a range with a backend", egress(`{ipBlock: {cidr: 10.96.0.0/13, except: [10.97.0.0/16]}}`), nil},
		{"all private addresses", egress(`{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/16, 10.97.0.0/16, 10.99.0.0/16]}}`), nil},
		{"another network", egress(`{ipBlock: {cidr: 10.98.0.0/16}}`), nil},
		{
			"a source", knp("p", `{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{ipBlock: {cidr: 10.96.0.9/32}}, {ipBlock: {cidr: 192.0.2.9/32}}]}]}`),
			[]string{"knp/shop/p#ingress[0]: the source 10.96.0.9/32 is the address of Service shop/db" + instead},
		},
		{
			"several in one rule", "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: a, namespace: shop}\n" +
				"spec: {egress: [{action: Deny, destination: {nets: [10.96.0.9/32, 10.96.7.0/24, 10.98.0.0/16]}}]}\n---\n",
			[]string{"np/shop/a#egress[0]: the destination 10.96.0.9/32 is the address of Service shop/db" + instead + " (so it is with 1 more of its networks)"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, f := range lint.Check(updates(t, pods+services+test.policies)) {
				got = append(got, f.Object()+": "+f.Text)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestExcludingOneFamilyOnly(t *testing.T) {
	all := updates(t, pods+knp("p", `{podSelector: {matchLabels: {app: web}}, ingress: [{}]}`))
	for i, u := range all {
		if p, ok := u.(model.PolicyUpdate); ok {
			changed := *p.Policy
			changed.Ingress = []model.Rule{{Action: model.Allow, Source: model.Entity{NotNets: p.Policy.Ingress[0].Source.Nets}}}
			changed.Ingress[0].Source.NotNets = append(changed.Ingress[0].Source.NotNets, prefix(t, "10.0.0.0/8"))
			all[i] = model.PolicyUpdate{Key: p.Key, Policy: &changed}
		}
	}
	got := lint.Check(all)
	if len(got) != 1 || got[0].Text != "the source excludes only IPv4 networks, so the rule matches no IPv6 packet" {
		t.Errorf("got %v", got)
	}
}

func TestWithoutPodsThereIsNothingToCompareWith(t *testing.T) {
	all := updates(t, knp("p", `{podSelector: {matchLabels: {app: nope}}}`))
	if got := lint.Check(all); got != nil {
		t.Errorf("got %v", got)
	}
	if lint.HasEndpoints(all) {
		t.Error("pods were found among policies")
	}
	if !lint.HasEndpoints(updates(t, pods)) {
		t.Error("no pods were found among pods")
	}
	if lint.HasEndpoints(append(updates(t, pods), model.EndpointUpdate{ID: model.WorkloadID("shop", "web")}, model.EndpointUpdate{ID: model.WorkloadID("shop", "db")})) {
		t.Error("deleted pods were found")
	}
}

func prefix(t *testing.T, text string) netip.Prefix {
	t.Helper()
	p, err := netip.ParsePrefix(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
