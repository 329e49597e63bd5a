package calico_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/validate"
)

// invalid is an object that nothing is wrong with but one thing.
type invalid struct {
	kind, metadata, spec string
	want                 string // the field, a colon, and the beginning of the reason
}

// invalidRules are rules that one thing is wrong with; the path is that below the rule. They are tried in each list of
// rules that there is.
var invalidRules = []struct{ rule, want string }{
	{"{}", `action: "" must be Allow, Deny, Pass or Log`},
	{"{action: allow}", `action: "allow" must be Allow, Deny, Pass or Log`},
	{"{action: Reject}", `action: "Reject" must be`},
	{"{action: Allow, actions: Deny}", "actions: unknown field (did you mean action?)"},
	{"{action: Allow, ipVersion: 5}", "ipVersion: 5 must be 4 or 6"},
	{"{action: Allow, ipVersion: 0}", "ipVersion: 0 must be 4 or 6"},
	{"{action: Allow, ipVersion: -4}", "ipVersion: -4 must be 4 or 6"},
	{"{action: Allow, protocol: ''}", `protocol: "" must be TCP, UDP, SCTP, UDPLite, ICMP, ICMPv6 or a number of 1 to 255`},
	{"{action: Allow, protocol: GRE}", `protocol: "GRE" must be TCP`},
	{"{action: Allow, protocol: 0}", `protocol: "0" must be TCP`},
	{"{action: Allow, protocol: 256}", `protocol: "256" must be TCP`},
	{"{action: Allow, protocol: -1}", `protocol: "-1" must be TCP`},
	{"{action: Allow, protocol: 6.5}", `protocol: "6.5" must be TCP`},
	{"{action: Allow, protocol: true}", `protocol: "true" must be TCP`},
	{"{action: Allow, protocol: [TCP]}", `protocol: "[\"TCP\"]" must be TCP`},
	{"{action: Allow, notProtocol: any}", `notProtocol: "any" must be TCP`},
	{"{action: Allow, notProtocol: 0}", `notProtocol: "0" must be TCP`},
	{"{action: Allow, protocol: ICMP, ipVersion: 6}", "protocol: ICMP is a protocol of IPv4, and ipVersion is 6"},
	{"{action: Allow, protocol: 1, ipVersion: 6}", "protocol: ICMP is a protocol of IPv4"},
	{"{action: Allow, protocol: ICMPv6, ipVersion: 4}", "protocol: ICMPv6 is a protocol of IPv6, and ipVersion is 4"},
	{"{action: Allow, protocol: 58, ipVersion: 4}", "protocol: ICMPv6 is a protocol of IPv6"},
	{"{action: Allow, notProtocol: ICMP, ipVersion: 6}", "notProtocol: ICMP is a protocol of IPv4"},
	{"{action: Allow, notProtocol: 58, ipVersion: 4}", "notProtocol: ICMPv6 is a protocol of IPv6"},
	{"{action: Allow, icmp: {type: 8}}", "icmp: needs protocol ICMP or ICMPv6"},
	{"{action: Allow, protocol: TCP, icmp: {type: 8}}", "icmp: needs protocol ICMP or ICMPv6, not tcp"},
	{"{action: Allow, protocol: ICMP, icmp: {code: 0}}", "icmp: a code needs a type"},
	{"{action: Allow, protocol: ICMP, icmp: {type: 255}}", "icmp.type: 255 must be 0 to 254"},
	{"{action: Allow, protocol: ICMP, icmp: {type: -1}}", "icmp.type: -1 must be 0 to 254"},
	{"{action: Allow, protocol: ICMP, icmp: {type: 3, code: 256}}", "icmp.code: 256 must be 0 to 255"},
	{"{action: Allow, protocol: ICMP, icmp: {types: 3}}", "icmp.types: unknown field (did you mean type?)"},
	{"{action: Allow, notICMP: {code: 0}}", "notICMP: a code needs a type"},
	{"{action: Allow, notICMP: {type: 300}}", "notICMP.type: 300 must be 0 to 254"},
	{"{action: Allow, notICMP: {type: 3, code: -1}}", "notICMP.code: -1 must be 0 to 255"},
	{"{action: Allow, metadata: {annotations: {'a b': c}}}", `metadata.annotations: "a b": name part must consist of`},
	{"{action: Allow, metadata: {annotation: {a: c}}}", "metadata.annotation: unknown field (did you mean annotations?)"},
	{"{action: Deny, source: {nets: [10.0.0.0/8]}, destination: {nets: ['2001:db8::/32']}}", "destination.nets: 2001:db8::/32 is of IPv6, and the rule has CIDRs of IPv4: write two rules"},
	{"{action: Deny, source: {notNets: ['2001:db8::/32']}, destination: {notNets: [10.0.0.0/8]}}", "destination.notNets: 10.0.0.0/8 is of IPv4, and the rule has CIDRs of IPv6"},
	{"{action: Deny, from: {nets: [10.0.0.0/8]}}", "from: unknown field"},
}

