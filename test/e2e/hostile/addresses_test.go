package hostile

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

const onlyFromB = `{podSelector: {matchLabels: {app: a}}, policyTypes: [Ingress],
  ingress: [{from: [{podSelector: {matchLabels: {app: b}}}]}]}`

// claimant writes the manifest of a pod that claims addresses beside its own: in its annotations, without a status, or as
// the kubelet would report them.
func (s *scene) claimant(p *lab.Pod, annotated bool, claims ...netip.Addr) {
	s.T.Helper()
	namespace, name, _ := strings.Cut(p.Name(), "/")
	var ips, texts []string
	for _, a := range slices.Concat(p.Addrs(), claims) {
		ips = append(ips, fmt.Sprintf("{ip: %q}", a))
		texts = append(texts, netip.PrefixFrom(a, a.BitLen()).String())
	}
	annotations, status := "", "podIPs: ["+strings.Join(ips, ", ")+"]"
	if annotated {
		list := strings.Join(texts, ",")
		annotations = fmt.Sprintf(", annotations: {cni.projectcalico.org/podIPs: %q, cni.projectcalico.org/podIP: %q}", list, texts[0])
		status = "phase: Pending"
	}
	s.Write("pod-"+namespace+"."+name, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s, labels: {app: %s}%s}
spec: {nodeName: %s, containers: [{name: main}]}
status: {%s}
`, name, namespace, name, annotations, p.Node().Name(), status))
}

// victims are addresses that nobody on the first node may take: of a pod there, of one on another node, of an outside host,
// of the node, and such as no host has.
func (s *scene) victims() []netip.Addr {
	list := slices.Concat(s.b.Addrs(), s.c.Addrs(), s.ext.Addrs(), s.n1.Addrs())
	for _, text := range []string{"0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "169.254.1.1", "::1", "ff02::1", "fe80::1"} {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

// requireNoTheft demands that the thieves neither send as others nor get what is meant for them.
func (s *scene) requireNoTheft(t *testing.T, thieves ...*lab.Pod) {
	t.Helper()
	atA := s.watch(s.a.Host)
	var atThieves []*witness
	for _, p := range thieves {
		atThieves = append(atThieves, s.watch(p.Host))
	}
	owners := map[*lab.Host]*witness{}
	for _, h := range []*lab.Host{s.b.Host, s.c.Host, s.ext.Host} {
		owners[h] = s.watch(h)
	}
	families(t, func(t *testing.T, v6 bool) {
		honest := []attack{{what: "b itself", from: s.b, want: true, frames: bearing(s.b, s.from(s.b, s.a, v6, dns))}}
		for _, p := range thieves {
			posed := s.from(p, s.a, v6, dns)
			posed.Src = s.b.Addr(v6)
			honest = append(honest, attack{what: p.Name() + " as b", from: p, frames: bearing(p, posed)})
		}
		s.play(t, honest, atA)
		for owner, w := range owners {
			for _, port := range []uint16{53, 80} { // a new flow each
				l4 := testutil.UDP{SrcPort: 1000, DstPort: port}
				k := s.tokens.next()
				send(t, s.a, bearing(s.a, s.from(s.a, owner, v6, l4))(k)...)
				if s.arrives(k, soon, []*witness{w}) == nil {
					t.Errorf("what a sends to %s does not arrive there", owner.Name())
				}
				if thief := s.arrives(k, never, atThieves); thief != nil {
					t.Errorf("what a sends to %s arrives at %s", owner.Name(), thief.name)
				}
			}
		}
	})
}

// A pod's annotations give it nobody's address, whatever its name and whether or not they are read.
func TestAnnotationsTakeNoAddress(t *testing.T) {
	for what, flags := range map[string][]string{"as it is": nil, "annotations are read": {"--pod-ips-from-annotations", "calico"}} {
		t.Run(what, func(t *testing.T) {
			s := newScene(t, flags...)
			s.Namespace("aevil")
			s.Namespace("zevil")
			thieves := []*lab.Pod{s.Pod(s.n1, "aevil/a"), s.Pod(s.n1, "zevil/z")}
			s.Policy("a", onlyFromB)
			s.AwaitPolicies(s.a, 1, 0)
			for _, p := range thieves {
				s.claimant(p, true, s.victims()...)
			}
			if flags != nil {
				s.awaitLost(thieves[0], s.b.Addr4(), "Taken", s.b.Name())
				s.awaitLost(thieves[1], s.ext.Addr4(), "NotRouted", "")
				s.awaitLost(thieves[1], s.n1.Addr6(), "Reserved", "")
			} else {
				testutil.WaitFor(t, soon, "the thieves to be no endpoints", func() bool {
					return s.Row(thieves[0]) == nil && s.Row(thieves[1]) == nil || s.hasClaims(thieves)
				})
			}
			s.requireNoTheft(t, thieves...)
		})
	}
}

// hasClaims reports whether the agent believes the annotations of pods.
func (s *scene) hasClaims(pods []*lab.Pod) bool {
	return !slices.ContainsFunc(pods, func(p *lab.Pod) bool {
		row := s.Row(p)
		return row == nil || len(row.Addrs) <= len(p.Addrs())
	})
}

// awaitLost waits until the agent says why a pod does not own an address.
func (s *scene) awaitLost(p *lab.Pod, a netip.Addr, condition, owner string) {
	s.T.Helper()
	what := fmt.Sprintf("%s to have lost %s: %s %s", p.Name(), a, condition, owner)
	testutil.WaitFor(s.T, soon, what, func() bool {
		row := s.Row(p)
		if row == nil {
			return false
		}
		for _, l := range row.Lost {
			if l.Addr == a && l.Condition == condition && l.Owner == owner {
				return true
			}
		}
		return false
	})
}

// awaitOwned waits until a pod has the address, and its packets pass: with iptables, connections of the former owner are removed before.
func (s *scene) awaitOwned(p *lab.Pod, a netip.Addr) {
	s.T.Helper()
	testutil.WaitFor(s.T, soon, fmt.Sprintf("%s to have %s", p.Name(), a), func() bool {
		row := s.Row(p)
		return row != nil && row.Error == "" && slices.Contains(row.Addrs, a)
	})
}

// Of several pods that are reported to have an address the node's route decides, also while the owner is being deleted and
// after a restart; the claims that lost are problems.
func TestTheRouteDecidesBetweenClaims(t *testing.T) {
	s := newScene(t)
	s.Namespace("aevil")
	s.Namespace("zevil")
	thieves := []*lab.Pod{s.Pod(s.n1, "aevil/a"), s.Pod(s.n1, "zevil/z")}
	s.Policy("a", onlyFromB)
	s.AwaitPolicies(s.a, 1, 0)
	for _, p := range thieves {
		s.claimant(p, false, slices.Concat(s.b.Addrs(), s.ext.Addrs())...)
	}
	lost := func() {
		t.Helper()
		for _, p := range thieves {
			s.awaitLost(p, s.b.Addr4(), "Taken", s.b.Name())
			s.awaitLost(p, s.b.Addr6(), "Taken", s.b.Name())
			s.awaitLost(p, s.ext.Addr4(), "NotRouted", "")
		}
	}
	lost()
	answer, err := s.Agent(0).Ask("problems")
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("address %s belongs to endpoint shop/b", s.b.Addr4())
	if n := len(slices.DeleteFunc(answer.Problems, func(p inspect.ProblemRow) bool { return !strings.Contains(p.Reason, want) })); n != 2 {
		t.Errorf("%d problems say %q, want 2", n, want)
	}
	t.Run("at first", func(t *testing.T) { s.requireNoTheft(t, thieves...) })

	s.Write("pod-b", fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: b, namespace: shop, labels: {app: b}, deletionTimestamp: "2026-01-01T00:00:00Z"}
spec: {nodeName: n1, containers: [{name: main}]}
status: {podIPs: [{ip: %q}, {ip: %q}]}
`, s.b.Addr4(), s.b.Addr6()))
	lost()
	t.Run("while it is being deleted", func(t *testing.T) { s.requireNoTheft(t, thieves...) })

	s.Agent(0).Kill()
	t.Run("without an agent", func(t *testing.T) { s.requireNoTheft(t, thieves...) })
	s.Agent(0).Start()
	lost()
	t.Run("after a restart", func(t *testing.T) { s.requireNoTheft(t, thieves...) })
}

