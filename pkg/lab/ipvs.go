package lab

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
)

// kubeIPVS is the interface that kube-proxy in IPVS mode gives all Service addresses to.
const kubeIPVS = "kube-ipvs0"

// IPVSMissing is why nodes cannot have IPVS services on this kernel; nil: they can.
func IPVSMissing() error {
	if _, err := os.Stat("/proc/net/ip_vs"); err != nil {
		return fmt.Errorf("find ip_vs in the kernel: %w", err)
	}
	return nil
}

// SetIPVS adds the service to the node or changes its backends, as kube-proxy does in IPVS mode: the address is the node's
// own, connections of the old backends end with them, and a pod that gets itself as the backend is masqueraded. It needs
// the command ipvsadm. SetService and this are for different nodes.
func (n *Node) SetIPVS(s Service) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.startIPVS(); err != nil {
		return fmt.Errorf("set IPVS service %s/%s: %w", s.Addr, s.Protocol, err)
	}
	at := []string{map[string]string{"tcp": "-t", "udp": "-u", "sctp": "--sctp-service"}[s.Protocol], s.Addr.String()}
	var commands [][]string
	old, had := n.services[s.key()]
	if !had {
		commands = append(commands, slices.Concat([]string{"ipvsadm", "-A"}, at, []string{"-s", "rr"}))
	}
	for _, b := range old.Backends {
		if !slices.Contains(s.Backends, b) {
			commands = append(commands, slices.Concat([]string{"ipvsadm", "-d"}, at, []string{"-r", b.String()}))
		}
	}
	for _, b := range s.Backends {
		if slices.Contains(old.Backends, b) {
			continue
		}
		iptables := "iptables"
		if b.Addr().Is6() {
			iptables = "ip6tables"
		}
		commands = append(commands,
			slices.Concat([]string{"ipvsadm", "-a"}, at, []string{"-r", b.String(), "-m"}),
			[]string{iptables, "-t", "nat", "-A", "POSTROUTING", "-s", b.Addr().String(), "-d", b.Addr().String(), "-j", "MASQUERADE"})
	}
	link, err := n.links.handle.LinkByName(kubeIPVS)
	if err != nil {
		return fmt.Errorf("set IPVS service %s/%s: %w", s.Addr, s.Protocol, err)
	}
	if err := n.links.addAddr(link, netip.PrefixFrom(s.Addr.Addr(), s.Addr.Addr().BitLen())); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, command := range commands {
		if _, err := n.Run(ctx, "", command[0], command[1:]...); err != nil {
			return fmt.Errorf("set IPVS service %s/%s: %w", s.Addr, s.Protocol, err)
		}
	}
	s.Backends = slices.Clone(s.Backends)
	n.services[s.key()] = s
	return nil
}

// startIPVS makes kube-proxy's interface and settings, unless they are there. The caller holds n.mu.
func (n *Node) startIPVS() error {
	if _, err := n.links.handle.LinkByName(kubeIPVS); err == nil {
		return nil
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = kubeIPVS
	if err := n.links.handle.LinkAdd(&netlink.Dummy{LinkAttrs: attrs}); err != nil {
		return fmt.Errorf("make interface %s: %w", kubeIPVS, err)
	}
	return n.sysctl("net/ipv4/vs/conntrack=1", "net/ipv4/vs/conn_reuse_mode=0", "net/ipv4/vs/expire_nodest_conn=1",
		"net/ipv4/vs/expire_quiescent_template=1", "net/ipv4/conf/all/arp_ignore=1", "net/ipv4/conf/all/arp_announce=2")
}