// invalidSides are sides of rules that one thing is wrong with; the path is that below the side.
var invalidSides = []struct{ protocol, side, want string }{
	{"", "nets: [10.0.0.0/33]", `nets[0]: "10.0.0.0/33" is not an address or a CIDR`},
	{"", "nets: [10.0.0.0/8, host]", `nets[1]: "host" is not an address or a CIDR`},
	{"", "nets: ['']", `nets[0]: "" is not an address or a CIDR`},
	{"", "nets: ['::ffff:10.0.0.0/104']", `nets[0]: "::ffff:10.0.0.0/104" is an IPv4-mapped CIDR`},
	{"", "nets: [10.0.0.0/8, 10.0.0.0/8]", `nets[1]: "10.0.0.0/8" is there twice`},
	{"", "nets: [10.0.0.0/8, '2001:db8::/32']", "nets: 2001:db8::/32 is of IPv6, and the rule has CIDRs of IPv4: write two rules"},
	{"", "nets: [10.0.0.0/8], notNets: ['2001:db8::/32']", "notNets: 2001:db8::/32 is of IPv6"},
	{"", "nets: " + list(257, "10.0.%d.0/32", 1), "nets: has 257 entries; the limit is 256"},
	{"", "notNets: [10.0.0.0/-1]", `notNets[0]: "10.0.0.0/-1" is not an address or a CIDR`},
	{"", "notNets: ['fe80::1%eth0/128']", `notNets[0]: "fe80::1%eth0/128" is not an address or a CIDR`},
	{"", "notNets: [10.0.0.0/8, 10.0.0.0/8]", `notNets[1]: "10.0.0.0/8" is there twice`},
	{"", "notNets: " + list(257, "10.0.%d.0/32", 1), "notNets: has 257 entries; the limit is 256"},
	{"", "net: [10.0.0.0/8]", "net: unknown field (did you mean nets?)"},
	{"", "domains: [example.org]", "domains: unknown field"},
	{"", "selector: 'app = \"a\"'", "selector: position 5: expected an operator"},
	{"", "selector: 'app == a'", "selector: position 8: expected a value in quotes"},
	{"", "selector: 'has (a)'", "selector: position 5: expected an operator"},
	{"", "selector: global()", "selector: global() may stand in the namespaceSelector of a rule only"},
	{"", "selector: 'has(a) && global()'", "selector: position 11: expected global() to stand alone"},
	{"", "selector: '" + strings.Repeat(" ", 1018) + "has(a) '", "selector: 1025 characters long, the limit is 1024"},
	{"", "notSelector: 'has(a'", "notSelector: position 6: expected ')'"},
	{"", "notSelector: global()", "notSelector: global() may stand in the namespaceSelector of a rule only"},
	{"", "namespaceSelector: 'a in {b}'", "namespaceSelector: position 7: expected"},
	{"", "namespaceSelector: 'global() || has(a)'", "namespaceSelector: position 1: expected global() to stand alone"},
	{"", "namespaceSelector: '!global()'", "namespaceSelector: position 2: expected global() to stand alone"},
	{"", "serviceAccounts: {names: ['a b']}", `serviceAccounts.names[0]: "a b" is no name of a service account: a lowercase`},
	{"", "serviceAccounts: {names: [a, '']}", `serviceAccounts.names[1]: "" is no name of a service account: a lowercase`},
	{"", "serviceAccounts: {names: [a, a]}", `serviceAccounts.names[1]: "a" is there twice`},
	{"", "serviceAccounts: {selector: '==' }", "serviceAccounts.selector: position 1: expected a label"},
	{"", "serviceAccounts: {selector: global()}", "serviceAccounts.selector: global() may stand in the namespaceSelector of a rule only"},
	{"", "serviceAccounts: {name: a}", "serviceAccounts.name: unknown field (did you mean names?)"},
	{"", "ports: [80]", "ports: needs protocol TCP, UDP or SCTP"},
	{"", "notPorts: ['1:2', http]", "notPorts: needs protocol TCP, UDP or SCTP"},
	{"protocol: UDPLite, ", "ports: [80]", "ports: needs protocol TCP, UDP or SCTP"},
	{"protocol: ICMP, ", "notPorts: [http]", "notPorts: needs protocol TCP, UDP or SCTP"},
	{"notProtocol: TCP, ", "ports: [80]", "ports: needs protocol TCP, UDP or SCTP"},
	{"protocol: TCP, ", "ports: [65536]", `ports[0]: "65536" must be a port of 0 to 65535, a range such as 8080:8090, or the name of a port`},
	{"protocol: TCP, ", "ports: [80, -1]", `ports[1]: "-1" must be a port`},
	{"protocol: TCP, ", "ports: ['2:1']", `ports[0]: "2:1" the range ends before it begins`},
	{"protocol: TCP, ", "ports: ['1:65536']", `ports[0]: "1:65536" must be a port`},
	{"protocol: TCP, ", "ports: ['']", `ports[0]: "" must be a port`},
	{"protocol: TCP, ", "ports: ['1-2/3']", `ports[0]: "1-2/3" is no name of a port`},
	{"protocol: TCP, ", "ports: [80.5]", `ports[0]: "80.5" must be a port`},
	{"protocol: TCP, ", "ports: [true]", `ports[0]: "true" must be a port`},
	{"protocol: TCP, ", "ports: [null]", `ports[0]: "null" must be a port`},
	{"protocol: TCP, ", "ports: [{minPort: 1}]", `ports[0]: "{\"minPort\":1}" must be a port`},
	{"protocol: TCP, ", "ports: [" + strings.Repeat("a", 129) + "]", `ports[0]: "` + strings.Repeat("a", 129) + `" is no name of a port: at most 128`},
	{"protocol: TCP, ", "ports: " + list(51, "%d", 1), "ports: has 51 entries; the limit is 50"},
	{"protocol: SCTP, ", "notPorts: [99999]", `notPorts[0]: "99999" must be a port`},
	{"protocol: SCTP, ", "notPorts: ['a b']", `notPorts[0]: "a b" is no name of a port`},
	{"protocol: UDP, ", "notPorts: " + list(51, "%d", 1), "notPorts: has 51 entries; the limit is 50"},
	{"ipVersion: 4, ", "nets: ['2001:db8::/32']", "nets: 2001:db8::/32 is of IPv6, and ipVersion is 4"},
	{"ipVersion: 6, ", "notNets: [10.0.0.0/8]", "notNets: 10.0.0.0/8 is of IPv4, and ipVersion is 6"},
}

