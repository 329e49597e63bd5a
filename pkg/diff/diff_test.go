package diff

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

var ports = []uint16{79, 80, 81, 443}

// drawState draws a few pods and policies. Pods may be missing, and addresses may be other pods'.
func drawState(t *rapid.T, label string) []model.Update {
	allow := []model.Rule{{Action: model.Allow}}
	list := []model.Update{model.ProfileUpdate{Name: "kns.a", Profile: &model.Profile{Ingress: allow, Egress: allow}},
		model.NodeUpdate{Name: "n1", Node: &model.Node{Addrs: []netip.Addr{netip.MustParseAddr("192.168.0.1")}}}}
	addrs := rapid.Permutation([]int{1, 2, 3, 4}).Draw(t, label+"addrs")
	for i := range 4 {
		if rapid.IntRange(0, 4).Draw(t, label+"missing") == 0 {
			continue
		}
		at := i + 1
		if rapid.IntRange(0, 5).Draw(t, label+"moved") == 0 {
			at = addrs[i]
		}
		list = append(list, model.EndpointUpdate{ID: pod(i), Endpoint: &model.Endpoint{Node: fmt.Sprintf("n%d", 1+i%2), Iface: fmt.Sprintf("cali%d", i),
			Addrs: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", at))}, Profiles: []string{"kns.a"},
			Labels: map[string]string{"app": rapid.SampledFrom([]string{"x", "y"}).Draw(t, label+"app")}}})
	}
	for i := range rapid.IntRange(0, 3).Draw(t, label+"policies") {
		rule := func() model.Rule {
			tcp := model.ProtoTCP
			r := model.Rule{Action: rapid.SampledFrom([]model.Action{model.Allow, model.Deny, model.Pass}).Draw(t, label+"action"), Protocol: &tcp}
			lo := rapid.SampledFrom(ports).Draw(t, label+"port")
			r.Destination.Ports = []model.PortRange{{Lo: lo, Hi: lo}}
			if rapid.Bool().Draw(t, label+"peer") {
				r.Source.Selector = parsed(rapid.SampledFrom([]string{`app == "x"`, `app == "y"`}).Draw(t, label+"source"))
			}
			return r
		}
		list = append(list, model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: fmt.Sprint("p", i)},
			Policy: &model.Policy{Tier: model.TierDefault, Order: float64(i), Selector: parsed(`app == "x"`),
				AppliesIngress: true, Ingress: []model.Rule{rule(), rule()}}})
	}
	return list
}

func pod(i int) model.EndpointID { return model.WorkloadID("a", fmt.Sprint("pod-", i)) }

func parsed(text string) *selector.Selector {
	s, err := selector.Parse(text)
	if err != nil {
		panic(err)
	}
	return s
}

// TestEveryChangeIsReported compares random states, and asks explain about every pair of addresses whether a verdict changes.
func TestEveryChangeIsReported(t *testing.T) {
	remotes := []netip.Addr{netip.MustParseAddr("192.168.0.1"), examples[0]}
	for i := range 4 {
		remotes = append(remotes, netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", i+1)))
	}
	changes := 0
	rapid.Check(t, func(t *rapid.T) {
		before, after := drawState(t, "before "), drawState(t, "after ")
		if rapid.Bool().Draw(t, "alike") {
			after = slices.Concat(before, after[len(after)-1:])
		}
		report, err := Compare(before, after)
		if err != nil {
			t.Fatal(err)
		}
		states := []*explain.State{explain.NewState(before), explain.NewState(after)}
		some := false
		for i := range 4 {
			owns := slices.Compact(addrsOf(states, pod(i)))
			if len(owns) > 1 {
				continue // the report does not say of which address a change is
			}
			for _, own := range owns {
				for _, remote := range remotes {
					if remote == own || remote == remotes[0] && i%2 == 0 {
						continue // no policy judges what a pod sends to itself, or its node to it
					}
					for _, port := range ports {
						p := model.Packet{Src: remote, Dst: own, Protocol: model.ProtoTCP, SrcPort: 40000, DstPort: port}
						was, is := ingress(t, states[0], pod(i), p), ingress(t, states[1], pod(i), p)
						if got := reported(report, pod(i), p, isOwned(states, remote)); got != (was != is) {
							t.Fatalf("%s, %+v: was %v, is %v, reported %v in %+v", pod(i), p, was, is, got, report.Changes)
						}
						some = some || was != is
					}
				}
			}
		}
		if some {
			changes++
		}
		if some && report.Same {
			t.Fatal("the states are reported to be the same")
		}
	})
	if changes == 0 {
		t.Error("no change was found")
	}
}

func addrsOf(states []*explain.State, id model.EndpointID) (all []netip.Addr) {
	for _, s := range states {
		if ep, ok := s.Graph().LocalEndpoint(id); ok {
			all = append(all, ep.Addrs...)
		}
	}
	return all
}

// ingress is the verdict of a pod about a packet to an address that it has or had.
func ingress(t *rapid.T, s *explain.State, id model.EndpointID, p model.Packet) bool {
	ep, ok := s.Graph().LocalEndpoint(id)
	if !ok || !slices.Contains(ep.Addrs, p.Dst) {
		return false
	}
	r, err := s.Packet(p)
	if err != nil {
		t.Fatal(err)
	}
	return r.Ingress == nil || r.Ingress.Verdict.Allow
}

func isOwned(states []*explain.State, a netip.Addr) bool {
	return slices.ContainsFunc(states, func(s *explain.State) bool {
		_, is := s.Graph().EndpointByAddr(a)
		return is || s.Graph().NodeByAddr(a) != ""
	})
}

// reported reports whether a change of the verdict about a TCP packet to a pod is among those of a report. owned: a pod or node has the source.
func reported(r *Report, id model.EndpointID, p model.Packet, owned bool) bool {
	return slices.ContainsFunc(r.Changes, func(c Change) bool {
		return c.Direction == "ingress" && slices.Contains(c.Pods, id.String()) &&
			slices.ContainsFunc(c.Peers, func(of Peer) bool { return slices.Contains(of.Some, p.Src) || of.Other && !owned }) &&
			slices.ContainsFunc(c.Ports, func(text string) bool { return hasPort(text, p.DstPort) })
	})
}

func hasPort(text string, port uint16) bool {
	if text == everyPacket || text == "tcp any port" {
		return true
	}
	var lo, hi uint16
	if n, _ := fmt.Sscanf(text, "tcp %d-%d", &lo, &hi); n < 1 {
		return false
	} else if !strings.Contains(text, "-") {
		hi = lo
	}
	return lo <= port && port <= hi
}

// A policy that is refused for a limit is not compared, and the states are not the same.
func TestARefusedPolicyIsNotCompared(t *testing.T) {
	c := &comparing{report: &Report{}}
	p := &model.DirectionPolicy{Tiers: []model.TierPolicy{{Policies: []*model.PolicyRules{{Refused: "too many"}}}}}
	if why := refused(p); why != "too many" {
		t.Errorf("refused: %q", why)
	}
	p.Tiers[0].Policies[0].Staged = true
	if why := refused(p); why != "" {
		t.Errorf("refused though it is staged: %q", why)
	}
	c.notCompared(pod(0), model.Ingress, "too many")
	if c.finish(); c.report.Same || len(c.report.NotCompared) != 1 {
		t.Errorf("%+v", c.report)
	}
}
