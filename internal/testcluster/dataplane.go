package testcluster

import (
	"os"
	"testing"
)

// dataplaneEnv chooses the dataplane of agents that are given none, here as anywhere: agents of tests inherit it.
const dataplaneEnv = "MARGAY_DATAPLANE"

// IPTables reports whether agents of tests enforce with iptables, not with BPF.
func IPTables() bool { return os.Getenv(dataplaneEnv) == "iptables" }

// NeedsBPF skips a test where agents enforce with iptables, for a reason: what it looks at is BPF's own, or the iptables
// dataplane does not have it.
func NeedsBPF(t testing.TB, reason string) {
	t.Helper()
	if IPTables() {
		t.Skip("with iptables: " + reason)
	}
}
