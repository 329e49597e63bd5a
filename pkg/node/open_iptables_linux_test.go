package node

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	xtables "github.com/margay-project/margay/pkg/iptables"
)

// TestNFTIsNotTakenBesideLegacyChainsInForce: a read-only /run keeps iptables-legacy from its lock. Chains of an earlier agent
// would then stay in force for good, beside those of nft.
func TestNFTIsNotTakenBesideLegacyChainsInForce(t *testing.T) {
	testutil.Privileged(t)
	for _, command := range []string{"iptables-legacy", "ip6tables-legacy"} {
		t.Run(command, func(t *testing.T) {
			testutil.NetNS(t).Enter(t)
			testutil.OwnTablesLock(t)
			legacy := func(args string) {
				t.Helper()
				if out, err := exec.Command(command, strings.Fields(args)...).CombinedOutput(); err != nil {
					t.Fatalf("%s %s: %v\n%s", command, args, err, out)
				}
			}
			legacy("-t mangle -N others")
			legacy("-t mangle -A others -m comment --comment mgyA-FORWARD -j RETURN") // no chain
			works := lookForIPTables(t, "auto")
			if works.tools.Backend != xtables.Legacy || works.unused != nil {
				t.Fatalf("with a lock: %v, %v", works.tools.Version, works.unused)
			}
			lock := filepath.Join(t.TempDir(), "missing", "lock")
			t.Setenv("XTABLES_LOCKFILE", lock)
			broken := lookForIPTables(t, "auto")
			if broken.tools == nil || broken.tools.Backend != xtables.NFT || broken.unused == nil || !strings.Contains(broken.detail, lock) || !broken.ok {
				t.Fatalf("without a lock: %+v, want nft and why it is not legacy", broken)
			}
			testutil.OwnTablesLock(t)
			legacy("-t mangle -N mgyB-FORWARD")
			t.Setenv("XTABLES_LOCKFILE", lock)
			refused := lookForIPTables(t, "auto")
			for _, want := range []string{"chains of an earlier agent are in force", "--iptables-backend nft", lock} {
				if refused.ok || !strings.Contains(refused.detail, want) || strings.Contains(refused.detail, "\n") {
					t.Errorf("beside chains in force: %+v, want one line with %q", refused, want)
				}
			}
			if tools, err := IPTablesTools(t.Context()); !errors.Is(err, errLegacyLeft) || len(tools) != 0 {
				t.Errorf("tools to remove chains: %v, %v, want none, since those of legacy do not work", tools, err)
			}
			if named := lookForIPTables(t, "nft"); !named.ok || named.tools.Backend != xtables.NFT || named.unused != nil {
				t.Errorf("named in the configuration: %+v", named)
			}
		})
	}
}

// lookedFor is the result of the check "iptables".
type lookedFor struct {
	tools  *xtables.Tools
	unused error
	ok     bool
	detail string
}

func lookForIPTables(t *testing.T, backend string) lookedFor {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), iptablesPatience)
	defer cancel()
	var h held
	parts, checks := openIPTablesParts(ctx, backend, &h)
	if err := h.release(); err != nil {
		t.Error(err)
	}
	for _, c := range checks {
		if c.Name == "iptables" {
			return lookedFor{parts.tools, parts.unused, c.OK, c.Detail}
		}
	}
	t.Fatalf("no check of iptables in %v", checks)
	return lookedFor{}
}
