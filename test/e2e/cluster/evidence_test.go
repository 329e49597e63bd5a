package cluster

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/lab"
)

// evidence logs who may have lost packets of a failed attempt at the addresses: the agents, kube-proxy, the nodes' conntrack, or the
// TCP of the servers. It is for the reader of a log whose run cannot be had again.
func (c *cluster) evidence(of []netip.Addr, servers ...*lab.Host) {
	c.t.Helper()
	for _, n := range c.nodes {
		c.t.Logf("dropped on %s so far:\n%s", n.Name(), n.agent.drops())
		rules, err := n.Run(c.t.Context(), "", "nft", "list", "ruleset")
		if err != nil {
			c.t.Logf("rules of %s: %v", n.Name(), err)
		}
		c.t.Logf("rules of %s by nftables for %v:\n%s", n.Name(), of, mentions(rules, of))
		c.t.Logf("conntrack of %s:\n%s\n%s", n.Name(), counters(n.Host, "stat/nf_conntrack"), mentions(ofNet(n.Host, "nf_conntrack"), of))
	}
	for _, s := range servers {
		c.t.Logf("TCP of %s:\n%s", s.Name(), counters(s, "netstat"))
	}
}

// ofNet is a file below /proc/net as the host sees it, or why it cannot be read.
func ofNet(h *lab.Host, file string) (text string) {
	err := h.Do(func() error {
		b, err := os.ReadFile("/proc/thread-self/net/" + file)
		text = string(b)
		return err
	})
	if err != nil {
		return err.Error()
	}
	return text
}

// mentions are the lines of a text that have one of the addresses. Conntrack writes IPv6 addresses in full.
func mentions(text string, addrs []netip.Addr) string {
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool {
		return !slices.ContainsFunc(addrs, func(a netip.Addr) bool {
			return strings.Contains(line, a.String()) || strings.Contains(line, a.StringExpanded())
		})
	})
	return strings.Join(lines, "\n")
}

// counters are the counters of a file that are not zero: pairs of a line of names and a line of numbers. Of conntrack's there is a line
// of numbers for each CPU.
func counters(h *lab.Host, file string) string {
	var names, found []string
	for line := range strings.Lines(ofNet(h, file)) {
		words := strings.Fields(line)
		if len(words) != len(names) || words[0] == "entries" {
			names = words
			continue
		}
		for i, w := range words {
			if i > 0 && strings.Trim(w, "0") != "" {
				found = append(found, fmt.Sprintf("%s %s", names[i], w))
			}
		}
		if file == "netstat" {
			names = nil
		}
	}
	return strings.Join(found, ", ")
}
