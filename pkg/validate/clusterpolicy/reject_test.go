package clusterpolicy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/validate"
)

func repeated(n int, text string) string { return strings.Repeat(text+", ", n) }

// What the schema of the released CRD rejects, one problem each, with line, object, field and what is wanted.
var rejected = []struct{ spec, want string }{
	{"priority: 1, subject: {namespaces: {}}", "spec.tier: Required value: must be set"},
	{"tier: Middle, priority: 1, subject: {namespaces: {}}", `spec.tier: Unsupported value: "Middle": supported values: "Admin", "Baseline"`},
	{"tier: admin, priority: 1, subject: {namespaces: {}}", `spec.tier: Unsupported value: "admin": supported values: "Admin", "Baseline"`},
	{"tier: Admin, subject: {namespaces: {}}", "spec.priority: Required value: must be set"},
	{"tier: Admin, priority: null, subject: {namespaces: {}}", "spec.priority: Required value: must be set"},
	{"tier: Admin, priority: -1, subject: {namespaces: {}}", "spec.priority: Invalid value: -1: must be in 0-1000"},
	{"tier: Admin, priority: 1001, subject: {namespaces: {}}", "spec.priority: Invalid value: 1001: must be in 0-1000"},
	{"tier: Admin, priority: '1', subject: {namespaces: {}}", "spec.priority: string where an integer of at most 32 bits is expected"},
	{"tier: Admin, priority: 1.5, subject: {namespaces: {}}", "spec.priority: number 1.5 where an integer of at most 32 bits is expected"},
	{"tier: Admin, priority: 1", "spec.subject: Required value: must be set"},
	{"tier: Admin, priority: 1, subject: {}", "spec.subject: Required value: exactly one of namespaces and pods must be set"},
	{"tier: Admin, priority: 1, subject: {namespaces: {}, pods: {podSelector: {}}}", `spec.subject: Invalid value: "namespaces, pods": exactly one of namespaces and pods must be set`},
	{"tier: Admin, priority: 1, subject: {pods: {}}", "spec.subject.pods.podSelector: Required value: must be set"},
	{"tier: Admin, priority: 1, subject: {nodes: {}}", "spec.subject.nodes: unknown field"},
	{"tier: Admin, priority: 1, subject: {namespaces: {matchExpressions: [{key: a, operator: Near}]}}", `spec.subject.namespaces.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator`},
	{"tier: Admin, priority: 1, subject: {namespaces: {}}, ingres: []", "spec.ingres: unknown field (did you mean ingress?)"},
}

