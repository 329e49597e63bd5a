package iptables_test

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/iptables"
)

// hiding are expressions that make a rule match fewer packets, and that iptables-nft-save leaves out.
var hiding = map[iptables.Family][]string{
	iptables.V4: {"ip daddr { 203.0.113.1, 203.0.113.2 }", "ip daddr 203.0.113.1-203.0.113.7", "@nh,96,32 & 0 != 0", "ip protocol 0", "ip dscp 7"},
	iptables.V6: {"ip6 daddr { 2001:db8::1, 2001:db8::2 }", "ip6 daddr 2001:db8::1-2001:db8::7", "ip6 flowlabel 9"},
	0: {"tcp sequence 5", "udp length 9", "udp dport { 7, 9 }", "tcp dport 7 tcp dport 9", "iifname { \"a\", \"b\" }", "fib daddr type local", "meta l4proto 0",
		"numgen inc mod 2 == 1", "ct state { new, established }", "limit rate over 10/second", "meta mark 1 meta mark 2", "tcp dport < 1", "tcp dport > 65535", "tcp dport != 0-65535", "@th,0,32 5", "meta length 9", "oifname \"cali+\""},
}

func ofNFT(t *testing.T, test func(t *testing.T, k kernel)) {
	realKernels(t, func(t *testing.T, k kernel) {
		if k.tools.Backend != iptables.NFT {
			t.Skip("iptables-legacy-save prints all of each rule")
		}
		testutil.RequireCommand(t, "nft")
		test(t, k)
	})
}

// A rule of ours that somebody has replaced by one that iptables prints in the same way is found, by the agent and by verification, and
// repaired. So is a jump of ours.
func TestARuleThatIptablesDoesNotPrintAsItIsIsRepaired(t *testing.T) {
	ofNFT(t, func(t *testing.T, k kernel) {
		for _, match := range append(hiding[0], hiding[k.family]...) {
			t.Run(match, func(t *testing.T) {
				testutil.NetNS(t).Enter(t)
				table := example(t, k)
				findings(t, table)
				apply(t, table)
				table.Observe(func() bool { return true })
				before := own(t, table)
				for chain, verdict := range map[string]string{"mgyA-judge": "return", "FORWARD": "jump mgyA-FORWARD"} {
					replaceLast(t, k, chain, match+" counter "+verdict)
					read, err := iptables.ReadAll(t.Context(), table, func() error { return nil })
					if err != nil {
						t.Fatal(err)
					}
					if found, _ := read.Altered(table); len(found) != 1 || found[0].Chain != chain {
						t.Errorf("chain %s: verification finds %v", chain, found)
					}
					if found := findings(t, table); len(found) != 1 || found[0].Chain != chain {
						t.Errorf("chain %s: found %v", chain, found)
					}
					apply(t, table)
					if list := listed(t, k, chain); strings.Count(list, verdict) != 1 || strings.Contains(list, match) {
						t.Errorf("after the repair:\n%s", list)
					}
				}
				if after := own(t, table); strings.Join(after, "\n") != strings.Join(before, "\n") {
					t.Errorf("after the repair:\n%s\nbefore the damage:\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
				}
				if found := findings(t, table); len(found) > 0 {
					t.Errorf("after the repair: %v", found)
				}
			})
		}
	})
}

// A rule that is found to be printed as it is means the same after iptables has printed it and read it again.
func TestWhatIptablesPrintsOfARuleIsAllOfIt(t *testing.T) {
	ofNFT(t, func(t *testing.T, k kernel) {
		if k.family == iptables.V6 {
			t.Skip("the matches below are of IPv4")
		}
		matches, whole := []string{"ip saddr 10.0.0.1", "ip saddr 10.0.0.0/9", "ip saddr != 10.0.0.0/16", "ip daddr 0.0.0.0", "ip saddr & 255.0.255.0 == 10.0.1.0", "ip saddr < 10.0.0.1",
			"ip saddr 10.0.0.1 ip saddr 10.0.0.2", "tcp dport != 80", "tcp dport 0", "tcp dport <= 80", "tcp dport < 80", "tcp dport > 65534", "tcp dport 80-90", "udp sport != 80-90", "udp sport < 1",
			"tcp dport != 0-65535", "tcp flags syn", "tcp flags & syn != 0", "tcp flags != syn / syn,ack", "meta mark & 0xff != 1", "meta mark != 0", "meta mark > 5", "meta mark & 1 == 2",
			"iifname cali*", "oifname != lo", "iif lo", "oifname \"cali+\"", "meta l4proto 255", "meta l4proto 0", "meta l4proto != 6 @th,16,16 5", "meta l4proto 6 @th,104,16 2",
			"limit rate 10/minute burst 7 packets", "limit rate over 10/second", "limit rate 10 kbytes/second", "log group 5 drop", "log prefix x", "counter meta mark set 5", "accept", "continue",
			"notrack", "ip protocol 6", "ip protocol 0", "meta l4proto tcp reject with tcp reset", "meta pkttype host", "ip ttl 5"}, 0
		for _, match := range matches {
			t.Run(match, func(t *testing.T) {
				testutil.NetNS(t).Enter(t)
				k.load(t, "mangle", ":mgyA-x - [0:0]")
				nft(t, k, "add rule", "mgyA-x", match)
				before := listed(t, k, "mgyA-x")
				saved, err := k.table("mangle").Read(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				text := saved.Chain("mgyA-x").Rules[0].Text
				if strings.Contains(text, `"iptables `) {
					return
				}
				whole++
				k.load(t, "mangle", ":mgyA-x - [0:0]", "-A mgyA-x "+text)
				if after := counted.ReplaceAllString(listed(t, k, "mgyA-x"), ""); !slices.Equal(strings.Fields(protocol(after)), strings.Fields(protocol(before))) {
					t.Errorf("printed as %q, which means\n%snot\n%s", text, after, before)
				}
			})
		}
		t.Logf("%d of %d rules are printed as they are", whole, len(matches))
		if whole < 12 { // 20 with iptables 1.8.9
			t.Errorf("only %d of %d rules are found to be printed as they are", whole, len(matches))
		}
	})
}

// counted finds the counters that iptables adds to each rule.
var counted = regexp.MustCompile(`counter packets \d+ bytes \d+`)

// protocol has the protocol of IPv4 packets in one form: iptables 1.8.11 reads it in the header.
func protocol(listed string) string {
	return strings.ReplaceAll(listed, "ip protocol ", "meta l4proto ")
}

// replaceLast replaces the last rule of a chain.
func replaceLast(t *testing.T, k kernel, chain, rule string) {
	t.Helper()
	family := map[iptables.Family]string{iptables.V4: "ip", iptables.V6: "ip6"}[k.family]
	out, err := exec.Command("nft", "-a", "list", "chain", family, "mangle", chain).Output()
	if err != nil {
		t.Fatal(err)
	}
	rules := strings.Split(strings.TrimSpace(string(out)), "\n")
	_, handle, ok := strings.Cut(rules[len(rules)-3], " # handle ")
	if !ok {
		t.Fatalf("no rule in %s", out)
	}
	nft(t, k, "replace rule", chain, "handle "+handle+" "+rule)
}
