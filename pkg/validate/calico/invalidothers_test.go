package calico_test

import "strings"

// invalidOthers are objects of which there is one list of what can be wrong.
var invalidOthers = []invalid{
	{"Tier", "name: a", "order: first", "spec.order: string where a number is expected"},
	{"Tier", "name: a", "defaultAction: Allow", `spec.defaultAction: "Allow" must be Deny or Pass`},
	{"Tier", "name: a", "defaultAction: deny", `spec.defaultAction: "deny" must be Deny or Pass`},
	{"Tier", "name: a", "defaultAction: ''", `spec.defaultAction: "" must be Deny or Pass`},
	{"Tier", "name: a", "defaultaction: Pass", "spec.defaultaction: unknown field (did you mean defaultAction?)"},
	{"Tier", "name: a.b", "order: 1", `metadata.name: Invalid value: "a.b": must not contain dots`},
	{"Tier", "name: A", "order: 1", `metadata.name: Invalid value: "A": a lowercase`},
	{"Tier", "name: " + strings.Repeat("a", 64), "order: 1", `metadata.name: Invalid value: "` + strings.Repeat("a", 64) + `": must be no more than 63`},
	{"Tier", "name: default", "order: 1", "spec.order: the tier default is built in: its order is 1000000 and cannot be changed"},
	{"Tier", "name: default", "order: 1000000, defaultAction: Pass", "spec.defaultAction: the tier default is built in: its default action is Deny and cannot be changed"},
	{"Tier", "name: kube-admin", "order: 999, defaultAction: Pass", "spec.order: the tier kube-admin is built in: its order is 1000 and cannot be changed"},
	{"Tier", "name: kube-admin", "order: 1000", "spec.defaultAction: the tier kube-admin is built in: its default action is Pass and cannot be changed"},
	{"Tier", "name: kube-baseline", "order: 1, defaultAction: Pass", "spec.order: the tier kube-baseline is built in: its order is 10000000 and cannot be changed"},
	{"Tier", "name: kube-baseline", "order: 10000000, defaultAction: Deny", "spec.defaultAction: the tier kube-baseline is built in"},

	{"NetworkSet", "name: a, namespace: shop", "nets: [10.0.0.0/33]", `spec.nets[0]: "10.0.0.0/33" is not an address or a CIDR`},
	{"NetworkSet", "name: a, namespace: shop", "nets: [10.0.0.0/8, example.org]", `spec.nets[1]: "example.org" is not an address or a CIDR`},
	{"NetworkSet", "name: a, namespace: shop", "nets: [10.0.0.1-10.0.0.9]", `spec.nets[0]: "10.0.0.1-10.0.0.9" is not an address or a CIDR`},
	{"NetworkSet", "name: a, namespace: shop", "nets: ['fe80::1%eth0']", `spec.nets[0]: "fe80::1%eth0" is not an address or a CIDR`},
	{"NetworkSet", "name: a, namespace: shop", "nets: [5]", "spec.nets: number where a string is expected; put it in quotes"},
	{"NetworkSet", "name: a, namespace: shop", "net: [10.0.0.0/8]", "spec.net: unknown field (did you mean nets?)"},
	{"NetworkSet", "name: a, namespace: shop", "allowedEgressDomains: [example.org]", "spec.allowedEgressDomains: unknown field"},
	{"NetworkSet", "name: a, namespace: shop, labels: {projectcalico.org/namespace: other}", "", "metadata.labels[projectcalico.org/namespace]: the label belongs to the namespace"},
	{"NetworkSet", "name: a, namespace: shop, labels: {'a b': c}", "", `metadata.labels: Invalid value: "a b": name part`},
	{"NetworkSet", "name: a, namespace: shop, labels: {a: 'b c'}", "", `metadata.labels: Invalid value: "b c": a valid label`},
	{"NetworkSet", "name: A, namespace: shop", "", `metadata.name: Invalid value: "A": a lowercase`},
	{"GlobalNetworkSet", "name: a", "nets: ['::ffff:10.0.0.0/104']", `spec.nets[0]: "::ffff:10.0.0.0/104" is an IPv4-mapped CIDR, which no packet has; write it as IPv4`},
	{"GlobalNetworkSet", "name: a", "nets: 10.0.0.0/8", "spec.nets: string where a list is expected"},
	{"GlobalNetworkSet", "name: a, labels: {projectcalico.org/namespace: other}", "", "metadata.labels[projectcalico.org/namespace]: the label belongs to the namespace"},
	{"GlobalNetworkSet", "name: a, lables: {a: b}", "", "metadata.lables: unknown field (did you mean labels?)"},

	{"NetworkPolicy", "name: a.b.c, namespace: shop", "", `metadata.name: Invalid value: "a.b.c": must be a name, or the name of a tier, one dot and a name`},
	{"NetworkPolicy", "name: A, namespace: shop", "", `metadata.name: Invalid value: "A": a lowercase`},
	{"NetworkPolicy", "name: knp.default.A, namespace: shop", "", `metadata.name: Invalid value: "knp.default.A": a lowercase`},
	{"NetworkPolicy", "name: default.A, namespace: shop", "", `metadata.name: Invalid value: "default.A": a lowercase`},
	{"NetworkPolicy", "name: a, namespace: shop.eu", "", `metadata.namespace: Invalid value: "shop.eu": must not contain dots`},
	{"GlobalNetworkPolicy", "name: a..b", "", `metadata.name: Invalid value: "a..b": must be a name, or the name of a tier`},
	{"GlobalNetworkPolicy", "name: " + strings.Repeat("a", 64), "", `metadata.name: Invalid value: "` + strings.Repeat("a", 64) + `": must be no more than 63`},

	{"StagedNetworkPolicy", "name: a, namespace: shop", "stagedAction: set", `spec.stagedAction: "set" must be Set, Delete, Learn or Ignore`},
	{"StagedGlobalNetworkPolicy", "name: a", "stagedAction: Remove", `spec.stagedAction: "Remove" must be Set, Delete, Learn or Ignore`},
	{"StagedKubernetesNetworkPolicy", "name: a, namespace: shop", "podSelector: {}, stagedAction: x", `spec.stagedAction: "x" must be Set, Delete, Learn or Ignore`},
	{"StagedNetworkPolicy", "name: a, namespace: shop", "stagedAction: Delete, order: 1", "spec: with stagedAction Delete the spec must say nothing but the tier"},
	{"StagedNetworkPolicy", "name: a, namespace: shop", "stagedAction: Delete, selector: all()", "spec: with stagedAction Delete"},
	{"StagedNetworkPolicy", "name: a, namespace: shop", "stagedAction: Delete, ingress: [{action: Deny}]", "spec: with stagedAction Delete"},
	{"StagedGlobalNetworkPolicy", "name: a", "stagedAction: Delete, egress: [{action: Deny}]", "spec: with stagedAction Delete"},
	{"StagedGlobalNetworkPolicy", "name: a", "stagedAction: Delete, namespaceSelector: all()", "spec: with stagedAction Delete"},
	{"StagedGlobalNetworkPolicy", "name: a", "stagedAction: Delete, applyOnForward: true", "spec: with stagedAction Delete"},
	{"StagedKubernetesNetworkPolicy", "name: a, namespace: shop", "stagedAction: Delete, podSelector: {matchLabels: {a: b}}", "spec: with stagedAction Delete"},
	{"StagedKubernetesNetworkPolicy", "name: a, namespace: shop", "stagedAction: Delete, ingress: [{}]", "spec: with stagedAction Delete"},
	{"NetworkPolicy", "name: a, namespace: shop", "stagedAction: Set", "spec.stagedAction: unknown field"},
	{"StagedKubernetesNetworkPolicy", "name: a, namespace: shop", "podSelector: {}, ingress: [{from: [{}]}]", "spec.ingress[0].from[0]: Required value: a peer must have podSelector, namespaceSelector or ipBlock"},
	{"StagedKubernetesNetworkPolicy", "name: a, namespace: shop", "podSelector: {}, ingress: [{ports: [{port: 0}]}]", "spec.ingress[0].ports[0].port: Invalid value: 0: must be between 1 and 65535"},
	{"StagedKubernetesNetworkPolicy", "name: a, namespace: shop", "podSelector: {}, policyTypes: [In]", `spec.policyTypes[0]: Unsupported value: "In"`},
	{"StagedKubernetesNetworkPolicy", "name: a, namespace: shop", "podSelector: {}, tier: a", "spec.tier: unknown field"},
	{"StagedKubernetesNetworkPolicy", "name: a, namespace: shop", "podSelector: {matchExpressions: [{key: a, operator: Is}]}", "spec.podSelector.matchExpressions[0].operator: Invalid value"},

	{"Profile", "name: a", "ingress: [{action: Maybe}]", `spec.ingress[0].action: "Maybe" must be Allow, Deny, Pass or Log`},
	{"Profile", "name: a", "egress: [{action: Allow, destination: {nets: [x]}}]", `spec.egress[0].destination.nets[0]: "x" is not an address or a CIDR`},
	{"Profile", "name: a", "ingress: [{action: Allow, source: {services: {name: b}}}]", "spec.ingress[0].source.services.namespace: must be there"},
	{"Profile", "name: a", "labelsToApply: {'a b': c}", "spec.labelsToApply[a b]: name part must consist of"},
	{"Profile", "name: a", "labelsToApply: {a: 'b c'}", "spec.labelsToApply[a]: a valid label must"},
	{"Profile", "name: a", "labels: {a: b}", "spec.labels: unknown field"},
	{"Profile", "name: a", "egress: " + list(1025, "{action: Allow}", 0), "spec.egress: has 1025 rules; the limit is 1024"},

	{"WorkloadEndpoint", "name: a, namespace: shop", "interfaceName: tap0", "spec.node: must name the node that the workload runs on"},
	{"WorkloadEndpoint", "name: a, namespace: shop", "node: n1", `spec.interfaceName: "" must be the name of an interface`},
	{"WorkloadEndpoint", "name: a, namespace: shop", "node: n1, interfaceName: a/b", `spec.interfaceName: "a/b" must be the name of an interface`},
	{"WorkloadEndpoint", "name: a, namespace: shop", "node: n1, interfaceName: abcdefghijklmnop", `spec.interfaceName: "abcdefghijklmnop" must be the name of an interface`},
	{"WorkloadEndpoint", "name: a, namespace: shop", "node: n1, interfaceName: tap0, ipNetworks: [10.0.0.0/24]", `spec.ipNetworks[0]: "10.0.0.0/24" must be a single address`},
	{"WorkloadEndpoint", "name: a, namespace: shop", "node: n1, interfaceName: tap0, ipNetworks: [host]", `spec.ipNetworks[0]: "host" is not an address or a CIDR`},
	{"WorkloadEndpoint", "name: a, namespace: shop", "node: n1, interfaceName: tap0, ipNetworks: " + list(65, "10.0.%d.0/32", 1), "spec.ipNetworks: has 65 entries; the limit is 64"},
	{"WorkloadEndpoint", "name: a, namespace: shop", "node: n1, interfaceName: tap0, profiles: [A]", `spec.profiles[0]: "A" is no name of a profile`},
	{"WorkloadEndpoint", "name: a, namespace: shop", "node: n1, interfaceName: tap0, ports: [{name: http, protocol: ICMP, port: 80}]", `spec.ports[0].protocol: "ICMP" must be TCP, UDP or SCTP`},
	{"WorkloadEndpoint", "name: a, namespace: shop", "node: n1, interfaceName: tap0, ports: [{name: http, protocol: TCP}]", "spec.ports[0].port: 0 must be 1 to 65535"},
	{"WorkloadEndpoint", "name: a, namespace: shop", "node: n1, interfaceName: tap0, ports: [{name: http, protocol: TCP, port: 70000}]", "spec.ports[0].port: 70000 must be 1 to 65535"},
	{"WorkloadEndpoint", "name: a, namespace: shop", "node: n1, interfaceName: tap0, ports: [{protocol: TCP, port: 80}]", "spec.ports[0].name: a port must have a name, or a hostPort"},
	{"WorkloadEndpoint", "name: a, namespace: shop", "node: n1, interfaceName: tap0, ports: [{name: 'a b', protocol: TCP, port: 80}]", `spec.ports[0].name: "a b" is no name of a port`},
}

