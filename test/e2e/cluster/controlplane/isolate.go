package controlplane

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/lab"
)

// Isolate cuts a node off from the control plane silently: what the node sends gets no answer, as when a cable is
// pulled. Clients of this process are not affected, so the cluster goes on changing meanwhile.
func (c *ControlPlane) Isolate(n *lab.Node) error { return c.lose(n, (*netlink.Handle).RuleAdd) }

// Rejoin takes Isolate back.
func (c *ControlPlane) Rejoin(n *lab.Node) error { return c.lose(n, (*netlink.Handle).RuleDel) }

// lose adds or removes rules by which packets to the node are lost.
func (c *ControlPlane) lose(n *lab.Node, do func(*netlink.Handle, *netlink.Rule) error) error {
	for _, a := range n.Addrs() {
		rule := netlink.NewRule()
		rule.Dst = &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
		rule.Type, rule.Priority, rule.Family = unix.FR_ACT_BLACKHOLE, 1, unix.AF_INET
		if a.Is6() {
			rule.Family = unix.AF_INET6
		}
		if err := do(c.opts.Host.Netlink(), rule); err != nil {
			return fmt.Errorf("change what becomes of packets from the control plane to %s: %w", a, err)
		}
	}
	return nil
}
