package cluster

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/lab"
)

// gates are pods that Calico's objects guard, one on each node, and those who would enter.
type gates struct {
	*cluster
	to   []*lab.Pod
	from []*lab.Pod // by visitors
}

// visitors are the sources: what lets each of them in, or keeps it out, depends on another kind.
var visitors = []string{"client", "guest", "stranger", "other"}

// answers are which of the visitors get in.
type answers [4]bool

func (c *cluster) newGates() *gates {
	c.t.Helper()
	c.namespace("shop", "team: shop")
	c.namespace("ops", "team: ops")
	g := &gates{cluster: c}
	for i, name := range visitors {
		namespace := "ops"
		if name == "client" {
			namespace = "shop"
		}
		g.from = append(g.from, c.pod(namespace, name, c.nodes[i%2].Name()))
	}
	g.to = []*lab.Pod{c.pod("shop", "gate1", "n1", "role: gate"), c.pod("shop", "gate2", "n2", "role: gate")}
	// An answer that is under way when a flow is cut would otherwise be a flow of the gate's own.
	c.policy("shop", "gates-answer-only", `{podSelector: {matchLabels: {role: gate}}, policyTypes: [Egress]}`)
	c.settle()
	return g
}

// nets are all addresses of the visitors, as a list in YAML's flow style.
func (g *gates) nets(names ...string) string {
	var all []string
	for i, p := range g.from {
		for _, name := range names {
			if visitors[i] == name {
				for _, a := range p.Addrs() {
					all = append(all, fmt.Sprintf("%q", netip.PrefixFrom(a, a.BitLen())))
				}
			}
		}
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// objects are the policy of the gates, by kind: a tier keeps out those on a list, and beyond it clients and friends get in.
func (g *gates) objects(group string) map[string]string {
	return map[string]string{
		"Tier":             calico(group, "Tier", "", "security", "{}", "{order: 100}"),
		"GlobalNetworkSet": calico(group, "GlobalNetworkSet", "", "blocked", "{list: blocked}", "{nets: "+g.nets("stranger")+"}"),
		"NetworkSet":       calico(group, "NetworkSet", "shop", "friends", "{list: friends}", "{nets: "+g.nets("guest", "stranger")+"}"),
		"GlobalNetworkPolicy": calico(group, "GlobalNetworkPolicy", "", "security.guard", "{}", `{tier: security, selector: role == 'gate', types: [Ingress],
  ingress: [{action: Deny, source: {selector: list == 'blocked'}}, {action: Pass}]}`),
		"NetworkPolicy": calico(group, "NetworkPolicy", "shop", "gate", "{}", `{selector: role == 'gate', types: [Ingress],
  ingress: [{action: Allow, source: {selector: app == 'client'}}, {action: Allow, source: {selector: list == 'friends'}}]}`),
		// Staged policies decide nothing, whatever becomes of their kinds.
		"StagedNetworkPolicy":           calico(group, "StagedNetworkPolicy", "shop", "gate-staged", "{}", `{selector: role == 'gate', types: [Ingress], ingress: [{action: Allow}]}`),
		"StagedGlobalNetworkPolicy":     calico(group, "StagedGlobalNetworkPolicy", "", "all-staged", "{}", `{selector: role == 'gate', types: [Ingress]}`),
		"StagedKubernetesNetworkPolicy": calico(group, "StagedKubernetesNetworkPolicy", "shop", "gate-staged", "{}", `{podSelector: {}}`),
	}
}

// What the gates answer with all of the objects, and without those of one kind. Without its tier a policy is behind all
// others (D-2); the absence of a kind is like the absence of its objects.
var (
	guarded = answers{true, true, false, false}
	lacking = map[string]answers{
		"Tier":                {true, true, true, false},
		"GlobalNetworkSet":    {true, true, true, false},
		"GlobalNetworkPolicy": {true, true, true, false},
		"NetworkSet":          {true, false, false, false},
		"NetworkPolicy":       {true, true, false, true},
	}
	unguarded = answers{true, true, true, true}
)

// changes does something while flows of all visitors go to all gates, and demands that those whose answer stays the same
// have lost and gained nothing, and that the others turn once.
func (g *gates) changes(before, after answers, do func()) {
	g.t.Helper()
	var turns []*turn
	var allowed, denied []*traffic.UDPFlow
	for i, from := range g.from {
		for j, to := range g.to {
			u := g.startTurn(visitors[i], !before[i], from, to, (i+j)%2 == 1)
			switch {
			case before[i] != after[i]:
				turns = append(turns, u)
			case before[i]:
				allowed = append(allowed, u.flow)
			default:
				denied = append(denied, u.flow)
			}
		}
	}
	do()
	awaitTurns(g.t, time.Now(), turns...)
	for _, u := range turns {
		u.stop(g.t)
	}
	for _, f := range allowed {
		if r := f.Stop(); r.Lost != 0 || r.Received == 0 || r.Duplicated != 0 {
			g.t.Errorf("a flow that stays allowed: %+v", r)
		}
	}
	for _, f := range denied {
		if r := f.StopCut(); r.Received != 0 || r.Sent == 0 {
			g.t.Errorf("a flow that stays denied: %+v", r)
		}
	}
	g.answer(after)
}

// answer demands that TCP and UDP of each visitor get to all gates, or do not.
func (g *gates) answer(want answers) {
	g.t.Helper()
	for i, from := range g.from {
		for _, to := range g.to {
			g.reach(from.Host, to.Host, openPort, want[i])
		}
	}
}

// install makes the kind and its object.
func (g *gates) install(k kinds.Kind, group string) {
	g.t.Helper()
	g.installCalicoKind(k, group)
	g.applySoon(g.objects(group)[k.Name])
}

// Calico's kinds on a cluster that gets their CRDs one by one while agents run, loses each of them and gets it again, has
// those of the other group as well, and loses those. All the time traffic flows that no policy of Calico's is about.
func TestCalicosKindsComeAndGo(t *testing.T) {
	c := newCluster(t, options{proxy: "none", flags: []string{"--discovery-every", "1s"}})
	g := c.newGates()
	client := c.pod("shop", "steady", "n1", "app: steady")
	near, far := c.pod("shop", "near", "n1", "tier: base"), c.pod("shop", "far", "n2", "tier: base")
	c.policy("shop", "open", onlyOpen)
	c.settle()
	tr := c.startTraffic(client, c.pod("shop", "outcast", "n2"), nil, near, far)
	c.step("absent", func() {
		for _, k := range calicoKinds() {
			why := c.nodes[0].agent.awaitKind(k.Ref, "absent").Error
			c.contains("why "+k.Ref+" is absent", why, k.Resource+" of "+calicoV3, k.Resource+" of "+calicoCRD)
		}
		g.answer(unguarded)
	})
	c.step("plain CRDs come", func() { g.appear(calicoCRD) })
	c.step("each goes and comes", func() { g.eachGoesAndComes(calicoCRD) })
	c.step("both groups", g.bothGroups)
	c.step("all go", func() { g.disappear(calicoCRD) })
	c.step("the other group comes and goes", func() {
		g.appear(calicoV3)
		if long() {
			g.eachGoesAndComes(calicoV3)
		}
		g.disappear(calicoV3)
	})
	tr.some("at last")
	tr.stop()
	if err := c.plane.Err(); err != nil {
		t.Error(err)
	}
}

// appear installs kind after kind, policies last, so that the answer turns when all they refer to is there.
func (g *gates) appear(group string) {
	g.t.Helper()
	for _, k := range calicoKinds() {
		switch k.Name {
		case "NetworkPolicy": // before GlobalNetworkPolicy: those it does not let in are out
			g.changes(unguarded, lacking["GlobalNetworkPolicy"], func() { g.install(k, group) })
		case "GlobalNetworkPolicy":
			g.changes(lacking["GlobalNetworkPolicy"], guarded, func() { g.install(k, group) })
		default:
			g.install(k, group)
		}
	}
	for _, n := range g.nodes {
		g.contains("margay explain", n.agent.tool("explain", "ops/guest", "shop/gate1:80"), "NetworkPolicy shop/gate ingress[1]")
	}
}

// disappear removes policies first, so that the answer turns with each of their kinds and with no other.
func (g *gates) disappear(group string) {
	g.t.Helper()
	remove := func(name string) func() {
		return func() {
			for _, k := range calicoKinds() {
				if k.Name == name {
					g.removeCalicoKind(k, group)
				}
			}
		}
	}
	g.changes(guarded, lacking["GlobalNetworkPolicy"], remove("GlobalNetworkPolicy"))
	g.changes(lacking["GlobalNetworkPolicy"], unguarded, remove("NetworkPolicy"))
	g.changes(unguarded, unguarded, func() { g.removeCalicoKinds(group) })
}

// eachGoesAndComes is about one kind after the other; of those that decide nothing about one, unless there is time.
func (g *gates) eachGoesAndComes(group string) {
	g.t.Helper()
	for _, k := range calicoKinds() {
		meanwhile, decides := lacking[k.Name]
		if !decides {
			meanwhile = guarded
			if k.Name != "StagedNetworkPolicy" && !long() {
				continue
			}
		}
		g.changes(guarded, meanwhile, func() { g.removeCalicoKind(k, group) })
		g.changes(meanwhile, guarded, func() { g.install(k, group) })
	}
}

// bothGroups is about a cluster that gets the other group, too, while policy of the first is in force: that stays until the
// other one has all cluster-wide objects.
func (g *gates) bothGroups() {
	other := answers{true, false, true, false} // as the other group has it
	agents := []*agent{g.nodes[0].agent, g.nodes[1].agent}
	g.changes(guarded, guarded, func() {
		from := []int64{agents[0].logged(), agents[1].logged()}
		for _, k := range calicoKinds() {
			g.apply(calicoDefinition(k, calicoV3))
		}
		for i, a := range agents {
			g.once(a, from[i], "Calico's kinds are served in two groups")
		}
	})
	g.changes(guarded, other, func() {
		objects := g.objects(calicoV3)
		objects["GlobalNetworkSet"] = calico(calicoV3, "GlobalNetworkSet", "", "blocked", "{list: blocked}", "{nets: "+g.nets("guest")+"}")
		for _, k := range calicoKinds() {
			g.applySoon(objects[k.Name])
		}
	})
	g.calicoGroup = calicoV3
	g.changes(other, other, func() {
		for _, o := range g.objects(calicoCRD) {
			g.delete(o)
		}
		g.settle()
		for _, o := range g.objects(calicoCRD) {
			g.apply(o)
		}
		g.settle()
	})
	g.calicoGroup = ""
	for _, k := range calicoKinds() {
		g.deleteKind(calicoDefinition(k, calicoV3))
	}
	for i, from := range g.from { // policy goes with its objects before the other group is read
		for _, to := range g.to {
			g.awaitReach(from.Host, to.Addrs(), openPort, guarded[i])
		}
	}
	for _, k := range calicoKinds() {
		g.awaitKindEverywhere(k.Ref, "synced")
	}
}
