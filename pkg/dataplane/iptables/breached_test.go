package iptables

import (
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/iptables"
)

// While no agent runs, somebody flushes mangle. What is left of the world in force drops flows that no chain has judged, and the next
// agent leaves it alone until packets are judged by its own.
func TestAnAgentThatFindsMangleFlushedOpensNothing(t *testing.T) {
	for name, flushed := range map[string]func(chain string) bool{
		"FORWARD":       func(chain string) bool { return chain == "FORWARD" },
		"all of mangle": func(string) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			n := newFakeNode(t)
			n.mustApply(t, narrow.updates()...)
			former := n.state.world.names[4]
			n.flows.marks = []uint32{0x82345678}
			live := slices.Clone(n.flows.marks)
			for _, family := range []iptables.Family{iptables.V4, iptables.V6} {
				text := "*mangle\n"
				for line := range strings.Lines(n.tables.Save(family, "mangle")) {
					if chain, _, ok := strings.Cut(strings.TrimPrefix(line, ":"), " "); ok && line[0] == ':' && flushed(chain) {
						text += "-F " + chain + "\n"
					}
				}
				if err := n.tables.Load(family, text+"COMMIT\n"); err != nil {
					t.Fatal(err)
				}
			}
			backstop := waysInto(n, former.Prefix())
			if len(backstop) == 0 {
				t.Fatal("filter leads nowhere after the flush")
			}

			n.open(t)
			if err := n.state.begin(); err != nil {
				t.Fatal(err)
			}
			if now := waysInto(n, former.Prefix()); !slices.Equal(now, backstop) {
				t.Errorf("the next agent has begun, and filter has\n%q, was\n%q", now, backstop)
			}
			if !slices.Equal(n.flows.marks, live) {
				t.Errorf("the next agent has begun, and a live flow has mark %#x, was %#x", n.flows.marks, live)
			}
			n.mustApply(t, narrow.updates()...)
			if left := waysInto(n, former.Prefix()); n.state.world.names[4] == former || len(left) > 0 {
				t.Errorf("the next agent enforces its policy as %s, and filter still has %q", n.state.world.names[4].Prefix(), left)
			}
			if own := waysInto(n, n.state.world.names[4].Prefix()); len(own) != len(backstop) {
				t.Errorf("filter has %q for the next agent, want as many as %q", own, backstop)
			}
		})
	}
}

// waysInto are the rules of IPv4's built-in chains of filter that lead to the chains with a prefix.
func waysInto(n *fakeNode, prefix string) (rules []string) {
	for line := range strings.Lines(n.tables.Save(iptables.V4, "filter")) {
		if strings.Contains(line, "-j "+prefix) && (strings.Contains(line, "-A FORWARD ") || strings.Contains(line, "-A INPUT ")) {
			rules = append(rules, strings.TrimSpace(line))
		}
	}
	return rules
}
