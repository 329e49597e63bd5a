package iptables_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/iptables"
)

// A built-in chain that somebody has replaced, so that packets enter it elsewhere or not at all, is named by the agent's error and by
// verification. It is not deleted. When it is gone, it is made again.
func TestABuiltInChainThatIsMisplacedIsReported(t *testing.T) {
	ofNFT(t, func(t *testing.T, k kernel) {
		for definition, says := range map[string]string{
			"": "chain FORWARD: it is a regular chain, which packets do not enter",
			"{ type filter hook input priority -150; }":   "chain FORWARD: it is of type filter, hook input, priority -150; that of iptables is of type filter, hook forward, priority -150",
			"{ type filter hook forward priority 300; }":  "chain FORWARD: it is of type filter, hook forward, priority 300",
			"{ type filter hook forward priority -151; }": "chain FORWARD: it is of type filter, hook forward, priority -151",
		} {
			t.Run(definition, func(t *testing.T) {
				testutil.NetNS(t).Enter(t)
				table := example(t, k)
				findings(t, table)
				apply(t, table)
				table.Observe(func() bool { return true })
				nft(t, k, "flush chain", "FORWARD", "")
				nft(t, k, "delete chain", "FORWARD", "")
				nft(t, k, "add chain", "FORWARD", definition)
				nft(t, k, "add rule", "FORWARD", "counter jump mgyA-FORWARD")
				_, err := table.Check(t.Context())
				if _, ok := errors.AsType[*iptables.MisplacedError](err); !ok || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "policy is not enforced") {
					t.Errorf("Check: %v", err)
				}
				if err := k.tools.Readable(t.Context(), "mangle"); err == nil || !strings.Contains(err.Error(), says) {
					t.Errorf("Readable: %v", err)
				}
				read, err := iptables.ReadAll(t.Context(), table, func() error { return nil })
				if err != nil {
					t.Fatal(err)
				}
				if found, skipped := read.Altered(table); len(found) != 1 || skipped != "" || !strings.Contains(found[0].String(), says) {
					t.Errorf("verification finds %v, %s", found, skipped)
				}
				nft(t, k, "flush chain", "FORWARD", "")
				nft(t, k, "delete chain", "FORWARD", "")
				if found := findings(t, table); len(found) != 1 {
					t.Errorf("the chain is gone: %v", found)
				}
				apply(t, table)
				if found := findings(t, table); len(found) > 0 {
					t.Errorf("after the repair: %v", found)
				}
				wantOneJump(t, k, "mgyA-FORWARD")
			})
		}
	})
}
