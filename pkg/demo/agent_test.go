package demo

import (
	"slices"
	"testing"
)

// TestTheAgentOfTheDemoHasNoSettingsOfThisMachine: an agent with another prefix, say, would enforce nothing on the pods of the demo.
func TestTheAgentOfTheDemoHasNoSettingsOfThisMachine(t *testing.T) {
	got := environment([]string{"PATH=/bin", "MARGAY_INTERFACE_PREFIX=eth", "MARGAY_DATAPLANE=iptables", "MARGAY_CONFIG_FILE=/x",
		"MARGAY_IPTABLES_BACKEND=nft", "HOME=/root"})
	if want := []string{"PATH=/bin", "MARGAY_DATAPLANE=iptables", "MARGAY_IPTABLES_BACKEND=nft", "HOME=/root"}; !slices.Equal(got, want) {
		t.Errorf("the environment is %q, want %q", got, want)
	}
}
