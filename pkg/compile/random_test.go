package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/model"
	"pgregory.net/rapid"
)

var (
	own4, own6 = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	remotes    = addrs("10.0.0.2", "10.0.0.3", "10.1.0.1", "192.0.2.7", "203.0.113.9", "fd00::2", "fd00::3", "fd01::1", "2001:db8::1")
	cidrs      = prefixes("0.0.0.0/0", "10.0.0.0/8", "10.0.0.0/30", "10.1.0.0/16", "192.0.2.7/32", "0.0.0.0/1",
		"::/0", "fd00::/8", "fd00::/64", "2001:db8::1/128")
	ports  = []uint16{0, 1, 53, 80, 81, 443, 8080, 65534, 65535}
	protos = []uint8{1, 6, 17, 58, 132, 136, 47, 255}
)

func addrs(texts ...string) (out []netip.Addr) {
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// Generators. Everything is drawn from small pools so that rules and packets meet.
func drawOptional[T any](t *rapid.T, label string, oneIn int, g *rapid.Generator[T]) *T {
	if rapid.IntRange(1, oneIn).Draw(t, label+"?") != 1 {
		return nil
	}
	v := g.Draw(t, label)
	return &v
}

func drawSome[T any](t *rapid.T, label string, oneIn, most int, g *rapid.Generator[T]) []T {
	if rapid.IntRange(1, oneIn).Draw(t, label+"?") != 1 {
		return nil
	}
	return rapid.SliceOfN(g, 1, most).Draw(t, label)
}

func drawWorld(t *rapid.T) *world {
	w := &world{sets: map[model.SetID][]netip.Prefix{}, own: []netip.Addr{own4, own6}}
	if rapid.IntRange(1, 5).Draw(t, "families") == 1 {
		w.own = w.own[:1]
	}
	for i := range 6 {
		id := model.SetID(fmt.Sprintf("s%d", i))
		w.sets[id] = drawSome(t, string(id), 1, 6, rapid.Custom(func(t *rapid.T) netip.Prefix {
			if rapid.IntRange(1, 5).Draw(t, "net") == 1 {
				return rapid.SampledFrom(cidrs).Draw(t, "cidr")
			}
			a := rapid.SampledFrom(append(slices.Clone(remotes), own4, own6)).Draw(t, "member")
			return netip.PrefixFrom(a, a.BitLen())
		}))
	}
	return w
}

var (
	genSet   = rapid.Map(rapid.IntRange(0, 5), func(i int) model.SetID { return model.SetID(fmt.Sprintf("s%d", i)) })
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
				Protocol: rapid.SampledFrom(portProtocols).Draw(t, "proto"),
				Port:     rapid.SampledFrom(ports).Draw(t, "port"),
				Set:      genSet.Draw(t, "set"),
			}
		})
		return model.PortMatch{Ranges: drawSome(t, "ranges", 2, 8, genRange), Named: drawSome(t, "named", 3, 3, genNamed)}
	})
	genSide = rapid.Custom(func(t *rapid.T) model.Side {
		return model.Side{
			In: drawSome(t, "in", 3, 5, genSet), NotIn: drawSome(t, "notIn", 4, 5, genSet),
			Nets: drawSome(t, "nets", 6, 3, rapid.SampledFrom(cidrs)), NotNets: drawSome(t, "notNets", 8, 2, rapid.SampledFrom(cidrs)),
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

func drawPolicy(t *rapid.T) *model.DirectionPolicy {
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

func drawPacket(t *rapid.T, w *world, d model.Direction) model.Packet {
	remote := rapid.SampledFrom(slices.DeleteFunc(slices.Clone(remotes), func(a netip.Addr) bool {
		return a.Is6() && len(w.own) == 1
	})).Draw(t, "remote")
	own := own4
	if remote.Is6() {
		own = own6
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

// classesOf gives every remote address its class; equal ones share an id.
func (w *world) classesOf(p *Program, n *fakeNumbers) (byAddr map[netip.Addr]Class, all []Class) {
	byAddr = map[netip.Addr]Class{}
	ids := map[string]uint32{"4[]": ClassNone4, "6[]": ClassNone6}
	for _, a := range remotes {
		c := w.classOf(p, n, a)
		key := fmt.Sprint(c.Family, c.Sets)
		_, known := ids[key]
		if !known {
			ids[key] = uint32(len(ids))
		}
		c.ID = ids[key]
		byAddr[a] = c
		if !known {
			all = append(all, c)
		}
	}
	return byAddr, all
}

// truncated is what a verdict of the tables can say of v.
func truncated(v model.Verdict) model.Verdict {
	v.Passed = v.Passed[:min(len(v.Passed), len(bpf.Outcome{}.Pass))]
	v.Logged = v.Logged[:min(len(v.Logged), len(bpf.Outcome{}.Log))]
	return v
}

func TestTableAndInterpreterAgreeWithTheDefinitionOfPolicy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, p, n := drawWorld(t), drawPolicy(t), newFakeNumbers()
		prog, err := Expand(p, w, n)
		if err != nil {
			t.Fatal(err)
		}
		classes, all := w.classesOf(prog, n)
		table, wide := Build(prog, all, Limits{}), Build(prog, all, Limits{Wide: true})
		if table.Interpreted() || wide.Interpreted() {
			t.Fatal("the policy is interpreted; it should have a table")
		}
		reached := prog.Reached()
		for range 20 {
			pkt := drawPacket(t, w, p.Direction)
			remote := pkt.Src
			if p.Direction == model.Egress {
				remote = pkt.Dst
			}
			c := classes[remote]
			interpreted := prog.Interpret(c, pkt)
			if got := table.Eval(c.ID, pkt); got != interpreted {
				t.Fatalf("packet %+v of class %+v: table says %+v, interpreter %+v\n%s", pkt, c, got, interpreted, dump(prog, n))
			}
			if got := wide.Eval(c.ID, pkt); got != interpreted {
				t.Fatalf("packet %+v of class %+v: wide table says %+v, interpreter %+v\n%s", pkt, c, got, interpreted, dump(prog, n))
			}
			if i := int(interpreted.Rule); i < len(reached) && !reached[i] {
				t.Fatalf("packet %+v is decided by entry %d, which is said to be never reached\n%s", pkt, i, dump(prog, n))
			}
			want := w.verdict(p, pkt)
			if d := cmp.Diff(truncated(want), prog.Verdict(interpreted)); d != "" {
				t.Fatalf("packet %+v: wrong verdict (-want +got):\n%s\n%s", pkt, d, dump(prog, n))
			}
			if int(interpreted.Nlogs) != len(want.Logged) || int(interpreted.Npasses) != len(want.Passed) {
				t.Fatalf("packet %+v: %d logs and %d passes, want %d and %d", pkt, interpreted.Nlogs, interpreted.Npasses,
					len(want.Logged), len(want.Passed))
			}
		}
	})
}
