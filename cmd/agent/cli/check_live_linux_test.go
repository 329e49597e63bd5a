package cli

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestIPVSByItselfIsNoProblem has an interface that is named as kube-proxy's; the kernel need not have ip_vs.
func TestIPVSByItselfIsNoProblem(t *testing.T) {
	n := newNode(t)
	err := n.machine.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "kube-ipvs0"
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "kube-peer"})
	})
	if err != nil {
		t.Fatal(err)
	}
	n.want(0, []string{"translated by IPVS (the interface kube-ipvs0), judged on the backend"}, "check")
}

// TestARuleThatSetsOurMarkBitsIsSaid: such a bit can take packets past policy.
func TestARuleThatSetsOurMarkBitsIsSaid(t *testing.T) {
	for backend, where := range map[string]string{
		"iptables": "nftables ip mangle PREROUTING rule", "iptables-legacy": "iptables-legacy mangle PREROUTING rule 1",
	} {
		t.Run(backend, func(t *testing.T) {
			n := newNode(t)
			err := n.machine.Do(func() error {
				return exec.Command(backend, "-t", "mangle", "-A", "PREROUTING", "-i", "eth0", "-j", "MARK", "--or-mark", "0x1000").Run()
			})
			if err != nil {
				t.Fatal(err)
			}
			words := []string{"other programs use packet mark bits of Margay", where, "changes bits 0x00001000", "--mark-mask"}
			n.want(1, append(words, "PROBLEM"), "check")
			n.want(0, []string{"no rule of the node uses them"}, "check", "--mark-mask", "0x00700000")
			n.launch()
			n.ready(func() bool {
				out, code := n.cli("show", "problems")
				return code == 0 && strings.Contains(out, where)
			}, "the agent to say that somebody uses its bits")
			n.want(0, words, "show", "problems")
			n.unready("node")
		})
	}
}
