package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// What others write with nft and iptables cannot print, or prints in part, opens nothing for longer than any other alteration: a rule before
// our jumps that accepts, a rule of ours with one match more, and jumps with one match more.
func TestMeddledRulesThatIptablesDoesNotPrint(t *testing.T) {
	c, client, servers := ofNftables(t)
	const match = "ip daddr { 203.0.113.1, 203.0.113.2 }"
	for what, script := range map[string]func() string{
		"a rule before our jumps": func() string {
			return "insert rule ip mangle FORWARD numgen inc mod 1 == 0 accept\ninsert rule ip filter FORWARD numgen inc mod 1 == 0 accept\n"
		},
		"our jumps": func() string {
			return narrowed(t, c, "mangle", "FORWARD", match) + narrowed(t, c, "filter", "FORWARD", match)
		},
		"our rule": func() string { return narrowed(t, c, "mangle", "mgyA-deny", match) },
	} {
		t.Run(what, func(t *testing.T) {
			testMeddling(t, c, servers, client, false, func() error {
				_, err := c.Node(0).Run(t.Context(), script(), "nft", "-f", "-")
				return err
			})
			list, err := c.Node(0).Run(t.Context(), "", "nft", "list", "chain", "ip", "mangle", "FORWARD")
			if err != nil || strings.Count(list, "jump mgyA-FORWARD") != 1 || strings.Contains(list, "203.0.113.1") {
				t.Errorf("after the repair:\n%s%v", list, err)
			}
		})
	}
}

// narrowed gives the jumps of a chain to ours, and its drops, one match more.
func narrowed(t *testing.T, c *cluster, table, chain, match string) string {
	t.Helper()
	list, err := c.Node(0).Run(t.Context(), "", "nft", "-a", "list", "chain", "ip", table, chain)
	if err != nil {
		t.Fatal(err)
	}
	rules := regexp.MustCompile(`(?m)^\s*(.*)counter packets \d+ bytes \d+ (jump mgyA-\S+|drop) # handle (\d+)$`).FindAllStringSubmatch(list, -1)
	if len(rules) == 0 {
		t.Fatalf("no such rule in %s", list)
	}
	text := ""
	for _, rule := range rules {
		text += fmt.Sprintf("replace rule ip %s %s handle %s %s %s counter %s\n", table, chain, rule[3], match, rule[1], rule[2])
	}
	return text
}