// What it rejects in a rule.
var rejectedRules = []struct{ rules, want string }{
	{"ingress: [{from: [{namespaces: {}}]}]", "spec.ingress[0].action: Required value: must be set"},
	{"ingress: [{action: Allow, from: [{namespaces: {}}]}]", `spec.ingress[0].action: Unsupported value: "Allow": supported values: "Accept", "Deny", "Pass"`},
	{"ingress: [{action: Deny}]", "spec.ingress[0].from: Required value: a rule must have a peer"},
	{"ingress: [{action: Deny, from: []}]", "spec.ingress[0].from: Required value: a rule must have a peer"},
	{"egress: [{action: Deny}]", "spec.egress[0].to: Required value: a rule must have a peer"},
	{"ingress: [{action: Deny, to: [{namespaces: {}}]}]", "spec.ingress[0].to: unknown field"},
	{"ingress: [{action: Deny, from: [{}]}]", "spec.ingress[0].from[0]: Required value: exactly one of namespaces and pods must be set"},
	{"ingress: [{action: Deny, from: [{networks: [10.0.0.0/8]}]}]", "spec.ingress[0].from[0].networks: unknown field"},
	{"ingress: [{action: Deny, from: [{pods: {namespaceSelector: {}}}]}]", "spec.ingress[0].from[0].pods.podSelector: Required value: must be set"},
	{"egress: [{action: Deny, to: [{}]}]", "spec.egress[0].to[0]: Required value: exactly one of namespaces, pods, nodes, networks and domainNames must be set"},
	{"egress: [{action: Deny, to: [{namespaces: {}, networks: [10.0.0.0/8]}]}]", `spec.egress[0].to[0]: Invalid value: "namespaces, networks": exactly one of`},
	{"egress: [{action: Deny, to: [{networks: []}]}]", "spec.egress[0].to[0].networks: Required value: a list of networks must not be empty"},
	{"egress: [{action: Deny, to: [{networks: [10.0.0.0]}]}]", `spec.egress[0].to[0].networks[0]: Invalid value: "10.0.0.0": must be an IPv4 or IPv6 CIDR, such as 10.0.0.0/8 or fd00::/8`},
	{"egress: [{action: Deny, to: [{networks: [10.0.0.0/8, 10.0.0.0/8]}]}]", `spec.egress[0].to[0].networks[1]: Duplicate value: "10.0.0.0/8"`},
	{"egress: [{action: Deny, to: [{networks: ['" + strings.Repeat("0", 40) + "::/8']}]}]", "spec.egress[0].to[0].networks[0]: Too long: may not be more than 43 bytes"},
	{"egress: [{action: Accept, to: [{domainNames: []}]}]", "spec.egress[0].to[0].domainNames: Required value: a list of domainNames must not be empty"},
	{"egress: [{action: Accept, to: [{domainNames: [a.*.com]}]}]", `spec.egress[0].to[0].domainNames[0]: Invalid value: "a.*.com": must be a name of a domain, such as example.com or *.example.com`},
	{"egress: [{action: Accept, to: [{domainNames: [a.com, a.com]}]}]", `spec.egress[0].to[0].domainNames[1]: Duplicate value: "a.com"`},
	{"egress: [{action: Accept, to: [{networks: [10.0.0.0/8]}], protocols: [{destinationNamedPort: web}]}]", "spec.egress[0].protocols: Forbidden: destinationNamedPort must not stand beside a peer of networks, nodes or domainNames, which have no named ports"},
	{"egress: [{action: Accept, to: [{nodes: {}}], protocols: [{destinationNamedPort: web}]}]", "spec.egress[0].protocols: Forbidden: destinationNamedPort"},
	{"ingress: [{action: Deny, from: [{namespaces: {}}], protocols: []}]", "spec.ingress[0].protocols: Required value: leave the field out to match every protocol"},
	{"ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{}]}]", "spec.ingress[0].protocols[0]: Required value: exactly one of tcp, udp, sctp and destinationNamedPort must be set"},
	{"ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 1}}, udp: {destinationPort: {number: 1}}}]}]", `spec.ingress[0].protocols[0]: Invalid value: "tcp, udp": exactly one of`},
	{"ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{tcp: {}}]}]", "spec.ingress[0].protocols[0].tcp: Required value: destinationPort must be set"},
	{"ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{udp: {destinationPort: {}}}]}]", "spec.ingress[0].protocols[0].udp.destinationPort: Required value: exactly one of number and range must be set"},
	{"ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{sctp: {destinationPort: {number: 1, range: {start: 1, end: 2}}}}]}]", `spec.ingress[0].protocols[0].sctp.destinationPort: Invalid value: "number, range": exactly one of`},
	{"ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 0}}}]}]", "spec.ingress[0].protocols[0].tcp.destinationPort.number: Invalid value: 0: must be in 1-65535"},
	{"ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 65536}}}]}]", "spec.ingress[0].protocols[0].tcp.destinationPort.number: Invalid value: 65536: must be in 1-65535"},
	{"ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {range: {start: 1}}}}]}]", "spec.ingress[0].protocols[0].tcp.destinationPort.range.end: Required value: must be set"},
	{"ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {range: {end: 1}}}}]}]", "spec.ingress[0].protocols[0].tcp.destinationPort.range.start: Required value: must be set"},
	{"ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {range: {start: 0, end: 1}}}}]}]", "spec.ingress[0].protocols[0].tcp.destinationPort.range.start: Invalid value: 0: must be in 1-65535"},
	{"ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {range: {start: 1, end: 65536}}}}]}]", "spec.ingress[0].protocols[0].tcp.destinationPort.range.end: Invalid value: 65536: must be in 1-65535"},
	{"ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {range: {start: 5, end: 5}}}}]}]", `spec.ingress[0].protocols[0].tcp.destinationPort.range: Invalid value: "5-5": start must be less than end`},
	{"ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: 80}}]}]", "spec.ingress.protocols.tcp.destinationPort: number where an object is expected"},
	{"ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{destinationNamedPort: 80}]}]", "spec.ingress.protocols.destinationNamedPort: number where a string is expected; put it in quotes"},
	{"ingress: [{action: Deny, from: {namespaces: {}}}]", "spec.ingress.from: object where a list is expected"},
	{"ingress: [{action: Deny, action: Deny, from: [{namespaces: {}}]}]", "spec.ingress[0].action: field is written twice"},
	{"ingress: [{action: Deny, from: [{namespaces: {matchLabel: {a: b}}}]}]", "spec.ingress[0].from[0].namespaces.matchLabel: unknown field (did you mean matchLabels?)"},
	{"ingress: [{action: Deny, from: [{namespaces: {matchExpressions: [{operator: Exists}]}}]}]", "spec.ingress[0].from[0].namespaces.matchExpressions[0].key: Required value: must be set"},
	{"egress: [{action: Deny, to: [{pods: {podSelector: {matchExpressions: [{key: a}]}}}]}]", "spec.egress[0].to[0].pods.podSelector.matchExpressions[0].operator: Required value: must be set"},
	{fmt.Sprintf("ingress: [{name: %s, action: Deny, from: [{namespaces: {}}]}]", strings.Repeat("x", 101)), "spec.ingress[0].name: Too long: may not be more than 100 bytes"},
	{"ingress: [" + repeated(26, "{action: Deny, from: [{namespaces: {}}]}") + "]", "spec.ingress: Too many: 26: must have at most 25 items"},
	{"egress: [" + repeated(26, "{action: Deny, to: [{namespaces: {}}]}") + "]", "spec.egress: Too many: 26: must have at most 25 items"},
	{"ingress: [{action: Deny, from: [" + repeated(26, "{namespaces: {}}") + "]}]", "spec.ingress[0].from: Too many: 26: must have at most 25 items"},
	{"egress: [{action: Deny, to: [" + repeated(26, "{namespaces: {}}") + "]}]", "spec.egress[0].to: Too many: 26: must have at most 25 items"},
	{"egress: [{action: Deny, to: [{namespaces: {}}], protocols: [" + repeated(26, "{tcp: {destinationPort: {number: 1}}}") + "]}]", "spec.egress[0].protocols: Too many: 26: must have at most 25 items"},
	{"egress: [{action: Deny, to: [{networks: [" + networks(26) + "]}]}]", "spec.egress[0].to[0].networks: Too many: 26: must have at most 25 items"},
}

