package iptables

import (
	"os/exec"
	"slices"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
)

// Rules of a chain of ours that versions before 1.8.8 print in part, and that later ones print, and rules that all print. Of 1.8.7 they are
// what it printed of a rule that nft had added.
var (
	newlyPrinted = []string{"tcp dport 80", "udp sport != 5-9", "tcp dport != 80", "tcp flags syn / syn,ack", "meta mark 1", "meta mark & 0xff == 1",
		"ip saddr & 255.0.255.0 == 10.0.1.0", "ip daddr & 0.0.0.255 != 0.0.0.1", "log prefix x", "meta l4proto tcp reject with tcp reset"}
	everPrinted = []string{"ip saddr 10.0.0.1", "ip saddr 10.0.0.0/9", "ip daddr != 10.0.0.0/16", "iifname \"cali*\"", "oifname != \"lo\"", "ip protocol udp",
		"limit rate 10/minute burst 7 packets", "counter accept"}
)

func TestVersionsBefore188PrintLess(t *testing.T) {
	testutil.Privileged(t)
	testutil.RequireCommand(t, "nft")
	testutil.NetNS(t).Enter(t)
	nft := func(words ...string) {
		t.Helper()
		if out, err := exec.Command("nft", words...).CombinedOutput(); err != nil {
			t.Fatalf("nft %q: %v\n%s", words, err, out)
		}
	}
	nft("add", "table", "ip", "mangle")
	nft("add", "chain", "ip", "mangle", "mgyA-x")
	rules := slices.Concat(newlyPrinted, everPrinted)
	for _, rule := range rules {
		nft("add", "rule", "ip", "mangle", "mgyA-x", rule)
	}
	for _, older := range []bool{false, true} {
		list, err := (&machine{backend: NFT, older: older}).hidden(V4, "mangle")
		if err != nil {
			t.Fatal(err)
		}
		var found, want []string
		for _, r := range list {
			found = append(found, rules[r.place])
		}
		if older {
			want = newlyPrinted
		}
		if !slices.Equal(found, want) {
			t.Errorf("of a version before 1.8.8 (%t) these rules are found to be printed in part:\n%q\nwant\n%q", older, found, want)
		}
	}
}

func TestWhichVersionsAreOlder(t *testing.T) {
	for version, want := range map[string]bool{
		"iptables-restore v1.8.7 (nf_tables)": true, "iptables v1.8.8 (nf_tables)": false, "iptables v1.8.9 (nf_tables)": false, "iptables v1.8.11 (nf_tables)": false,
		"iptables v1.8 (nf_tables)": true, "iptables v1.7.99": true, "iptables v2.0.0": false, "iptables v1.10.0 (nf_tables)": false, "iptables of somebody": false, "": false,
	} {
		if got := isOlder(version, nativeSince); got != want {
			t.Errorf("%q: %t", version, got)
		}
	}
}
