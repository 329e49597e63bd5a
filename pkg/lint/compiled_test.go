package lint_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/compile/plan"
	"github.com/margay-project/margay/pkg/lint"
	"github.com/margay-project/margay/pkg/model"
)

// manyPeers is a policy of web whose table has a row for each of its peers.
func manyPeers() string {
	var rules []string
	for i := range 9 {
		rules = append(rules, fmt.Sprintf(`{from: [{ipBlock: {cidr: 192.0.2.%d/32}}], ports: [{port: %d}]}`, i, 1+i))
	}
	return knp("many", `{podSelector: {matchLabels: {app: web}}, ingress: [`+strings.Join(rules, ", ")+`]}`)
}

// Where no table of a policy is made, because it would be too large, the policies of other pods are looked at.
func TestALargeTableHidesNoFindingsOfOthers(t *testing.T) {
	small := plan.Options{}
	small.Limits.Rows = 4
	all := updates(t, pods+manyPeers()+knp("a", `{podSelector: {matchLabels: {app: db}}, ingress: [{}, {ports: [{port: 443}]}]}`)+
		knp("b", `{podSelector: {}, ingress: [{ports: [{port: 443}]}]}`))
	got := lint.CheckWith(all, small)
	if len(got) != 1 || got[0].Object() != "knp/shop/a#ingress[1]" {
		t.Errorf("got %v, want that rule 1 of policy a never decides, and nothing of policy b, which may decide on web", got)
	}
	if got := lint.Check(all); len(got) != 1 {
		t.Errorf("without the limit: %v", got)
	}
}

