package iptables

import (
	"context"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/iptables"
)

// A rule that somebody has added with nft to a chain of table mangle, and that iptables-nft-save cannot print, alters nothing: an agent
// finds its chains and jumps beside it, and so does the next one.
func TestRulesOfNftInOurTablesAreNoAlteration(t *testing.T) {
	n := newRealNode(t, iptables.NFT)
	testutil.RequireCommand(t, "nft")
	n.start()
	n.apply(-1)
	n.nft("add", "chain", "ip", "mangle", "other")
	n.nft("add", "rule", "ip", "mangle", "other", "ct", "mark", "set", "meta", "mark", "and", "0xff")
	for range 3 {
		n.agent.Resync()
		n.next()
		n.apply(-1)
	}
	if n.agent.repairs != 0 {
		t.Errorf("%d repairs of chains that nobody has altered", n.agent.repairs)
	}
	n.wantOneWorld("after three comparisons", "mgyA")
	n.start()
	n.apply(-1)
	n.wantOneWorld("with the next agent", "mgyB")
	n.start()
	n.apply(-1)
	n.wantOneWorld("with the next but one", "mgyA")
}

func (n *realNode) nft(words ...string) string {
	n.t.Helper()
	out, err := n.Run(context.Background(), "", "nft", words...)
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

// wantOneWorld demands that FORWARD has one jump, to the world of the prefix, and that there are chains and sets of no other.
func (n *realNode) wantOneWorld(when, prefix string) {
	n.t.Helper()
	table := n.nft("list", "table", "ip", "mangle")
	if jumps := strings.Count(table, "jump "+prefix+"-FORWARD"); jumps != 1 {
		n.t.Errorf("%s: %d jumps to %s-FORWARD", when, jumps, prefix)
	}
	for _, other := range []string{"mgyA", "mgyB", "mgyC"} {
		if other != prefix && strings.Contains(table, other+"-") {
			n.t.Errorf("%s: there are chains of %s", when, other)
		}
		names, err := n.kernel.Sets.Names(other)
		if err != nil || (len(names) > 0) != (other == prefix) {
			n.t.Errorf("%s: sets %q, %v", when, names, err)
		}
	}
}
