package calc

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/margay-project/margay/internal/oracle"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/staged"
)

// What the graph hands on must mean what the objects mean: a packet judged by the policies and sets of a flush, read
// literally as package model documents them, gets the verdict the naive evaluator gives for the objects themselves.
func TestPolicyMeansWhatTheObjectsMean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := world{}
		for range rapid.IntRange(5, 30).Draw(t, "objects") {
			w.set(drawUpdate(t))
		}
		// The evaluator also knows that a node reaches its pods, and believes any update of a built-in tier.
		delete(w, "node "+thisNode)
		delete(w, "node node-2")
		delete(w, "tier "+model.TierDefault)
		// It knows no routes, and no annotations.
		delete(w, "routes")
		for _, u := range w {
			if ep, ok := u.(model.EndpointUpdate); ok {
				ep.Endpoint.Unconfirmed = false
			}
		}
		dp, truth := fresh(t, "", w), oracle.New(w.updates())
		for _, id := range truth.Endpoints() {
			ep := dp.Endpoints[id]
			if ep == nil {
				t.Fatalf("endpoint %s has no policy", id)
			}
			for range 8 {
				dir := oneOf(t, "direction", model.Ingress, model.Egress)
				pkt, ok := drawPacket(t, ep, dir)
				if !ok {
					continue
				}
				policy := ep.Ingress
				if dir == model.Egress {
					policy = ep.Egress
				}
				want, got := truth.Judge(id, dir, pkt), dp.judge(policy, pkt)
				if !reflect.DeepEqual(want, got) {
					t.Fatalf("%s of %s, %+v (-objects +graph):\n%s", dir, id, pkt, cmp.Diff(want, got))
				}
				want, got = truth.JudgeStaged(id, dir, pkt), dp.judge(staged.Enforce(policy, staged.All), pkt)
				if !reflect.DeepEqual(want, got) {
					t.Fatalf("as if staged policies were enforced, %s of %s, %+v (-objects +graph):\n%s", dir, id, pkt, cmp.Diff(want, got))
				}
			}
		}
	})
}

// drawPacket draws a packet to or from the endpoint, but not one to itself.
func drawPacket(t *rapid.T, ep *model.EndpointPolicy, dir model.Direction) (pkt model.Packet, ok bool) {
	if len(ep.Addrs) == 0 {
		return pkt, false
	}
	own := oneOf(t, "own", ep.Addrs...)
	peer := drawAddr().Draw(t, "peer")
	if peer.Is4() != own.Is4() || slices.Contains(ep.Addrs, peer) {
		peer = netip.MustParseAddr("192.0.2.1")
		if own.Is6() {
			peer = netip.MustParseAddr("2001:db8::1")
		}
	}
	pkt = model.Packet{Src: peer, Dst: own, Protocol: oneOf(t, "packet protocol", model.ProtoTCP, model.ProtoUDP)}
	if dir == model.Egress {
		pkt.Src, pkt.Dst = own, peer
	}
	pkt.SrcPort, pkt.DstPort = oneOf[uint16](t, "sport", 53, 80, 8080), oneOf[uint16](t, "dport", 53, 80, 81, 8080)
	return pkt, true
}

// judge reads a DirectionPolicy as package model documents it.
func (d *dataplane) judge(policy *model.DirectionPolicy, pkt model.Packet) model.Verdict {
	dir := policy.Direction
	var v model.Verdict
	walk := func(tier string, p *model.PolicyRules) model.Action {
		for i := range p.Rules {
			r := &p.Rules[i]
			if !d.matches(r, pkt) {
				continue
			}
			at := model.RuleID{Point: model.AtRule, Direction: dir, Tier: tier, Policy: p.Key, Index: r.Index}
			switch r.Action {
			case model.Log:
				v.Logged = append(v.Logged, at)
			case model.Pass:
				v.Passed = append(v.Passed, at)
				return model.Pass
			default:
				v.Allow, v.By = r.Action == model.Allow, at
				return r.Action
			}
		}
		return 0
	}
	for _, tier := range policy.Tiers {
		enforced := slices.DeleteFunc(slices.Clone(tier.Policies), func(p *model.PolicyRules) bool { return p.Staged })
		if len(enforced) == 0 {
			continue
		}
		action := model.Action(0)
		for i := 0; i < len(enforced) && action == 0; i++ {
			action = walk(tier.Name, enforced[i])
		}
		switch end := (model.RuleID{Point: model.AtEndOfTier, Direction: dir, Tier: tier.Name, Policy: enforced[0].Key}); {
		case action == model.Allow || action == model.Deny:
			return v
		case action == 0 && tier.Default == model.Pass:
			v.Passed = append(v.Passed, end)
		case action == 0:
			v.By = end
			return v
		}
	}
	for _, p := range policy.Profiles {
		if a := walk("", p); a == model.Allow || a == model.Deny {
			return v
		}
	}
	v.By = model.RuleID{Point: model.AtNoProfile, Direction: dir}
	return v
}

func (d *dataplane) matches(r *model.MatchRule, pkt model.Packet) bool {
	return r.Unmatchable == "" && (r.Protocol == nil || *r.Protocol == pkt.Protocol) &&
		d.sideMatches(r.Source, pkt, pkt.Src, pkt.SrcPort) && d.sideMatches(r.Destination, pkt, pkt.Dst, pkt.DstPort)
}

func (d *dataplane) sideMatches(s model.Side, pkt model.Packet, addr netip.Addr, port uint16) bool {
	in := func(id model.SetID) bool { return d.contains(id, addr) }
	covers := func(p netip.Prefix) bool { return p.Contains(addr) }
	sameFamily := func(p netip.Prefix) bool { return p.Addr().Is4() == addr.Is4() }
	if slices.ContainsFunc(s.NotIn, in) || slices.ContainsFunc(s.NotNets, covers) ||
		s.Nets != nil && !slices.ContainsFunc(s.Nets, covers) ||
		s.NotNets != nil && !slices.ContainsFunc(s.NotNets, sameFamily) {
		return false
	}
	for _, id := range s.In {
		if !in(id) {
			return false
		}
	}
	hasPort := func(m *model.PortMatch) bool {
		return slices.ContainsFunc(m.Ranges, func(r model.PortRange) bool { return r.Contains(port) }) ||
			slices.ContainsFunc(m.Named, func(n model.PortSet) bool {
				return n.Protocol == pkt.Protocol && n.Port == port && in(n.Set)
			})
	}
	return (s.Ports == nil || hasPort(s.Ports)) && (s.NotPorts == nil || !hasPort(s.NotPorts))
}

func (d *dataplane) contains(id model.SetID, addr netip.Addr) bool {
	for p := range d.Sets[id] {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