// A policy that no node compiles is reported of its pods, once for all that it is the same for.
func TestPolicyThatIsNotCompiled(t *testing.T) {
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: shop, labels: {app: big}}\nspec: {nodeName: n1}\nstatus: {podIPs: [{ip: %s}]}\n---\n"
	two := updates(t, "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: own, namespace: shop}\n"+
		"spec: {selector: app == 'big', types: [Ingress], ingress: [{action: Allow, destination: {nets: [10.0.1.1/32]}}]}\n---\n"+
		fmt.Sprintf(pod, "two", "10.0.1.1"))
	for _, u := range two {
		if ep, ok := u.(model.EndpointUpdate); ok {
			ep.Endpoint.Addrs = append(ep.Endpoint.Addrs, netip.MustParseAddr("10.0.1.2"))
		}
	}
	for _, test := range []struct {
		name    string
		updates []model.Update
		want    []string
	}{
		{
			"too many rules", updates(t, large(10)+fmt.Sprintf(pod, "b", "10.0.1.2")+fmt.Sprintf(pod, "a", "10.0.1.1")),
			[]string{"pod shop/a: ingress policy of NetworkPolicy shop/big0, NetworkPolicy shop/big1 and 8 more: expand ingress policy of 1 tiers and 1 profiles: " +
				"too many rules: more than 65535 entries of the match table: the pod keeps its last policy, or stays closed (so it is with 1 more pod)"},
		},
		{
			"too complex", updates(t, large(6)+fmt.Sprintf(pod, "a", "10.0.1.1")),
			[]string{"pod shop/a: ingress policy of NetworkPolicy shop/big0, NetworkPolicy shop/big1 and 4 more: compile ingress policy of 48009 rules and 1200 sets of addresses: " +
				"too complex: the pod keeps its last policy, or stays closed"},
		},
		{
			"over a limit of one pod", updates(t, overlapping(300)+fmt.Sprintf(pod, "a", "10.0.1.1")),
			[]string{"pod shop/a: ingress policy of NetworkPolicy shop/wide: ingress policy: over the limit: 300 CIDR lists that overlap, limit 256: " +
				"the pod keeps its last policy, or stays closed"},
		},
		{
			"own addresses", two,
			[]string{"pod shop/two: ingress policy of NetworkPolicy shop/own: 10.0.1.1 and 10.0.1.2: its own addresses are judged differently: the pod is closed"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, f := range lint.Check(append(updates(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n"), test.updates...)) {
				got = append(got, f.Object()+": "+f.Text)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// large are so many policies of 200 CIDRs and 200 ports.
func large(policies int) string {
	var text strings.Builder
	for i := range policies {
		fmt.Fprintf(&text, "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: big%d, namespace: shop}\n", i)
		text.WriteString("spec: {podSelector: {matchLabels: {app: big}}, ingress: [{from: [")
		for n := range 200 {
			fmt.Fprintf(&text, "{ipBlock: {cidr: 11.%d.%d.0/24}}, ", i, n)
		}
		text.WriteString("], ports: [")
		for n := range 200 {
			fmt.Fprintf(&text, "{port: %d}, ", 1+2*n)
		}
		text.WriteString("]}, {ports: [{port: 1}]}]}\n---\n")
	}
	return text.String()
}

// overlapping is a policy of so many CIDR lists that share an address.
func overlapping(lists int) string {
	var rules []string
	for i := range lists {
		rules = append(rules, fmt.Sprintf(`{action: Allow, protocol: TCP, source: {nets: [20.0.0.0/8, 30.%d.%d.0/24]}, destination: {ports: [%d]}}`, i/250, i%250, 1+i))
	}
	return "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: wide, namespace: shop}\n" +
		"spec: {selector: app == 'big', ingress: [" + strings.Join(rules, ", ") + "]}\n---\n"
}

// A rule that earlier rules leave nothing on one pod may decide on another whose policy is not compiled.
func TestOfPolicyThatIsNotCompiledNoRuleIsIdle(t *testing.T) {
	o := plan.Options{}
	o.Budget.Direction.Rules = 8
	all := updates(t, pods+manyPeers()+knp("a", `{podSelector: {matchLabels: {app: db}}, ingress: [{}]}`)+knp("b", `{podSelector: {}, ingress: [{ports: [{port: 443}]}]}`))
	if got := lint.CheckWith(all, o); len(got) != 1 || got[0].Endpoint != model.WorkloadID("shop", "web") || got[0].Policy != (model.PolicyKey{}) {
		t.Errorf("got %v, want that the policy of pod web is refused", got)
	}
}

// The limits of a namespace are for its pods on one node: what is past them in the whole cluster may be within them on each node.
func TestPolicyThatANodeHasNoRoomFor(t *testing.T) {
	namespace, nodes := "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n", []string{"n1", "n1", "n1", "n2"}
	var text strings.Builder
	text.WriteString(namespace)
	for i, node := range nodes {
		wide := strings.NewReplacer("name: wide", fmt.Sprintf("name: wide%d", i), "app == 'big'", fmt.Sprintf("app == 'big%d'", i), "20.0.0.0/8", fmt.Sprintf("2%d.0.0.0/8", i))
		text.WriteString(wide.Replace(overlapping(200)))
		fmt.Fprintf(&text, "apiVersion: v1\nkind: Pod\nmetadata: {name: p%d, namespace: shop, labels: {app: big%d}}\nspec: {nodeName: %s}\nstatus: {podIPs: [{ip: 10.0.1.%d}]}\n---\n",
			i, i, node, 1+i)
	}
	got := lint.Check(updates(t, text.String()))
	if len(got) != 1 || !strings.HasPrefix(got[0].Object(), "pod shop/p") || strings.Contains(got[0].Object(), "p3") ||
		!strings.Contains(got[0].Text, " on node n1: policies of namespace shop's pods on this node: over the limit: 600 CIDR lists that overlap, limit 512: the pod keeps") {
		t.Errorf("got %v, want the policy of one of the three pods on node n1", got)
	}
	spread := strings.ReplaceAll(text.String(), "name: p2, namespace: shop, labels: {app: big2}}\nspec: {nodeName: n1}", "name: p2, namespace: shop, labels: {app: big2}}\nspec: {nodeName: n2}")
	if got := lint.Check(updates(t, spread)); len(got) != 0 {
		t.Errorf("two on each node: %v", got)
	}
}
