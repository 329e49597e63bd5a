package explain

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

// members are sets by id, each with the addresses in it.
type members map[model.SetID][]string

func (m members) SetContains(id model.SetID, addr netip.Addr) bool {
	for _, text := range m[id] {
		if netip.MustParseAddr(text) == addr {
			return true
		}
	}
	return false
}

func (m members) SetText(id model.SetID) (string, bool) {
	_, ok := m[id]
	return "selector " + string(id), ok
}

func number(p uint8) *uint8 { return &p }

func nets(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, t := range texts {
		list = append(list, netip.MustParsePrefix(t))
	}
	return list
}

func tcp(src, dst string, port uint16) model.Packet {
	return model.Packet{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Protocol: model.ProtoTCP, SrcPort: 40000, DstPort: port}
}

func ping(src, dst string, typ, code uint8) model.Packet {
	p := model.Packet{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Protocol: model.ProtoICMP, ICMPType: typ, ICMPCode: code}
	if p.Src.Is6() {
		p.Protocol = model.ProtoICMPv6
	}
	return p
}

func TestMismatchNamesTheFirstClauseThatDoesNotFit(t *testing.T) {
	sets := members{"web": {"10.0.0.1"}, "pg": {"10.0.0.3"}, "none": nil}
	v4, v6 := tcp("10.0.0.1", "10.0.0.3", 5432), tcp("fd00::1", "fd00::3", 5432)
	side := func(s model.Side) model.MatchRule { return model.MatchRule{Source: s} }
	to := func(s model.Side) model.MatchRule { return model.MatchRule{Destination: s} }
	for _, test := range []struct {
		name string
		rule model.MatchRule
		pkt  model.Packet
		want string
	}{
		{"no clause", model.MatchRule{}, v4, ""},
		{"unmatchable", model.MatchRule{Unmatchable: "http is not enforced"}, v4, "http is not enforced"},
		{"ip version", model.MatchRule{IPVersion: 4}, v4, ""},
		{"other ip version", model.MatchRule{IPVersion: 6}, v4, "is for IPv6"},
		{"protocol", model.MatchRule{Protocol: number(6)}, v4, ""},
		{"other protocol", model.MatchRule{Protocol: number(17)}, v4, "protocol is not udp"},
		{"excluded protocol", model.MatchRule{NotProtocol: number(6)}, v4, "protocol is tcp, which is excluded"},
		{"icmp over IPv6", model.MatchRule{Protocol: number(1)}, model.Packet{Src: v6.Src, Dst: v6.Dst, Protocol: 1}, "icmp is not the ICMP of IPv6"},
		{"icmpv6 over IPv4", model.MatchRule{Protocol: number(58)}, model.Packet{Src: v4.Src, Dst: v4.Dst, Protocol: 58}, "icmpv6 is not the ICMP of IPv4"},
		{"icmp type", model.MatchRule{ICMP: &model.ICMPMatch{Type: 8}}, ping("10.0.0.1", "10.0.0.3", 8, 4), ""},
		{"icmp code", model.MatchRule{ICMP: &model.ICMPMatch{Type: 8, Code: number(0)}}, ping("10.0.0.1", "10.0.0.3", 8, 4), "icmp type 8 code 4 is not type 8 code 0"},
		{"icmpv6 type", model.MatchRule{ICMP: &model.ICMPMatch{Type: 128}}, ping("fd00::1", "fd00::3", 129, 0), "icmpv6 type 129 code 0 is not type 128"},
		{"icmp of another protocol", model.MatchRule{ICMP: &model.ICMPMatch{Type: 0}}, v4, "protocol is tcp, and the rule wants icmp type 0"},
		{"icmp of the other IP version", model.MatchRule{ICMP: &model.ICMPMatch{Type: 8}},
			model.Packet{Src: v6.Src, Dst: v6.Dst, Protocol: 1, ICMPType: 8}, "protocol is icmp, and the rule wants icmpv6 type 8"},
		{"excluded icmp", model.MatchRule{NotICMP: &model.ICMPMatch{Type: 128}}, ping("fd00::1", "fd00::3", 128, 0), "icmpv6 type 128 code 0 is excluded by type 128"},
		{"excluded icmp of another type", model.MatchRule{NotICMP: &model.ICMPMatch{Type: 128}}, ping("fd00::1", "fd00::3", 129, 0), ""},
		{"in set", side(model.Side{In: []model.SetID{"web"}}), v4, ""},
		{"not in set", side(model.Side{In: []model.SetID{"web", "pg"}}), v4, "source 10.0.0.1 is not in {selector pg}"},
		{"not in a set nobody knows", side(model.Side{In: []model.SetID{"x"}}), v4, "source 10.0.0.1 is not in {x}"},
		{"in excluded set", to(model.Side{NotIn: []model.SetID{"pg"}}), v4, "destination 10.0.0.3 is in {selector pg}, which is excluded"},
		{"in nets", to(model.Side{Nets: nets("10.0.0.0/30", "fd00::/64")}), v4, ""},
		{"not in nets", to(model.Side{Nets: nets("10.0.0.0/31")}), v4, "destination 10.0.0.3 is not in 10.0.0.0/31"},
		{"nets of the other family", to(model.Side{Nets: nets("10.0.0.0/8")}), v6, "destination fd00::3 is not in 10.0.0.0/8"},
		{"excluded nets", to(model.Side{NotNets: nets("10.0.0.0/8")}), v4, "destination 10.0.0.3 is in 10.0.0.0/8, which is excluded"},
		{
			"excluded nets of the other family", to(model.Side{NotNets: nets("10.0.0.0/8")}), v6,
			"destination excludes only networks of the other family, so the rule is not for this one",
		},
		{"port in range", to(model.Side{Ports: &model.PortMatch{Ranges: []model.PortRange{{Lo: 5000, Hi: 6000}}}}), v4, ""},
		{"port", to(model.Side{Ports: &model.PortMatch{Ranges: []model.PortRange{{Lo: 80, Hi: 80}, {Lo: 8000, Hi: 8080}}}}), v4,
			"destination port 5432 is not among 80, 8000-8080"},
		{"source port", side(model.Side{Ports: &model.PortMatch{Ranges: []model.PortRange{{Lo: 53, Hi: 53}}}}), v4, "source port 40000 is not among 53"},
		{"excluded port", to(model.Side{NotPorts: &model.PortMatch{Ranges: []model.PortRange{{Lo: 1, Hi: 9999}}}}), v4,
			"destination port 5432 is excluded by 1-9999"},
		{"ports of a protocol without", to(model.Side{Ports: &model.PortMatch{Ranges: []model.PortRange{{Lo: 0, Hi: 65535}}}}), ping("10.0.0.1", "10.0.0.3", 8, 0),
			"icmp has no ports, and the rule wants destination port 0-65535"},
		{"named port", to(model.Side{Ports: &model.PortMatch{Named: []model.PortSet{{Protocol: 6, Port: 5432, Set: "pg"}}}}), v4, ""},
		{"named port of another pod", to(model.Side{Ports: &model.PortMatch{Named: []model.PortSet{{Protocol: 6, Port: 5432, Set: "web"}}}}), v4,
			"destination 10.0.0.3 port 5432/tcp is not among 5432/tcp of {selector web}"},
		{"named port with another number", to(model.Side{Ports: &model.PortMatch{Named: []model.PortSet{{Protocol: 6, Port: 80, Set: "pg"}}}}), v4,
			"destination 10.0.0.3 port 5432/tcp is not among 80/tcp of {selector pg}"},
		{"named port nobody has", to(model.Side{Ports: &model.PortMatch{}}), v4, "the destination is given by the name of a port or Service, and no pod or backend that it could mean has such a port"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := mismatch(&test.rule, test.pkt, sets); got.String() != test.want || (got == nil) != (test.want == "") {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

func TestProtocolNamesAreReadBack(t *testing.T) {
	for p := range 256 {
		name := ProtocolName(uint8(p))
		n, err := protocolNumber(name)
		if p == 0 {
			if err == nil {
				t.Error("protocol 0 can be asked for")
			}
			continue
		}
		if err != nil || n != uint8(p) {
			t.Errorf("protocol %d is named %q, which reads as %d, %v", p, name, n, err)
		}
	}
}
