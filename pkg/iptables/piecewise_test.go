package iptables_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/ruleset"
)

// unprintable are rules that nft adds and iptables-nft-save cannot print: beside the first it prints no chain and succeeds, beside
// the second it fails.
var unprintable = []string{"ct mark set meta mark and 0xff", "meta skuid 7", "numgen inc mod 1 == 0"}

// nft runs the command of that name with the chain's table.
func nft(t *testing.T, k kernel, verb, chain, rule string) {
	t.Helper()
	family := map[iptables.Family]string{iptables.V4: "ip", iptables.V6: "ip6"}[k.family]
	words := append(append(strings.Fields(verb), family, "mangle", chain), strings.Fields(rule)...)
	if out, err := exec.Command("nft", words...).CombinedOutput(); err != nil {
		t.Fatalf("nft %s: %v: %s", strings.Join(words, " "), err, out)
	}
}

func nftKernels(t *testing.T, test func(t *testing.T, k kernel, rule string)) {
	realKernels(t, func(t *testing.T, k kernel) {
		if k.tools.Backend != iptables.NFT {
			t.Skip("rules of nft are in nftables")
		}
		testutil.RequireCommand(t, "nft")
		for _, rule := range unprintable {
			t.Run(rule, func(t *testing.T) {
				testutil.NetNS(t).Enter(t)
				test(t, k, rule)
			})
		}
	})
}

