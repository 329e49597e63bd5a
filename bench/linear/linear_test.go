package linear

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/ruleset"
)

// A first packet walks two rules for each of policy, and no chain refers to one that is not there.
func TestRulesAreTwoForEachOfPolicy(t *testing.T) {
	rule := Rule{Net: netip.MustParsePrefix("20.0.0.0/24"), Port: 80}
	pod := Pod{Iface: "cali0123456789a", Egress: [][]Rule{{rule, rule}, {rule}, {rule}, {rule}, {rule}, {{Set: "s", Port: 81}}},
		To: netip.MustParsePrefix("10.65.0.1/32"), Port: 7000}
	text := Rules([]Pod{pod})
	if n, want := strings.Count(text, "-A cali-po-"), 2*(7+2); n != want {
		t.Errorf("%d rules in chains of policies, want %d", n, want)
	}
	declared := map[string]bool{"PREROUTING": true, "POSTROUTING": true, "FORWARD": true, "ACCEPT": true, "DROP": true, "RETURN": true, "MARK": true}
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, ":"); ok {
			name, _, _ = strings.Cut(name, " ")
			declared[name] = true
			if len(name) > 28 {
				t.Errorf("chain %s has a name of more than 28 bytes", name)
			}
		}
	}
	for line := range strings.Lines(text) {
		if target, _ := ruleset.Target(strings.TrimSpace(line)); target != "" && !declared[target] {
			t.Errorf("nothing has the name %s: %s", target, line)
		}
	}
	if one := Change(Pod{Iface: "calia", Ingress: [][]Rule{{rule}}}, 0); strings.Count(one, "\n-A") != 2 {
		t.Errorf("a change of a policy of one rule is\n%s", one)
	}
}
