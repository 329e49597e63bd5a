package policytest

import (
	"fmt"
	"net/netip"
	"slices"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/model"
)

var (
	// Own4 and Own6 are the endpoint's own addresses.
	Own4, Own6 = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	// Remotes are addresses of others.
	Remotes = Addrs("10.0.0.2", "10.0.0.3", "10.1.0.1", "192.0.2.7", "203.0.113.9", "fd00::2", "fd00::3", "fd01::1", "2001:db8::1")
	// CIDRs are prefixes that hold some of them.
	CIDRs = Prefixes("0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/30", "10.1.0.0/16", "192.0.2.7/32", "0.0.0.0/1",
		"::/0", "fd00::/8", "fd00::/64", "2001:db8::1/128")
	ports  = []uint16{0, 1, 53, 80, 81, 443, 8080, 65534, 65535}
	protos = []uint8{1, 6, 17, 58, 132, 136, 47, 255}
)

// Addrs parses addresses.
func Addrs(texts ...string) (out []netip.Addr) {
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// Prefixes parses prefixes.
func Prefixes(texts ...string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// Everything is drawn from small pools so that rules and packets meet.

func drawOptional[T any](t *rapid.T, label string, oneIn int, g *rapid.Generator[T]) *T {
	if rapid.IntRange(1, oneIn).Draw(t, label+"?") != 1 {
		return nil
	}
	v := g.Draw(t, label)
	return &v
}

// DrawSome draws a list of up to most elements once in so many times, else none.
func DrawSome[T any](t *rapid.T, label string, oneIn, most int, g *rapid.Generator[T]) []T {
	if rapid.IntRange(1, oneIn).Draw(t, label+"?") != 1 {
		return nil
	}
	return rapid.SliceOfN(g, 1, most).Draw(t, label)
}

// DrawWorld draws an endpoint with an IPv4 address, often with an IPv6 address, and the members of sets.
func DrawWorld(t *rapid.T) *World {
	w := &World{Sets: map[model.SetID][]netip.Prefix{}, Own: []netip.Addr{Own4, Own6}}
	if rapid.IntRange(1, 5).Draw(t, "families") == 1 {
		w.Own = w.Own[:1]
	}
	for i := range 6 {
		id := model.SetID(fmt.Sprintf("s%d", i))
		w.Sets[id] = DrawSome(t, string(id), 1, 6, rapid.Custom(func(t *rapid.T) netip.Prefix {
			if rapid.IntRange(1, 5).Draw(t, "net") == 1 {
				return rapid.SampledFrom(CIDRs).Draw(t, "cidr")
			}
			a := rapid.SampledFrom(append(slices.Clone(Remotes), Own4, Own6)).Draw(t, "member")
			return netip.PrefixFrom(a, a.BitLen())
		}))
	}
	return w
}

var (
	// GenSet draws one of the sets of a World.
	GenSet   = rapid.Map(rapid.IntRange(0, 5), func(i int) model.SetID { return model.SetID(fmt.Sprintf("s%d", i)) })
	genProto = rapid.SampledFrom(protos)
	genICMP  = rapid.Custom(func(t *rapid.T) model.ICMPMatch {
		return model.ICMPMatch{
			Type: rapid.SampledFrom([]uint8{0, 3, 8, 128, 255}).Draw(t, "type"),
			Code: drawOptional(t, "code", 2, rapid.SampledFrom([]uint8{0, 1, 255})),
		}
	})
	genPorts = rapid.Custom(func(t *rapid.T) model.PortMatch {
		genRange := rapid.Custom(func(t *rapid.T) model.PortRange {
			lo, hi := rapid.SampledFrom(ports).Draw(t, "lo"), rapid.SampledFrom(ports).Draw(t, "hi")
			if rapid.Bool().Draw(t, "single") {
				hi = lo
			}
			return model.PortRange{Lo: min(lo, hi), Hi: max(lo, hi)}
		})
		genNamed := rapid.Custom(func(t *rapid.T) model.PortSet {
			return model.PortSet{
				Protocol: rapid.SampledFrom([]uint8{model.ProtoTCP, model.ProtoUDP, model.ProtoSCTP}).Draw(t, "proto"),
				Port:     rapid.SampledFrom(ports).Draw(t, "port"),
				Set:      GenSet.Draw(t, "set"),
			}
		})
		return model.PortMatch{Ranges: DrawSome(t, "ranges", 2, 8, genRange), Named: DrawSome(t, "named", 3, 3, genNamed)}
	})
	genSide = rapid.Custom(func(t *rapid.T) model.Side {
		return model.Side{
			In: DrawSome(t, "in", 3, 5, GenSet), NotIn: DrawSome(t, "notIn", 4, 5, GenSet),
			Nets: DrawSome(t, "nets", 6, 3, rapid.SampledFrom(CIDRs)), NotNets: DrawSome(t, "notNets", 8, 2, rapid.SampledFrom(CIDRs)),
			Ports: drawOptional(t, "ports", 4, genPorts), NotPorts: drawOptional(t, "notPorts", 6, genPorts),
		}
	})
	genRule = rapid.Custom(func(t *rapid.T) model.MatchRule {
		r := model.MatchRule{
			Action:      rapid.SampledFrom([]model.Action{model.Allow, model.Deny, model.Pass, model.Log}).Draw(t, "action"),
			IPVersion:   rapid.SampledFrom([]uint8{0, 0, 0, 4, 6}).Draw(t, "version"),
			Protocol:    drawOptional(t, "protocol", 3, genProto),
			NotProtocol: drawOptional(t, "notProtocol", 8, genProto),
			ICMP:        drawOptional(t, "icmp", 10, genICMP),
			NotICMP:     drawOptional(t, "notICMP", 10, genICMP),
			Source:      genSide.Draw(t, "source"),
			Destination: genSide.Draw(t, "destination"),
		}
		if rapid.IntRange(1, 20).Draw(t, "unmatchable") == 1 {
			r.Unmatchable = "http"
		}
		return r
	})
)

func drawRules(t *rapid.T, name string, kind model.PolicyKind) *model.PolicyRules {
	p := &model.PolicyRules{
		Key:    model.PolicyKey{Kind: kind, Name: name},
		Staged: kind != model.KindProfile && rapid.IntRange(1, 6).Draw(t, "staged") == 1,
		Rules:  rapid.SliceOfN(genRule, 0, 5).Draw(t, "rules"),
	}
	for i := range p.Rules {
		p.Rules[i].Index = i
	}
	return p
}

// DrawPolicy draws the policy of one direction.
func DrawPolicy(t *rapid.T) *model.DirectionPolicy {
	p := &model.DirectionPolicy{Direction: rapid.SampledFrom([]model.Direction{model.Ingress, model.Egress}).Draw(t, "direction")}
	for i := range rapid.IntRange(0, 4).Draw(t, "tiers") {
		tier := model.TierPolicy{
			Name: fmt.Sprintf("t%d", i), Default: rapid.SampledFrom([]model.Action{model.Deny, model.Pass}).Draw(t, "default"),
		}
		for j := range rapid.IntRange(1, 3).Draw(t, "policies") {
			tier.Policies = append(tier.Policies, drawRules(t, fmt.Sprintf("p%d-%d", i, j), model.KindGlobalNetworkPolicy))
		}
		p.Tiers = append(p.Tiers, tier)
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "profiles") {
		p.Profiles = append(p.Profiles, drawRules(t, fmt.Sprintf("profile%d", i), model.KindProfile))
	}
	return p
}

// DrawPacket draws a packet of that direction, from or to the endpoint.
func DrawPacket(t *rapid.T, w *World, d model.Direction) model.Packet {
	remote := rapid.SampledFrom(slices.DeleteFunc(slices.Clone(Remotes), func(a netip.Addr) bool {
		return a.Is6() && len(w.Own) == 1
	})).Draw(t, "remote")
	own := Own4
	if remote.Is6() {
		own = Own6
	}
	pkt := model.Packet{Src: remote, Dst: own, Protocol: genProto.Draw(t, "protocol")}
	if d == model.Egress {
		pkt.Src, pkt.Dst = own, remote
	}
	switch {
	case model.HasPorts(pkt.Protocol):
		pkt.SrcPort, pkt.DstPort = rapid.SampledFrom(ports).Draw(t, "sport"), rapid.SampledFrom(ports).Draw(t, "dport")
	case pkt.Protocol == model.ProtoICMP && own.Is4(), pkt.Protocol == model.ProtoICMPv6 && own.Is6():
		pkt.ICMPType = rapid.SampledFrom([]uint8{0, 3, 8, 128, 255}).Draw(t, "type")
		pkt.ICMPCode = rapid.SampledFrom([]uint8{0, 1, 255}).Draw(t, "code")
	}
	return pkt
}

// Truncated is what a verdict of the tables can say of v.
func Truncated(v model.Verdict) model.Verdict {
	v.Passed = v.Passed[:min(len(v.Passed), len(bpf.Outcome{}.Pass))]
	v.Logged = v.Logged[:min(len(v.Logged), len(bpf.Outcome{}.Log))]
	return v
}