func findings(t *testing.T, table *iptables.Table) []iptables.Finding {
	t.Helper()
	list, err := table.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// A context bounds the wait for others. The chains of a table are many, so reading them one by one may take longer.
func TestReadingChainByChainGoesOnWhenPatienceEnds(t *testing.T) {
	nftKernels(t, func(t *testing.T, k kernel, rule string) {
		table := example(t, k)
		nft(t, k, "add chain", "other", "")
		nft(t, k, "add rule", "other", rule)
		ended, end := context.WithCancel(t.Context())
		end()
		if saved, err := table.Read(ended); err != nil || saved.Chain("mgyA-judge") == nil {
			t.Errorf("read: %v, %v", saved, err)
		}
	})
}

// A rule of nft in a chain of somebody else costs nothing: our chains and jumps are compared, repaired, and known to the next agent.
func TestBesideARuleThatIptablesCannotPrint(t *testing.T) {
	nftKernels(t, func(t *testing.T, k kernel, rule string) {
		table := example(t, k)
		findings(t, table)
		nft(t, k, "add chain", "other", "")
		nft(t, k, "add rule", "other", rule)
		if found := findings(t, table); len(found) > 0 {
			t.Errorf("beside the rule of others: %v", found)
		}
		if done := apply(t, table); done.Chains+done.Jumps+done.Removed > 0 {
			t.Errorf("written, although nothing has changed: %+v", done)
		}
		saved, err := table.Read(t.Context())
		if err != nil || saved.Chain("mgyA-judge") == nil || saved.Chain("FORWARD") == nil || saved.Chain("other") != nil {
			t.Errorf("read with counters: %v, %v", saved, err)
		}
		if err := k.tools.Readable(t.Context(), "mangle", "filter"); err != nil {
			t.Errorf("not readable: %v", err)
		}
		next := unwritten(t, k)
		if done := apply(t, next); done.Chains+done.Jumps+done.Removed > 0 {
			t.Errorf("the next agent has written what was there: %+v", done)
		}
		nft(t, k, "flush chain", "mgyA-judge", "")
		if found := findings(t, table); len(found) != 1 || found[0].Chain != "mgyA-judge" {
			t.Errorf("a chain of ours is flushed: %v", found)
		}
		if done := apply(t, table); done.Chains != 1 {
			t.Errorf("the repair: %+v", done)
		}
		nft(t, k, "add rule", "mgyA-judge", rule)
		if found := findings(t, table); len(found) != 1 || found[0].Chain != "mgyA-judge" {
			t.Errorf("the rule is in a chain of ours: %v", found)
		}
		apply(t, table)
		if found := findings(t, table); len(found) > 0 {
			t.Errorf("after the repair: %v", found)
		}
	})
}

// In the chain with our jumps such a rule costs nothing, either: a running agent finds its jump beside it, and so does the next one.
func TestARuleThatIptablesCannotPrintBehindOurJump(t *testing.T) {
	nftKernels(t, func(t *testing.T, k kernel, rule string) {
		table := example(t, k)
		findings(t, table)
		nft(t, k, "add rule", "FORWARD", rule)
		for range 2 {
			if found := findings(t, table); len(found) > 0 {
				t.Errorf("beside the rule of others: %v", found)
			}
		}
		if done := apply(t, table); done.Chains+done.Jumps+done.Removed > 0 {
			t.Errorf("written, although nothing has changed: %+v", done)
		}
		if err := k.tools.Readable(t.Context(), "filter", "mangle"); err != nil {
			t.Errorf("not readable: %v", err)
		}
		if done := apply(t, unwritten(t, k)); done.Chains+done.Jumps+done.Removed > 0 {
			t.Errorf("the next agent has written what was there: %+v", done)
		}
		nft(t, k, "flush chain", "FORWARD", "")
		nft(t, k, "add rule", "FORWARD", rule)
		if found := findings(t, table); len(found) != 1 || found[0].Chain != "FORWARD" {
			t.Errorf("the jump is gone, and the rule is there: %v", found)
		}
		apply(t, table)
		if found := findings(t, table); len(found) > 0 {
			t.Errorf("after the repair: %v", found)
		}
		if saved, err := table.Read(t.Context()); err != nil || len(saved.Chain("FORWARD").Rules) != 2 || saved.Chain("FORWARD").Policy != "ACCEPT" {
			t.Errorf("chain FORWARD is read as %+v, %v", saved, err)
		}
	})
}

// The jumps of the world before are found by the names of its chains, and replaced by those of the next one.
func TestAJumpIsReplacedBesideARuleThatIptablesCannotPrint(t *testing.T) {
	nftKernels(t, func(t *testing.T, k kernel, rule string) {
		before := k.table("mangle")
		set(t, before, ruleset.Chain{Name: "mgyA-F", Rules: []string{"-j RETURN"}}, ruleset.Chain{Name: "mgyA-first", Rules: []string{"-j RETURN"}})
		jumps(t, before, "FORWARD", "-i cali+ -m connmark --mark 0x5/0xff -j mgyA-first", "-j mgyA-F")
		apply(t, before)
		nft(t, k, "add rule", "FORWARD", rule)
		next := k.table("mangle")
		next.Keep("mgyA-")
		set(t, next, ruleset.Chain{Name: "mgyB-F", Rules: []string{"-j RETURN"}}, ruleset.Chain{Name: "mgyB-first", Rules: []string{"-j RETURN"}})
		if done := apply(t, next); done.Chains != 3 || done.Jumps != 0 {
			t.Errorf("its chains: %+v", done)
		}
		next.Keep()
		jumps(t, next, "FORWARD", "-i cali+ -m connmark --mark 0x5/0xff -j mgyB-first", "-j mgyB-F")
		if done := apply(t, next); done.Jumps != 1 || done.Removed != 3 {
			t.Errorf("its jumps: %+v", done)
		}
		saved, err := next.Read(t.Context())
		if err != nil || len(saved.Chain("FORWARD").Rules) != 3 || saved.Chain("mgyA-F") != nil {
			t.Errorf("%+v, %v", saved, err)
		}
		if found := findings(t, next); len(found) > 0 {
			t.Errorf("then: %v", found)
		}
	})
}

// A jump whose text cannot be found out, because such a rule stands before it, because it is there twice, or because another agent has
// written it, is replaced by one that comes first.
func TestJumpsBesideARuleThatIptablesCannotPrintAreReplaced(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, k kernel, rule string){
		"before": func(t *testing.T, k kernel, rule string) { nft(t, k, "insert rule", "FORWARD", rule+" accept") },
		"twice": func(t *testing.T, k kernel, rule string) {
			nft(t, k, "add rule", "FORWARD", "counter jump mgyA-FORWARD")
			nft(t, k, "add rule", "FORWARD", rule)
		},
		"unknown": func(t *testing.T, k kernel, rule string) {
			nft(t, k, "add rule", "FORWARD", "meta l4proto tcp jump mgyA-ok")
			nft(t, k, "add rule", "FORWARD", rule)
		},
	} {
		t.Run(name, func(t *testing.T) {
			nftKernels(t, func(t *testing.T, k kernel, rule string) {
				table := example(t, k)
				findings(t, table)
				apply(t, table)
				table.Observe(func() bool { return true })
				damage(t, k, rule)
				read, err := iptables.ReadAll(t.Context(), table, func() error { return nil })
				if err != nil {
					t.Fatal(err)
				}
				if found, _ := read.Altered(table); len(found) != 1 || found[0].Chain != "FORWARD" {
					t.Errorf("verification finds %v", found)
				}
				if found := findings(t, table); len(found) != 1 || found[0].Chain != "FORWARD" {
					t.Errorf("found %v", found)
				}
				if done := apply(t, table); done.Jumps != 1 {
					t.Errorf("the repair: %+v", done)
				}
				wantOneJump(t, k, "mgyA-FORWARD")
				if found := findings(t, table); len(found) > 0 {
					t.Errorf("after the repair: %v", found)
				}
				damage(t, k, rule)
				next := k.table("mangle")
				set(t, next, ruleset.Chain{Name: "mgyB-FORWARD", Rules: []string{"-j RETURN"}})
				jumps(t, next, "FORWARD", "-j mgyB-FORWARD")
				if done := apply(t, next); done.Jumps != 1 || done.Removed != 4 {
					t.Errorf("the next agent: %+v", done)
				}
				wantOneJump(t, k, "mgyB-FORWARD")
				nft(t, k, "insert rule", "FORWARD", rule+" accept")
				next = k.table("mangle")
				jumps(t, next, "FORWARD")
				if done := apply(t, next); done.Removed != 2 {
					t.Errorf("the removal: %+v", done)
				}
				if list := listed(t, k, "FORWARD"); strings.Contains(list, "mgy") {
					t.Errorf("after the removal:\n%s", list)
				}
			})
		})
	}
}

// wantOneJump demands that chain FORWARD begins with the jump to a chain of ours, and has no other.
func wantOneJump(t *testing.T, k kernel, to string) {
	t.Helper()
	list := listed(t, k, "FORWARD")
	_, rules, _ := strings.Cut(list, ";\n")
	if first, _, _ := strings.Cut(rules, "\n"); !strings.HasSuffix(first, "jump "+to) || strings.Count(list, "mgy") != 1 {
		t.Errorf("chain FORWARD does not begin with the only jump to %s:\n%s", to, list)
	}
}

// listed is a chain of table mangle as nft prints it.
func listed(t *testing.T, k kernel, chain string) string {
	t.Helper()
	family := map[iptables.Family]string{iptables.V4: "ip", iptables.V6: "ip6"}[k.family]
	out, err := exec.Command("nft", "list", "chain", family, "mangle", chain).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