// HTTP matches stand in ingress rules that allow TCP only.
func init() {
	for _, r := range []struct{ list, rule, want string }{
		{"egress", "action: Allow, http: {methods: [GET]}", "http: must not be in an egress rule"},
		{"ingress", "action: Deny, http: {methods: [GET]}", "http: needs action Allow"},
		{"ingress", "action: Allow, protocol: UDP, http: {methods: [GET]}", "http: needs protocol TCP, or none"},
		{"ingress", "action: Allow, http: {methods: [GET, GET]}", `http.methods[1]: "GET" is there twice`},
		{"ingress", "action: Allow, http: {methods: " + list(21, "M%d", 1) + "}", "http.methods: has 21 entries; the limit is 20"},
		{"ingress", "action: Allow, http: {paths: " + list(21, "{exact: /a}", 0) + "}", "http.paths: has 21 entries; the limit is 20"},
		{"ingress", "action: Allow, http: {paths: [{}]}", "http.paths[0]: must have exact or prefix"},
		{"ingress", "action: Allow, http: {paths: [{exact: /a, prefix: /b}]}", "http.paths[0]: must have exact or prefix, not both"},
		{"ingress", "action: Allow, http: {paths: [{exact: a}]}", `http.paths[0]: "a" must begin with /`},
		{"ingress", "action: Allow, http: {paths: [{prefix: '/a?b'}]}", `http.paths[0]: "/a?b" must not have a query or a fragment`},
		{"ingress", "action: Allow, http: {paths: [{prefix: /" + strings.Repeat("a", 1024) + "}]}", "http.paths[0]: has 1025 characters; the limit is 1024"},
		{"ingress", "action: Allow, http: {path: /a}", "http.path: unknown field (did you mean paths?)"},
	} {
		for kind, global := range policyKinds {
			invalidOthers = append(invalidOthers, invalid{kind, metadataOf(global), r.list + ": [{" + r.rule + "}]", "spec." + r.list + "[0]." + r.want})
		}
	}
}