// invalidServices stand on the side where a Service may stand.
var invalidServices = []struct{ side, want string }{
	{"services: {}", "services.name: a service must have a name"},
	{"services: {namespace: x}", "services.name: a service must have a name"},
	{"services: {name: 'A B', namespace: x}", `services.name: "A B" is no name of a service: a lowercase`},
	{"services: {name: a, namespace: x.y}", `services.namespace: "x.y" is no name of a namespace: must`},
	{"services: {name: a, namespace: x, port: 80}", "services.port: unknown field"},
	{"services: {name: a, namespace: x}, selector: has(a)", "selector: must not stand beside services"},
	{"services: {name: a, namespace: x}, notSelector: has(a)", "notSelector: must not stand beside services"},
	{"services: {name: a, namespace: x}, namespaceSelector: all()", "namespaceSelector: must not stand beside services"},
	{"services: {name: a, namespace: x}, serviceAccounts: {names: [b]}", "serviceAccounts: must not stand beside services"},
	{"services: {name: a, namespace: x}, nets: [10.0.0.0/8]", "nets: must not stand beside services"},
	{"services: {name: a, namespace: x}, notNets: [10.0.0.0/8]", "notNets: must not stand beside services"},
}

// invalidPolicies are the rest of a policy: what is common to namespaced and global ones, enforced and staged.
var invalidPolicies = []struct{ spec, want string }{
	{"tier: A", `spec.tier: "A" is no name of a tier: a lowercase`},
	{"tier: a.b", `spec.tier: "a.b" is no name of a tier: must`},
	{"tier: " + strings.Repeat("a", 64), `spec.tier: "` + strings.Repeat("a", 64) + `" is no name of a tier: must be no more than 63`},
	{"tier: 5", "spec.tier: number where a string is expected; put it in quotes"},
	{"order: low", "spec.order: string where a number is expected"},
	{"selector: 'a == \"b'", `spec.selector: position 8: expected a closing "`},
	{"selector: global()", "spec.selector: global() may stand in the namespaceSelector of a rule only"},
	{"selector: 'a == \"" + strings.Repeat("b", 1020) + "\"'", "spec.selector: 1027 characters long, the limit is 1024"},
	{"serviceAccountSelector: 'has(a) &&'", "spec.serviceAccountSelector: position 10: expected a label"},
	{"serviceAccountSelector: global()", "spec.serviceAccountSelector: global() may stand in the namespaceSelector of a rule only"},
	{"types: [ingress]", `spec.types[0]: "ingress" must be Ingress or Egress`},
	{"types: [Ingress, Ingress]", `spec.types[1]: "Ingress" is there twice`},
	{"types: [Ingress, Egress, Ingress]", "spec.types: has 3 entries; the limit is 2"},
	{"types: Ingress", "spec.types: string where a list is expected"},
	{"type: [Ingress]", "spec.type: unknown field (did you mean types?)"},
	{"performanceHints: [AssumeNeeded]", `spec.performanceHints[0]: "AssumeNeeded" must be AssumeNeededOnEveryNode`},
	{"performanceHints: [AssumeNeededOnEveryNode, AssumeNeededOnEveryNode]", `spec.performanceHints[1]: "AssumeNeededOnEveryNode" is there twice`},
	{"ingress: {action: Allow}", "spec.ingress: object where a list is expected"},
	{"ingress: " + list(1025, "{action: Allow}", 0), "spec.ingress: has 1025 rules; the limit is 1024"},
	{"egress: " + list(1025, "{action: Allow}", 0), "spec.egress: has 1025 rules; the limit is 1024"},
	{"ingres: []", "spec.ingres: unknown field (did you mean ingress?)"},
	{"order: 1, order: 2", "spec.order: field is written twice"},
	{"podSelector: {}", "spec.podSelector: unknown field"},
}

