package iptables_test

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/iptables"
)

// unprintable are rules that nft adds and iptables-nft-save cannot print: beside the first it prints no chain and succeeds, beside
// the second it fails.
var unprintable = []string{"ct mark set meta mark and 0xff", "meta skuid 7"}

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

// In the chain with our jumps such a rule is reported, and nothing is written, until it has gone.
func TestARuleThatIptablesCannotPrintBesideOurJump(t *testing.T) {
	nftKernels(t, func(t *testing.T, k kernel, rule string) {
		table := example(t, k)
		findings(t, table)
		nft(t, k, "add rule", "FORWARD", rule)
		for range 2 {
			_, err := table.Check(t.Context())
			unreadable, ok := errors.AsType[*iptables.UnreadableError](err)
			if !ok || unreadable.Chain != "FORWARD" || !strings.Contains(err.Error(), "mangle FORWARD`") {
				t.Fatalf("the rule is in FORWARD: %v", err)
			}
		}
		if done := apply(t, table); done.Chains+done.Jumps > 0 {
			t.Errorf("written: %+v", done)
		}
		if _, err := unwritten(t, k).Apply(t.Context()); err == nil {
			t.Error("the next agent writes although it does not know the chain")
		}
		if err := k.tools.Readable(t.Context(), "filter", "mangle"); err == nil || !strings.Contains(err.Error(), "chain FORWARD has a rule") {
			t.Errorf("readable: %v", err)
		}
		nft(t, k, "flush chain", "FORWARD", "")
		found := findings(t, table)
		if !slices.ContainsFunc(found, func(f iptables.Finding) bool { return f.Chain == "FORWARD" }) {
			t.Errorf("the jump has gone with the rule: %v", found)
		}
		apply(t, table)
		if found := findings(t, table); len(found) > 0 {
			t.Errorf("after the repair: %v", found)
		}
	})
}
