package calc

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/model"
)

func nodeOf(name, zone string, texts ...string) model.NodeUpdate {
	return model.NodeUpdate{Name: name, Node: &model.Node{Addrs: addrs(texts...), Labels: map[string]string{"zone": zone}}}
}

// The set of a rule about nodes has the addresses of the nodes that its selector selects by their own labels, as these are
// now. Pods with such labels are not in it, nor are nodes in the set of a rule about pods.
func TestNodesOfARule(t *testing.T) {
	rule := model.Rule{Action: model.Deny, Source: model.Entity{Nodes: sel("zone == 'a'")}}
	r := newRig(t, pod("shop/web", "10.0.0.1", label("zone", "a")),
		nodeOf("n1", "a", "192.168.0.1", "fd00:192::1"), nodeOf("n2", "b", "192.168.0.2"),
		policyOf("p", "all()", rule, fromSelector("zone == 'a'")))
	check := func(want string) {
		t.Helper()
		all := map[string]string{`nodes zone == "a"`: want, `selector zone == "a"`: "[10.0.0.1/32]"}
		if diff := cmp.Diff(all, r.sets()); diff != "" {
			t.Error(diff)
		}
	}
	check("[192.168.0.1/32 fd00:192::1/128]")
	r.apply(nodeOf("n2", "a", "192.168.0.2"))
	check("[192.168.0.1/32 192.168.0.2/32 fd00:192::1/128]")
	if c := r.apply(nodeOf("n2", "a", "192.168.0.2")); len(c.Sets) > 0 {
		t.Errorf("nothing has changed: %v", c.Sets)
	}
	r.apply(nodeOf("n1", "b", "192.168.0.1", "fd00:192::1"))
	check("[192.168.0.2/32]")
	r.apply(model.NodeUpdate{Name: "n2"})
	check("[]")
	r.apply(policyOf("p", "all()", fromSelector("zone == 'a'")))
	if diff := cmp.Diff(map[string]string{`selector zone == "a"`: "[10.0.0.1/32]"}, r.sets()); diff != "" {
		t.Error(diff)
	}
	if len(r.graph.sets.nodes.defined) > 0 {
		t.Error("a definition that no rule uses is kept")
	}
	everywhere := rule
	everywhere.Source.Nodes = sel("all()")
	r.apply(policyOf("p", "all()", everywhere))
	if diff := cmp.Diff(map[string]string{"all nodes": "[192.168.0.1/32 fd00:192::1/128]"}, r.sets()); diff != "" {
		t.Error(diff)
	}
}