// invalidGlobal is about the fields of global policies.
var invalidGlobal = []struct{ spec, want string }{
	{"namespaceSelector: 'has()'", "spec.namespaceSelector: position 5: expected a label"},
	{"namespaceSelector: global()", "spec.namespaceSelector: global() may stand in the namespaceSelector of a rule only"},
	{"preDNAT: true, doNotTrack: true, applyOnForward: true", "spec.preDNAT: must not be true beside doNotTrack"},
	{"preDNAT: true", "spec.applyOnForward: must be true in a policy with doNotTrack or preDNAT"},
	{"doNotTrack: true, applyOnForward: false", "spec.applyOnForward: must be true in a policy with doNotTrack or preDNAT"},
	{"preDNAT: true, applyOnForward: true, egress: [{action: Allow}]", "spec.egress: a policy with preDNAT must not have egress rules"},
	{"preDNAT: true, applyOnForward: true, types: [Egress]", "spec.types: a policy with preDNAT must not have type Egress"},
	{"doNotTrack: yes please", "spec.doNotTrack: string where true or false is expected"},
	{"ingress: [{action: Allow, source: {services: {name: a}}}]", "spec.ingress[0].source.services.namespace: must be there: the policy has no namespace of its own"},
	{"egress: [{action: Allow, destination: {services: {name: a}}}]", "spec.egress[0].destination.services.namespace: must be there"},
}

// list is a list of n entries. A format with a number gets different ones.
func list(n int, format string, numbers int) string {
	entries := make([]string, n)
	for i := range entries {
		if entries[i] = format; numbers > 0 {
			entries[i] = fmt.Sprintf(strings.Replace(format, "%d.0", "%[2]d.%[1]d", 1), i%256, i/256)
			entries[i], _, _ = strings.Cut(entries[i], "%!")
		}
	}
	return "[" + strings.Join(entries, ", ") + "]"
}

