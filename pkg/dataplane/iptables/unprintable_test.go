package iptables

import (
	"context"
	"errors"
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

// The same in the chains with its jumps: what it needs of them is where its jumps are.
func TestRulesOfNftBehindOurJumpsAreNoAlteration(t *testing.T) {
	n := newRealNode(t, iptables.NFT)
	testutil.RequireCommand(t, "nft")
	n.start()
	n.apply(-1)
	for table, chains := range map[string][]string{"raw": {"PREROUTING"}, "mangle": {"FORWARD", "POSTROUTING"}, "filter": {"FORWARD"}} {
		for _, chain := range chains {
			n.nft("add", "rule", "ip", table, chain, "ct", "mark", "set", "meta", "mark", "and", "0xff00ffff")
		}
	}
	n.agent.Resync()
	n.next()
	n.apply(-1)
	if n.agent.repairs != 0 {
		t.Errorf("%d repairs of chains that nobody has altered", n.agent.repairs)
	}
	if faults := n.faults(); len(faults) > 0 {
		t.Errorf("verification finds %q", faults)
	}
	n.nft("delete", "rule", "ip", "mangle", "FORWARD", "handle", n.handle("jump mgyA-FORWARD"))
	if faults := strings.Join(n.faults(), "\n"); !strings.Contains(faults, "chain FORWARD: it lacks the rule") {
		t.Errorf("the jump was deleted, and verification finds %q", faults)
	}
	n.agent.Resync()
	n.next()
	n.apply(-1)
	if n.agent.repairs != 1 {
		t.Errorf("%d repairs of the jump that was deleted", n.agent.repairs)
	}
	n.wantOneWorld("after the repair", "mgyA")
	n.start()
	n.apply(-1)
	n.wantOneWorld("with the next agent", "mgyB")
	n.start()
	n.apply(-1)
	n.wantOneWorld("with the next but one", "mgyA")
}

// faults are those of the parts that verification compares.
func (n *realNode) faults() (list []string) {
	n.t.Helper()
	n.do(func() error {
		v := n.agent.Verifier()
		if err := v.Begin(func() error { return nil }); err != nil {
			return err
		}
		if _, err := v.Entries(); err != nil {
			return err
		}
		parts, err := v.NodeFaults()
		for _, p := range parts {
			list = append(list, p.Faults...)
			if p.Skipped != "" {
				list = append(list, p.Name+" was not compared: "+p.Skipped)
			}
		}
		return errors.Join(err, v.End())
	})
	return list
}

// handle is that of the rule of mangle with a text.
func (n *realNode) handle(text string) string {
	n.t.Helper()
	for line := range strings.Lines(n.nft("-a", "list", "table", "ip", "mangle")) {
		if rule, handle, ok := strings.Cut(strings.TrimSpace(line), " # handle "); ok && strings.Contains(rule, text) {
			return handle
		}
	}
	n.t.Fatalf("no rule with %q", text)
	return ""
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
