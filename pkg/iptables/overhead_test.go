package iptables_test

import (
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/ruleset"
)

// The overhead of a transaction is the share of the entries that it leaves as they are. With nftables there is none.
func TestOverheadIsWhatATransactionLeavesAsItWas(t *testing.T) {
	for _, c := range []struct {
		commit iptables.Commit
		want   time.Duration
	}{
		{iptables.Commit{}, 0},
		{iptables.Commit{Chains: 5, Rules: 15, Entries: 100, Took: 4 * time.Second}, 3 * time.Second},
		{iptables.Commit{Chains: 5, Rules: 15, Entries: 100, Took: 4 * time.Second, Waited: 2 * time.Second}, 1500 * time.Millisecond},
		{iptables.Commit{Chains: 5, Rules: 90, Entries: 100, Took: time.Second}, 0},
		{iptables.Commit{Chains: 5, Rules: 90, Entries: 90, Took: time.Second}, 0},
		{iptables.Commit{Chains: 5, Rules: 15, Took: time.Second}, 0},
	} {
		if got := c.commit.Overhead(); got != c.want {
			t.Errorf("%+v: %v, want %v", c.commit, got, c.want)
		}
	}
}

// The commit of a legacy table says how many entries it has; that of nftables does not.
func TestACommitKnowsTheSizeOfALegacyTable(t *testing.T) {
	for backend, has := range map[iptables.Backend]bool{iptables.Legacy: true, iptables.NFT: false} {
		table := iptables.NewFake().Tools(backend).Table(iptables.V4, "mangle", "mgy")
		set(t, table, ruleset.Chain{Name: "mgyA-a", Rules: []string{"-j DROP"}})
		set(t, table, ruleset.Chain{Name: "mgyA-b", Rules: []string{"-j DROP", "-j DROP"}})
		first := apply(t, table)
		set(t, table, ruleset.Chain{Name: "mgyA-b", Rules: []string{"-j DROP"}})
		if second := apply(t, table); has != (second.Entries > 0) || second.Entries > first.Entries {
			t.Errorf("%s: %d entries, then %d", backend, first.Entries, second.Entries)
		}
	}
}