// policyKinds are the kinds with rules, by whether they are global.
var policyKinds = map[string]bool{
	"NetworkPolicy": false, "StagedNetworkPolicy": false, "GlobalNetworkPolicy": true, "StagedGlobalNetworkPolicy": true,
}

func metadataOf(global bool) string {
	if global {
		return "name: a"
	}
	return "name: a, namespace: shop"
}

// invalidObjects are all of them.
func invalidObjects() []invalid {
	var all []invalid
	for kind, global := range policyKinds {
		add := func(spec, want string) { all = append(all, invalid{kind, metadataOf(global), spec, want}) }
		for _, p := range invalidPolicies {
			add(p.spec, p.want)
		}
		if global {
			for _, p := range invalidGlobal {
				add(p.spec, p.want)
			}
		} else {
			add("namespaceSelector: all()", "spec.namespaceSelector: unknown field")
			add("doNotTrack: true", "spec.doNotTrack: unknown field")
			add("preDNAT: true", "spec.preDNAT: unknown field")
			add("applyOnForward: true", "spec.applyOnForward: unknown field")
		}
		for _, list := range []struct{ name, remote, own string }{{"ingress", "source", "destination"}, {"egress", "destination", "source"}} {
			at := "spec." + list.name + "[0]."
			for _, r := range invalidRules {
				add(list.name+": ["+r.rule+"]", at+r.want)
			}
			for _, s := range invalidSides {
				for _, side := range []string{list.remote, list.own} {
					add(fmt.Sprintf("%s: [{action: Allow, %s%s: {%s}}]", list.name, s.protocol, side, s.side), at+side+"."+s.want)
				}
			}
			for _, s := range invalidServices {
				add(fmt.Sprintf("%s: [{action: Allow, %s: {%s}}]", list.name, list.remote, s.side), at+list.remote+"."+s.want)
			}
			add(fmt.Sprintf("%s: [{action: Allow, %s: {services: {name: a, namespace: x}}}]", list.name, list.own),
				at+list.own+".services: may stand in the source of an ingress rule or the destination of an egress rule only")
		}
		add("egress: [{action: Allow, protocol: TCP, destination: {services: {name: a, namespace: x}, ports: [80]}}]",
			"spec.egress[0].destination.ports: must not stand beside services")
		add("egress: [{action: Allow, destination: {services: {name: a, namespace: x}, notPorts: [http]}}]",
			"spec.egress[0].destination.notPorts: must not stand beside services")
	}
	return append(all, invalidOthers...)
}

// TestInvalidObjectsHaveOneClearLine is about each field, and each rule of the schemas: the object is not used, and one line
// names the object, the field, and what is wanted.
func TestInvalidObjectsHaveOneClearLine(t *testing.T) {
	all := invalidObjects()
	if len(all) < 300 {
		t.Errorf("only %d objects", len(all))
	}
	for _, o := range all {
		d := parse(t, o.kind, o.metadata, o.spec)
		ref := strings.Fields(o.kind)
		name := "a"
		if d.Ref.Namespace != "" {
			name = d.Ref.Namespace + "/a"
		}
		if d.Ref.Name != "a" {
			name = d.Ref.String()[strings.LastIndexByte(d.Ref.String(), ' ')+1:]
		}
		want := ref[len(ref)-1]
		if want == "NetworkPolicy" {
			want += ".projectcalico.org"
		}
		want += " " + name + ": rejected: " + o.want
		if d.OK || len(d.Updates) > 0 || len(d.Problems) != 1 || d.Problems[0].Severity != validate.Rejected {
			t.Errorf("%s {%.200s}: used %v, %d problems, want one that is %s\n%s", o.kind, o.spec, d.OK, len(d.Problems), want, problemText(d))
			continue
		}
		if _, got, _ := strings.Cut(d.Problems[0].String(), ": "); !strings.HasPrefix(got, want) {
			t.Errorf("%s {%.200s}\ngot  %s\nwant %s", o.kind, o.spec, got, want)
		}
	}
	t.Logf("%d objects", len(all))
}
