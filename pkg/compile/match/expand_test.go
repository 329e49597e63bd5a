package match_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

func named(proto uint8, port uint16, set model.SetID) *model.PortMatch {
	return &model.PortMatch{Named: []model.PortSet{{Protocol: proto, Port: port, Set: set}}}
}

// expandLines returns the entries of the rules alone, without the end of tier and the last one. CIDR lists are written
// as their prefixes.
func expandLines(t *testing.T, p *model.DirectionPolicy, w *policytest.World) []string {
	t.Helper()
	n := policytest.NewNumbers()
	prog, err := match.Expand(p, w, n)
	if err != nil {
		t.Fatal(err)
	}
	text := policytest.Dump(prog, n)
	for id, nets := range prog.NetSets {
		var list []string
		for _, p := range nets {
			list = append(list, p.String())
		}
		text = strings.ReplaceAll(text, string(id), "{"+strings.Join(list, ",")+"}")
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[:len(lines)-2]
}

func TestRulesBecomeEntries(t *testing.T) {
	type rule = model.MatchRule
	type side = model.Side
	set := func(ids ...model.SetID) []model.SetID { return ids }
	tests := []struct {
		name   string
		egress bool
		rule   model.MatchRule
		want   []string
	}{
		{"nothing said matches everything", false, rule{}, []string{"allow"}},
		{"deny", false, rule{Action: model.Deny}, []string{"deny"}},
		{"log", false, rule{Action: model.Log}, []string{"log"}},
		{"pass goes past the end of its tier", false, rule{Action: model.Pass}, []string{"pass ->2"}},
		{"unmatchable rules are left out", false, rule{Unmatchable: "http"}, nil},
		{"one family", false, rule{IPVersion: 6}, []string{"allow v6"}},

		{"protocol", false, rule{Protocol: policytest.Ref(model.ProtoTCP)}, []string{"allow proto=6"}},
		{"protocol without ports", false, rule{Protocol: policytest.Ref(uint8(47))}, []string{"allow proto=47"}},
		{"ICMP is IPv4", false, rule{Protocol: policytest.Ref(model.ProtoICMP)}, []string{"allow v4 proto=1"}},
		{"ICMPv6 is IPv6", false, rule{Protocol: policytest.Ref(model.ProtoICMPv6)}, []string{"allow v6 proto=58"}},
		{"ICMP on IPv6 cannot be", false, rule{Protocol: policytest.Ref(model.ProtoICMP), IPVersion: 6}, nil},
		{"not a protocol", false, rule{NotProtocol: policytest.Ref(model.ProtoUDP)}, []string{"allow proto!=17"}},
		{"a protocol and not another", false, rule{Protocol: policytest.Ref(model.ProtoTCP), NotProtocol: policytest.Ref(model.ProtoUDP)},
			[]string{"allow proto=6"}},
		{"a protocol and not the same", false, rule{Protocol: policytest.Ref(model.ProtoTCP), NotProtocol: policytest.Ref(model.ProtoTCP)}, nil},
		{"ICMP type", false, rule{Protocol: policytest.Ref(model.ProtoICMP), ICMP: &model.ICMPMatch{Type: 8}},
			[]string{"allow v4 proto=1 dport=2048-2303"}},
		{"ICMP type and code", false, rule{Protocol: policytest.Ref(model.ProtoICMPv6), ICMP: &model.ICMPMatch{Type: 1, Code: policytest.Ref(uint8(4))}},
			[]string{"allow v6 proto=58 dport=260-260"}},
		{"ICMP type without protocol", false, rule{ICMP: &model.ICMPMatch{Type: 0}},
			[]string{"allow v4 proto=1 dport=0-255", "allow v6 proto=58 dport=0-255"}},
		{"not an ICMP type", false, rule{Protocol: policytest.Ref(model.ProtoICMP), NotICMP: &model.ICMPMatch{Type: 8}},
			[]string{"allow v4 proto=1 dport=0-2047 dport=2304-65535"}},
		{"not an ICMP type, any protocol", false, rule{IPVersion: 4, NotICMP: &model.ICMPMatch{Type: 8}},
			[]string{"skip ->2 v4 proto=1 dport=2048-2303", "allow v4"}},

		{"ports", false, rule{Protocol: policytest.Ref(model.ProtoTCP), Destination: side{Ports: policytest.PortsOf(443, 443, 80, 88)}},
			[]string{"allow proto=6 dport=80-88 dport=443-443"}},
		{"ports that touch are one range", false, rule{Protocol: policytest.Ref(model.ProtoTCP), Destination: side{Ports: policytest.PortsOf(80, 81, 82, 90, 85, 86)}},
			[]string{"allow proto=6 dport=80-90"}},
		{"every port", false, rule{Protocol: policytest.Ref(model.ProtoTCP), Destination: side{Ports: policytest.PortsOf(0, 65535)}},
			[]string{"allow proto=6"}},
		{"an empty port list matches nothing", false, rule{Protocol: policytest.Ref(model.ProtoTCP), Destination: side{Ports: policytest.PortsOf()}}, nil},
		{"ports of a protocol that has none", false, rule{Protocol: policytest.Ref(model.ProtoUDPLite), Destination: side{Ports: policytest.PortsOf(80, 80)}}, nil},
		{"more than five ranges", false, rule{Protocol: policytest.Ref(model.ProtoTCP), Destination: side{Ports: policytest.PortsOf(1, 1, 3, 3, 5, 5, 7, 7, 9, 9, 11, 11)}},
			[]string{"allow proto=6 dport=1-1 dport=3-3 dport=5-5 dport=7-7 dport=9-9", "allow proto=6 dport=11-11"}},
		{"source ports, more than two ranges", false, rule{Protocol: policytest.Ref(model.ProtoUDP), Source: side{Ports: policytest.PortsOf(1, 1, 3, 3, 5, 5)}},
			[]string{"allow proto=17 sport=1-1 sport=3-3", "allow proto=17 sport=5-5"}},
		{"ports without protocol", false, rule{Destination: side{Ports: policytest.PortsOf(80, 80)}},
			[]string{"allow proto=6 dport=80-80", "allow proto=17 dport=80-80", "allow proto=132 dport=80-80"}},
		{"ports without protocol but not UDP", false, rule{NotProtocol: policytest.Ref(model.ProtoUDP), Destination: side{Ports: policytest.PortsOf(80, 80)}},
			[]string{"allow proto=6 dport=80-80", "allow proto=132 dport=80-80"}},
		{"not ports", false, rule{Protocol: policytest.Ref(model.ProtoTCP), Destination: side{NotPorts: policytest.PortsOf(80, 80)}},
			[]string{"allow proto=6 dport=0-79 dport=81-65535"}},
		{"not ports, but the first and the last", false, rule{Protocol: policytest.Ref(model.ProtoTCP), Destination: side{NotPorts: policytest.PortsOf(1, 65534)}},
			[]string{"allow proto=6 dport=0-0 dport=65535-65535"}},
		{"ports and not ports", false, rule{Protocol: policytest.Ref(model.ProtoTCP), Destination: side{Ports: policytest.PortsOf(80, 90), NotPorts: policytest.PortsOf(85, 85)}},
			[]string{"allow proto=6 dport=80-84 dport=86-90"}},
		{"not any port", false, rule{Protocol: policytest.Ref(model.ProtoTCP), Destination: side{NotPorts: policytest.PortsOf(0, 65535)}}, nil},
		{"not source ports, any protocol", false, rule{NotProtocol: policytest.Ref(model.ProtoTCP), Source: side{NotPorts: policytest.PortsOf(80, 80)}},
			[]string{"skip ->3 proto=17 sport=80-80", "skip ->3 proto=132 sport=80-80", "allow proto!=6"}},

		{"remote sets", false, rule{Source: side{In: set("a", "b", "a"), NotIn: set("c")}}, []string{"allow in=a in=b not=c"}},
		{"the remote side of egress is the destination", true, rule{Destination: side{In: set("a")}}, []string{"allow in=a"}},
		{"in a set and not in it", false, rule{Source: side{In: set("a"), NotIn: set("a")}}, nil},
		{"more than three sets", false, rule{Source: side{In: set("a", "b", "c", "d"), NotIn: set("e", "f", "g", "h", "i")}},
			[]string{"skip ->4 not=d", "skip ->4 in=h", "skip ->4 in=i", "allow in=a in=b in=c not=e not=f not=g"}},

		{"local sets are folded", false, rule{Destination: side{In: set("mine"), NotIn: set("theirs")}}, []string{"allow"}},
		{"local sets are folded by family", false, rule{Destination: side{In: set("mine4")}}, []string{"allow v4"}},
		{"local negated sets too", true, rule{Source: side{NotIn: set("mine4")}}, []string{"allow v6"}},
		{"not the endpoint's addresses", false, rule{Destination: side{In: set("theirs")}}, nil},
		{"local nets", false, rule{Destination: side{Nets: policytest.Prefixes("10.0.0.0/8")}}, []string{"allow v4"}},
		{"local not-nets without an IPv6 entry do not match IPv6", false, rule{Destination: side{NotNets: policytest.Prefixes("192.0.2.0/24")}},
			[]string{"allow v4"}},

		{"remote nets", false, rule{Source: side{Nets: policytest.Prefixes("10.1.0.0/16", "10.0.0.0/16", "10.1.2.0/24")}},
			[]string{"allow v4 in={10.0.0.0/16,10.1.0.0/16}"}},
		{"remote nets of both families", false, rule{Source: side{Nets: policytest.Prefixes("fd00::/8", "10.0.0.0/8")}},
			[]string{"allow in={10.0.0.0/8,fd00::/8}"}},
		{"every IPv4 address", false, rule{Source: side{Nets: policytest.Prefixes("0.0.0.0/0")}}, []string{"allow v4"}},
		{"every address", false, rule{Source: side{Nets: policytest.Prefixes("0.0.0.0/0", "::/0")}}, []string{"allow"}},
		{"every IPv4 address and some IPv6", false, rule{Source: side{Nets: policytest.Prefixes("0.0.0.0/0", "fd00::/8")}},
			[]string{"allow in={0.0.0.0/0,fd00::/8}"}},
		{"nets with an exception", false, rule{Source: side{Nets: policytest.Prefixes("0.0.0.0/0"), NotNets: policytest.Prefixes("10.0.0.0/8")}},
			[]string{"allow v4 not={10.0.0.0/8}"}},
		{"not every address of a family", false, rule{Source: side{NotNets: policytest.Prefixes("0.0.0.0/0", "fd00::/8")}},
			[]string{"allow v6 not={0.0.0.0/0,fd00::/8}"}},
		{"nets of the other family", false, rule{IPVersion: 4, Source: side{Nets: policytest.Prefixes("fd00::/8")}}, nil},

		{"a remote named port", true, rule{Destination: side{Ports: named(6, 8080, "web")}}, []string{"allow proto=6 dport=8080-8080 in=web"}},
		{"a remote source named port", false, rule{Source: side{Ports: named(17, 53, "dns")}}, []string{"allow proto=17 sport=53-53 in=dns"}},
		{"named port and ranges", true, rule{Protocol: policytest.Ref(model.ProtoTCP), Destination: side{In: set("a", "b", "c"),
			Ports: &model.PortMatch{Ranges: []model.PortRange{{Lo: 80, Hi: 80}}, Named: named(6, 8080, "web").Named}}},
			[]string{"skip ->3 not=c", "allow proto=6 dport=80-80 in=a in=b", "allow proto=6 dport=8080-8080 in=a in=b in=web"}},
		{"named port of another protocol", true, rule{Protocol: policytest.Ref(model.ProtoUDP), Destination: side{Ports: named(6, 8080, "web")}}, nil},
		{"the endpoint's named port", false, rule{Destination: side{Ports: named(6, 8080, "mine")}}, []string{"allow proto=6 dport=8080-8080"}},
		{"the endpoint's named port in one family", false, rule{Destination: side{Ports: named(6, 8080, "mine4")}},
			[]string{"allow v4 proto=6 dport=8080-8080"}},
		{"a named port the endpoint does not have", false, rule{Destination: side{Ports: named(6, 8080, "theirs")}}, nil},
		{"not a remote named port", true, rule{Destination: side{NotPorts: named(6, 8080, "web")}},
			[]string{"skip ->2 proto=6 dport=8080-8080 in=web", "allow"}},
		{"not the endpoint's named port", false, rule{Protocol: policytest.Ref(model.ProtoTCP), Destination: side{NotPorts: named(6, 8080, "mine")}},
			[]string{"allow proto=6 dport=0-8079 dport=8081-65535"}},
		{"not the endpoint's named port, which is so in one family", false, rule{Protocol: policytest.Ref(model.ProtoTCP), Destination: side{NotPorts: named(6, 8080, "mine4")}},
			[]string{"skip ->2 v4 proto=6 dport=8080-8080", "allow proto=6"}},
		{"not a named port of another protocol", true, rule{Protocol: policytest.Ref(model.ProtoUDP), Destination: side{NotPorts: named(6, 8080, "web")}},
			[]string{"allow proto=17"}},
		{"a packet that fits two alternatives is logged once", true, rule{Action: model.Log, Protocol: policytest.Ref(model.ProtoTCP), Destination: side{
			Ports: &model.PortMatch{Ranges: []model.PortRange{{Lo: 80, Hi: 80}}, Named: named(6, 80, "web").Named}}},
			[]string{"log proto=6 dport=80-80", "skip ->3 proto=6 dport=80-80", "log proto=6 dport=80-80 in=web"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := model.Ingress
			if tt.egress {
				d = model.Egress
			}
			got := expandLines(t, policytest.OnePolicy(d, tt.rule), policytest.ExpandWorld)
			if diff := cmp.Diff(tt.want, append([]string(nil), got...)); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAFamilyTheEndpointHasNoAddressOfIsLeftOut(t *testing.T) {
	w := &policytest.World{Own: []netip.Addr{policytest.Own4}}
	got := expandLines(t, policytest.OnePolicy(model.Ingress, model.MatchRule{}, model.MatchRule{IPVersion: 6}), w)
	if diff := cmp.Diff([]string{"allow v4"}, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

func TestTiersAndProfilesBecomeOneList(t *testing.T) {
	rules := func(kind model.PolicyKind, name string, staged bool, actions ...model.Action) *model.PolicyRules {
		p := &model.PolicyRules{Key: model.PolicyKey{Kind: kind, Name: name}, Staged: staged}
		for i, a := range actions {
			p.Rules = append(p.Rules, model.MatchRule{Action: a, Index: i, Protocol: policytest.Ref(uint8(i + 100))})
		}
		return p
	}
	gnp := model.KindGlobalNetworkPolicy
	p := &model.DirectionPolicy{
		Direction: model.Egress,
		Tiers: []model.TierPolicy{
			{Name: "admin", Default: model.Pass, Policies: []*model.PolicyRules{
				rules(gnp, "staged", true, model.Deny), rules(gnp, "a", false, model.Pass, model.Log), rules(gnp, "b", false, model.Deny),
			}},
			{Name: "trial", Default: model.Deny, Policies: []*model.PolicyRules{rules(gnp, "only-staged", true, model.Deny)}},
			{Name: "default", Default: model.Deny, Policies: []*model.PolicyRules{rules(gnp, "c", false, model.Pass)}},
		},
		Profiles: []*model.PolicyRules{
			rules(model.KindProfile, "kns.shop", false, model.Pass, model.Allow), rules(model.KindProfile, "ksa.shop.web", false, model.Pass),
		},
	}
	n := policytest.NewNumbers()
	prog, err := match.Expand(p, policytest.ExpandWorld, n)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range prog.Rules {
		got = append(got, policytest.DumpEntry(&prog.Rules[i], nil)+"  "+prog.IDs[i].String())
		if want := n.Rules[prog.IDs[i]]; prog.Rules[i].Id != want {
			t.Errorf("entry %d has rule number %d, want %d", i, prog.Rules[i].Id, want)
		}
	}
	want := []string{
		"pass ->4 proto=100  admin/gnp/a#egress[0]",
		"log proto=101  admin/gnp/a#egress[1]",
		"deny proto=100  admin/gnp/b#egress[0]",
		"pass ->4 end  admin/gnp/a#end-of-tier",
		"pass ->6 proto=100  default/gnp/c#egress[0]",
		"deny end  default/gnp/c#end-of-tier",
		"pass ->8 proto=100  profile/kns.shop#egress[0]",
		"allow proto=101  profile/kns.shop#egress[1]",
		"pass ->9 proto=100  profile/ksa.shop.web#egress[0]",
		"deny end  no-profile-match",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

func TestEqualNetListsAreOneSet(t *testing.T) {
	n := policytest.NewNumbers()
	prog, err := match.Expand(policytest.OnePolicy(model.Ingress,
		model.MatchRule{Source: model.Side{Nets: policytest.Prefixes("10.1.0.0/16", "10.2.0.0/16")}},
		model.MatchRule{Source: model.Side{Nets: policytest.Prefixes("10.2.3.4/16", "10.1.0.0/16", "10.1.1.0/24")}},
		model.MatchRule{Source: model.Side{NotNets: policytest.Prefixes("10.2.0.0/16", "10.1.0.0/16")}},
		model.MatchRule{Source: model.Side{NotNets: policytest.Prefixes("10.2.0.0/16")}},
	), policytest.ExpandWorld, n)
	if err != nil {
		t.Fatal(err)
	}
	if len(prog.Sets) != 2 || len(prog.NetSets) != 2 {
		t.Errorf("sets %v, definitions %v; want two", prog.Sets, prog.NetSets)
	}
	for id := range prog.NetSets {
		if !strings.HasPrefix(string(id), "net:") {
			t.Errorf("id %q does not begin with net:", id)
		}
	}
}

func TestAPolicyOfTooManyEntriesIsAnError(t *testing.T) {
	rule := func(i int) model.MatchRule { return model.MatchRule{Index: i, Action: model.Allow} }
	policy := policytest.OnePolicy(model.Ingress)
	for i := range match.MaxEntries - 2 {
		policy.Tiers[0].Policies[0].Rules = append(policy.Tiers[0].Policies[0].Rules, rule(i))
	}
	prog, err := match.Expand(policy, policytest.ExpandWorld, policytest.NewNumbers())
	if err != nil || len(prog.Rules) != match.MaxEntries {
		t.Fatalf("%d rules and two ends: %v", match.MaxEntries-2, err)
	}
	policy.Tiers[0].Policies[0].Rules = append(policy.Tiers[0].Policies[0].Rules, rule(match.MaxEntries))
	if _, err := match.Expand(policy, policytest.ExpandWorld, policytest.NewNumbers()); !errors.Is(err, match.ErrTooManyRules) || !strings.Contains(err.Error(), "ingress") {
		t.Errorf("one rule more: %v, want ErrTooManyRules of ingress", err)
	}
}