func networks(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("10.%d.0.0/16", i))
	}
	return strings.Join(all, ", ")
}

func TestManifestsAreRejectedAsByTheCRD(t *testing.T) {
	check := func(text, want string) {
		t.Helper()
		d := parse(t, text)
		if d.OK || len(d.Updates) > 0 || len(d.Problems) != 1 {
			t.Errorf("used: %v, problems %v\nwant %s", d.OK, d.Problems, want)
			return
		}
		p := d.Problems[0]
		if got := p.Field + ": " + p.Reason; p.Severity != validate.Rejected || !strings.HasPrefix(got, want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if p.Ref.Kind != "ClusterNetworkPolicy" || p.Ref.Name != "guard" || p.Ref.Line < 4 {
			t.Errorf("%s: about %+v", want, p.Ref)
		}
	}
	for _, test := range rejected {
		check(manifest(test.spec), test.want)
	}
	for _, test := range rejectedRules {
		check(admin(test.rules), test.want)
	}
}

// The same values at the limits are used.
func TestManifestsAtTheLimitsAreUsed(t *testing.T) {
	for _, rules := range []string{
		"ingress: [" + repeated(25, "{action: Deny, from: [{namespaces: {}}]}") + "], egress: [" + repeated(25, "{action: Deny, to: [{namespaces: {}}]}") + "]",
		"egress: [{action: Deny, to: [" + repeated(25, "{namespaces: {}}") + "]}]",
		"egress: [{action: Deny, to: [{networks: [" + networks(25) + "]}]}]",
		"egress: [{action: Deny, to: [{namespaces: {}}], protocols: [" + repeated(25, "{tcp: {destinationPort: {number: 65535}}}") + "]}]",
		"egress: [{name: " + strings.Repeat("x", 100) + ", action: Deny, to: [{namespaces: {}}]}]",
		"egress: [{action: Deny, to: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {range: {start: 1, end: 65535}}}}]}]",
	} {
		if d := parse(t, admin(rules)); !d.OK || len(d.Problems) > 0 {
			t.Errorf("%.60s...: %v", rules, d.Problems)
		}
	}
	for _, spec := range []string{"tier: Admin, priority: 1000, subject: {namespaces: {}}", "tier: Admin, priority: 0, subject: {namespaces: {}}"} {
		if d := parse(t, manifest(spec)); !d.OK || len(d.Problems) > 0 {
			t.Errorf("%s: %v", spec, d.Problems)
		}
	}
}
