package marks

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
)

// TestUsersAreFoundInTheKernel makes rules with the tools that people use, and reads them without.
func TestUsersAreFoundInTheKernel(t *testing.T) {
	testutil.Privileged(t)
	for _, tc := range []struct {
		rules []string // commands
		want  []string
	}{
		{rules: []string{"true"}},
		{[]string{"ip rule add fwmark 0x400/0x400 table 100 priority 77"}, []string{"ip rule 77 reads bits 0x00000400"}},
		{[]string{"iptables -t mangle -A PREROUTING -i eth0 -j MARK --or-mark 0x1000"},
			[]string{"nftables ip mangle PREROUTING rule 2 changes bits 0x00001000"}},
		{[]string{"ip6tables -t mangle -A PREROUTING -j MARK --and-mark 0xffffefff"},
			[]string{"nftables ip6 mangle PREROUTING rule 2 changes bits 0x00001000"}},
		{[]string{"iptables -t mangle -A INPUT -j CONNMARK --restore-mark --nfmask 0xff00 --ctmask 0xf00",
			"iptables -t mangle -A INPUT -j CONNMARK --save-mark"}, []string{"nftables ip mangle INPUT rule 2 changes bits 0x00001c00"}},
		{[]string{"iptables -t mangle -A PREROUTING -p tcp -j TPROXY --on-port 80 --tproxy-mark 0x800/0x800"},
			[]string{"nftables ip mangle PREROUTING rule 2 changes bits 0x00000800"}},
		{[]string{"iptables -A FORWARD -m mark --mark 0x400/0x400 -j ACCEPT"}, []string{"nftables ip filter FORWARD rule 2 reads bits 0x00000400"}},
		{[]string{"nft add table inet t", "nft add chain inet t c", "nft add rule inet t c meta mark set meta mark or 0x800",
			"nft add rule inet t c meta mark and 0x4000 == 0x4000 meta mark set 0x1", "nft add rule inet t c ct mark set meta mark",
			"nft add rule inet t c meta mark set ct mark and 0xff"}, []string{"nftables inet t c rule 2 changes bits 0x00000800",
			"nftables inet t c rule 3 changes bits 0x00001c00", "nftables inet t c rule 5 changes bits 0x00001c00"}},
		// As kube-proxy and Calico do: bits that are not ours.
		{[]string{"iptables -t nat -A POSTROUTING -j MARK --set-xmark 0x4000/0x4000", "iptables -A FORWARD -m mark --mark 0x10000/0xffff0000 -j ACCEPT",
			"nft add table inet t", "nft add chain inet t c", "nft add rule inet t c meta mark set meta mark xor 0x4000"}, nil},
		{[]string{"iptables-legacy -t mangle -N mine", "iptables-legacy -t mangle -A mine -p tcp -m mark --mark 0x800/0xff00 -j MARK --set-xmark 0x1000/0x1000",
			"iptables-legacy -t mangle -A FORWARD -j mine", "iptables-legacy -t mangle -A FORWARD -j MARK --set-mark 1",
			"ip6tables-legacy -t mangle -A OUTPUT -p tcp --dport 80 -m mark --mark 0x400 -j ACCEPT"}, []string{
			"iptables-legacy mangle FORWARD rule 2 changes bits 0x00001c00",
			"iptables-legacy mangle mine rule 1 changes bits 0x00001000 and reads 0x00001c00",
			"ip6tables-legacy mangle OUTPUT rule 1 reads bits 0x00001c00"}},
	} {
		testutil.NetNS(t).Do(t, func() {
			for _, command := range tc.rules {
				words := strings.Fields(command)
				if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", command, err, out)
				}
			}
			users, err := Find()
			if err != nil {
				t.Error(err)
			}
			var got []string
			for _, u := range Of(users, 0x1c00) {
				got = append(got, u.String())
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("after %q:\n%q, want\n%q", tc.rules, got, tc.want)
			}
		})
	}
}