// An address that two pods claim is, at any time, that of the one to which the node routes it.
func TestAnAddressMovesWithItsRoute(t *testing.T) {
	s := newScene(t)
	one, two := s.Pod(s.n1, "evil/one"), s.Pod(s.n1, "evil/two")
	floating := []netip.Addr{netip.MustParseAddr("10.65.1.200"), netip.MustParseAddr("fd65:0:0:1::200")}
	inside := map[*lab.Pod]*witness{one: s.watch(one.Host), two: s.watch(two.Host)}
	atA := s.watch(s.a.Host)
	ip := func(h *lab.Host, args ...string) {
		t.Helper()
		if _, err := h.Run(context.Background(), "", "ip", args...); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []*lab.Pod{one, two} {
		for _, a := range floating {
			ip(p.Host, "addr", "add", netip.PrefixFrom(a, a.BitLen()).String(), "dev", "eth0", "nodad")
		}
		s.claimant(p, false, floating...)
	}
	owner, other := one, two
	for round := range 4 {
		for _, a := range floating {
			ip(s.n1.Host, "route", "replace", netip.PrefixFrom(a, a.BitLen()).String(), "dev", owner.Iface())
		}
		for _, a := range floating {
			s.awaitLost(other, a, "Taken", owner.Name())
			s.awaitOwned(owner, a)
		}
		if round == 2 {
			s.Agent(0).Kill()
			s.Agent(0).Start()
		}
		families(t, func(t *testing.T, v6 bool) {
			a := floating[0]
			if v6 {
				a = floating[1]
			}
			posed := func(p *lab.Pod) testutil.Packet {
				packet := s.from(p, s.a, v6, testutil.UDP{SrcPort: uint16(2000 + round), DstPort: 53})
				packet.Src = a
				return packet
			}
			s.play(t, []attack{
				{what: "the owner", from: owner, want: true, frames: bearing(owner, posed(owner))},
				{what: "the other", from: other, frames: bearing(other, posed(other))},
			}, atA)
			to := s.from(s.a, one, v6, testutil.UDP{SrcPort: uint16(3000 + round), DstPort: 53})
			to.Dst = a
			attacks := []attack{{what: "to the address", from: s.a, want: true, frames: bearing(s.a, to)}}
			s.play(t, attacks, inside[owner])
			attacks[0].want = false
			s.play(t, attacks, inside[other])
		})
		owner, other = other, owner
	}
}

// A pod of another node whose claim lost puts nobody's address into the sets of policies here.
func TestALostClaimGivesNoLabels(t *testing.T) {
	s := newScene(t, "--pod-ips-from-annotations", "calico")
	s.Policy("b", `{podSelector: {matchLabels: {app: b}}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}]}]}`)
	s.AwaitPolicies(s.b, 1, 0)
	// It has no interface, and claims an outside address and another node's pod's.
	for _, node := range []string{"n1", "n2", "nosuch"} {
		s.Write("pod-ghost-"+node, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: ghost-%[1]s, namespace: shop, labels: {app: friend}, annotations: {cni.projectcalico.org/podIPs: "%[2]s/32,%[3]s/128,%[4]s/32"}}
spec: {nodeName: %[1]s, containers: [{name: main}]}
status: {phase: Pending}
`, node, s.ext.Addr4(), s.ext.Addr6(), s.e.Addr4()))
	}
	friend := s.Pod(s.n2, "friend")
	at := s.watch(s.b.Host)
	testutil.WaitFor(t, soon, "the friend to get in", func() bool { // its own node knew it first
		k := s.tokens.next()
		send(t, friend, bearing(friend, s.from(friend, s.b, false, dns))(k)...)
		return s.arrives(k, never, []*witness{at}) != nil
	})
	s.play(t, []attack{{what: "the friend", from: friend, want: true, frames: bearing(friend, s.from(friend, s.b, false, dns))},
		{what: "a pod that a ghost claims to be", from: s.e, frames: bearing(s.e, s.from(s.e, s.b, false, dns))}}, at)
	if echo.ExchangeUDP(s.ext.Host, netip.AddrPortFrom(s.b.Addr4(), 53), []byte("x"), never).Err == nil {
		t.Error("an outside host that a ghost claims to be gets in")
	}
}
