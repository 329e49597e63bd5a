//go:build linux

package traffic

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// restoreCommand is the iptables that writes rules the kernel walks one by one, as iptables dataplanes use it; the
// nftables variant where that is all there is.
func restoreCommand() string {
	if _, err := exec.LookPath("iptables-legacy-restore"); err == nil {
		return "iptables-legacy-restore"
	}
	return "iptables-restore"
}

// iptablesConfig stands in for an iptables dataplane: rules written by hand in the usual shape.
func iptablesConfig(name string, rules, share int, withSets bool) config {
	return config{
		name: name, share: share, denies: true,
		setUp: func(ctx context.Context, s *site) error {
			if withSets {
				if _, err := s.seats[0].node.Run(ctx, sets(rules), "ipset", "restore"); err != nil {
					return err
				}
			}
			text := handWritten(rules, s.client.Iface(), s.server.Iface(), s.client.Addr4(), s.server.Addr4(), withSets)
			if _, err := s.seats[0].node.Run(ctx, text, restoreCommand()); err != nil {
				return err
			}
			return s.countChains(ctx, rules)
		},
	}
}

// countChains checks that the kernel has the rules.
func (s *site) countChains(ctx context.Context, rules int) error {
	out, err := s.seats[0].node.Run(ctx, "", strings.TrimSuffix(restoreCommand(), "restore")+"save", "-t", "filter")
	if err != nil {
		return err
	}
	for _, chain := range []string{"from-client", "to-server"} {
		if n := strings.Count(out, "-A "+chain+" "); n != rules+2 {
			return fmt.Errorf("chain %s has %d rules, want %d", chain, n, rules+2)
		}
	}
	return nil
}
