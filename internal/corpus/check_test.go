package corpus

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/margay-project/margay/pkg/model"
)

const resources = `A case (§7).
-- r.yaml --
apiVersion: margay.test/v1
kind: Node
metadata: {name: n1}
addrs: [192.168.0.1, "fd00:192::1"]
---
apiVersion: margay.test/v1
kind: Node
metadata: {name: n2}
addrs: [192.168.0.2]
---
apiVersion: margay.test/v1
kind: Endpoint
metadata: {name: web, namespace: shop}
node: n1
addrs: [10.0.0.1, 10.0.0.11, "fd00::1"]
---
apiVersion: margay.test/v1
kind: Endpoint
metadata: {name: db, namespace: shop}
node: n2
addrs: [10.0.0.2]
`

func parseLine(line string) (Case, error) {
	return parse("case.txtar", []byte(resources+"-- expect --\n"+line+"\n"), nil)
}

func packet(src, dst string, proto uint8, sport, dport uint16) model.Packet {
	return model.Packet{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Protocol: proto, SrcPort: sport, DstPort: dport}
}

func TestCheckIsReadAsWritten(t *testing.T) {
	webID, dbID := model.WorkloadID("shop", "web"), model.WorkloadID("shop", "db")
	web, db := &webID, &dbID
	icmp := packet("10.0.0.1", "10.0.0.2", model.ProtoICMP, 0, 0)
	icmp.ICMPType, icmp.ICMPCode = 3, 4
	icmp6 := packet("2001:db8::1", "fd00::1", model.ProtoICMPv6, 0, 0)
	icmp6.ICMPType = 128
	tests := []struct {
		line string
		want Check
	}{
		{"shop/web -> shop/db:53/udp allow", Check{
			Packet: packet("10.0.0.1", "10.0.0.2", 17, 40000, 53), SrcEndpoint: web, DstEndpoint: db, Allow: true}},
		{"shop/web:9 -> 1.2.3.4:0/sctp deny", Check{
			Packet: packet("10.0.0.1", "1.2.3.4", 132, 9, 0), SrcEndpoint: web}},
		{"shop/web -> shop/web:80/tcp/v6 deny", Check{
			Packet: packet("fd00::1", "fd00::1", 6, 40000, 80), SrcEndpoint: web, DstEndpoint: web}},
		{"[2001:db8::1]:7 -> shop/web:80/tcp deny", Check{
			Packet: packet("2001:db8::1", "fd00::1", 6, 7, 80), DstEndpoint: web}},
		{"shop/web -> shop/db/icmp:3/4 deny", Check{Packet: icmp, SrcEndpoint: web, DstEndpoint: db}},
		{"[2001:db8::1] -> shop/web/icmpv6:128 deny", Check{Packet: icmp6, DstEndpoint: web}},
		{"shop/web -> shop/db/proto:47 deny", Check{
			Packet: packet("10.0.0.1", "10.0.0.2", 47, 0, 0), SrcEndpoint: web, DstEndpoint: db}},
		{"host -> shop/web:80/tcp/v6 allow", Check{
			Packet: packet("fd00:192::1", "fd00::1", 6, 40000, 80), DstEndpoint: web, FromHost: true, Allow: true}},
		{"host=n2 -> shop/web:80/tcp allow", Check{
			Packet: packet("192.168.0.2", "10.0.0.1", 6, 40000, 80), DstEndpoint: web, Allow: true}},
		{"203.0.113.5@n1 -> shop/web:80/tcp deny", Check{Packet: packet("192.168.0.1", "10.0.0.1", 6, 40000, 80), DstEndpoint: web,
			NodePort: true, Client: netip.MustParseAddr("203.0.113.5"), Masquerade: "n1"}},
		{"[2001:db8::1]@n1 -> shop/web:53/udp deny", Check{Packet: packet("fd00:192::1", "fd00::1", 17, 40000, 53), DstEndpoint: web,
			NodePort: true, Client: netip.MustParseAddr("2001:db8::1"), Masquerade: "n1"}},
		{"203.0.113.5@local -> shop/web:80/tcp deny", Check{Packet: packet("203.0.113.5", "10.0.0.1", 6, 40000, 80), DstEndpoint: web,
			NodePort: true, Client: netip.MustParseAddr("203.0.113.5")}},
		{"shop/db -> host=n1:22/tcp allow", Check{
			Packet: packet("10.0.0.2", "192.168.0.1", 6, 40000, 22), SrcEndpoint: db, Allow: true}},
		{"shop/web -> shop/db/udplite deny egress a#egress[0] passed b,c ingress d logged - # why", Check{
			Packet: packet("10.0.0.1", "10.0.0.2", 136, 0, 0), SrcEndpoint: web, DstEndpoint: db,
			Egress:  &Leg{By: "a#egress[0]", Passed: []string{"b", "c"}},
			Ingress: &Leg{By: "d", Logged: []string{}}}},
	}
	for _, test := range tests {
		t.Run(test.line, func(t *testing.T) {
			c, err := parseLine(test.line)
			if err != nil {
				t.Fatal(err)
			}
			opts := cmp.Options{cmpopts.IgnoreFields(Check{}, "File", "Line", "Text"), cmpopts.EquateComparable(netip.Addr{})}
			if diff := cmp.Diff([]Check{test.want}, c.Checks, opts); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCheckThatMakesNoSenseIsAnError(t *testing.T) {
	for _, line := range []string{
		"shop/web -> shop/db:53/udp",
		"shop/web -> shop/db:53/udp maybe",
		"shop/web => shop/db:53/udp allow",
		"shop/none -> shop/db:53/udp allow",
		"web -> shop/db:53/udp allow",
		"shop/web -> shop/db/udp allow",
		"shop/web -> shop/db:53 allow",
		"shop/web -> shop/db:65536/tcp allow",
		"shop/web -> shop/db:53/proto:17 allow",
		"shop/web:1 -> shop/db/icmp:8 allow",
		"shop/web -> shop/db/proto:256 allow",
		"shop/web -> shop/db:53/udp/v6 allow",
		"1.2.3.4 -> [2001:db8::1]:1/tcp allow",
		"1.2.3.4@n3 -> shop/db:1/tcp allow",
		"1.2.3.4@n1:5 -> shop/db:1/tcp allow",
		"1.2.3.4@ -> shop/db:1/tcp allow",
		"1.2.3.4@n1 -> shop/db:1/sctp allow",
		"1.2.3.4@n1 -> host:1/tcp allow",
		"shop/web@n1 -> shop/db:1/tcp allow",
		"shop/web -> 1.2.3.4@n1:1/tcp allow",
		"host -> 1.2.3.4:1/tcp allow",
		"host=n3 -> shop/db:1/tcp allow",
		"1.2.3.4 -> shop/db:1/tcp allow egress x",
		"shop/web -> shop/db:1/tcp allow passed x",
		"shop/web -> shop/db:1/tcp allow ingress",
	} {
		if c, err := parseLine(line); err == nil {
			t.Errorf("%q is read as %+v", line, c.Checks)
		} else if !strings.HasPrefix(err.Error(), fmt.Sprintf("case.txtar:%d: ", strings.Count(resources, "\n")+2)) {
			t.Errorf("%q: the error does not name file and line: %v", line, err)
		}
	}
}

func TestProblemsAreThoseListed(t *testing.T) {
	const policy = `A case (D-7).
-- r.yaml --
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p, namespace: shop}
spec:
  podSelector: {}
  ingress: [{from: [{ipBlock: {cidr: 1.2.3.4/33}}]}, {from: [{ipBlock: {cidr: 1.2.3.4/34}}]}]
`
	for _, test := range []struct {
		listed string
		ok     bool
	}{
		{"1.2.3.4/34\n1.2.3.4/33\n", true},
		{"1.2.3.4/33\n", false},
		{"1.2.3.4/33\n1.2.3.4/33\n", false},
		{"1.2.3.4/33\n1.2.3.4/34\nsomething else\n", false},
		{"", false},
	} {
		_, err := parse("case.txtar", []byte(policy+"-- problems --\n"+test.listed+"-- expect --\n"), nil)
		if (err == nil) != test.ok {
			t.Errorf("with %q listed: %v", test.listed, err)
		}
	}
}

// wrong is an engine that gives the oracle's verdicts but for one part.
type wrong struct {
	Oracle
	change func(*model.Verdict)
}

func (w *wrong) Judge(id model.EndpointID, dir model.Direction, pkt model.Packet) (model.Verdict, error) {
	v, err := w.Oracle.Judge(id, dir, pkt)
	w.change(&v)
	return v, err
}

func TestEveryPartOfAVerdictIsCompared(t *testing.T) {
	c, err := parseLine("shop/web -> shop/db:53/udp deny egress no-profile-match passed - logged -")
	if err != nil {
		t.Fatal(err)
	}
	probe := Probe{Endpoint: *c.Checks[0].SrcEndpoint, Direction: model.Egress, Packet: c.Checks[0].Packet}
	id := model.RuleID{Point: model.AtRule, Policy: model.PolicyKey{Name: "x"}}
	for name, change := range map[string]func(*model.Verdict){
		"allow":  func(v *model.Verdict) { v.Allow = true },
		"by":     func(v *model.Verdict) { v.By = id },
		"passed": func(v *model.Verdict) { v.Passed = []model.RuleID{id} },
		"logged": func(v *model.Verdict) { v.Logged = []model.RuleID{id} },
	} {
		if Agree([]Engine{&wrong{change: change}}, c.Updates, []Probe{probe}) == nil {
			t.Errorf("an engine with another %s agrees", name)
		}
		v := model.Verdict{By: model.RuleID{Point: model.AtNoProfile, Direction: model.Egress}}
		if change(&v); name != "allow" && c.Checks[0].Egress.diff(v) == "" {
			t.Errorf("a line does not notice another %s", name)
		}
	}
	if err := Agree([]Engine{&wrong{change: func(*model.Verdict) {}}}, c.Updates, []Probe{probe}); err != nil {
		t.Errorf("an engine that says the same does not agree: %v", err)
	}
}
