package lab

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Service is a virtual address that one node translates to backends, as kube-proxy's iptables mode does: in PREROUTING
// and OUTPUT, at random, with masquerade for a pod that gets itself as the backend and for sources outside the pod
// prefixes. It needs the commands iptables-restore and ip6tables-restore.
type Service struct {
	Addr     netip.AddrPort
	Protocol string           // tcp, udp or sctp
	Backends []netip.AddrPort // at least one, all of the family of Addr
	Local    bool             // sources outside the pod prefixes are kept, as with externalTrafficPolicy Local
}

type serviceKey struct {
	addr     netip.AddrPort
	protocol string
}

func (s Service) key() serviceKey { return serviceKey{s.Addr, s.Protocol} }

// chain is the chain of the service, or of one of its backends.
func (s Service) chain(backend string) string {
	sum := sha256.Sum256([]byte(s.Protocol + s.Addr.String() + backend))
	return "LAB-" + strings.ToUpper(hex.EncodeToString(sum[:8]))
}

// SetService adds the service to the node or changes its backends, in one transaction.
func (n *Node) SetService(s Service) error {
	if len(s.Backends) == 0 {
		return fmt.Errorf("set service %s/%s on %s: no backends", s.Addr, s.Protocol, n.name)
	}
	for _, b := range s.Backends {
		if b.Addr().Is6() != s.Addr.Addr().Is6() {
			return fmt.Errorf("set service %s/%s on %s: backend %s is of the other family", s.Addr, s.Protocol, n.name, b)
		}
	}
	s.Backends = slices.Clone(s.Backends)
	n.mu.Lock()
	defer n.mu.Unlock()
	old, had := n.services[s.key()]
	n.services[s.key()] = s
	gone := []Service(nil)
	if had {
		gone = append(gone, old)
	}
	if err := n.writeServices(s.Addr.Addr().Is6(), gone); err != nil {
		delete(n.services, s.key())
		if had {
			n.services[s.key()] = old
		}
		return fmt.Errorf("set service %s/%s: %w", s.Addr, s.Protocol, err)
	}
	return nil
}

// DeleteService removes a service of the node; flows that were translated stay translated.
func (n *Node) DeleteService(addr netip.AddrPort, protocol string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := serviceKey{addr, protocol}
	s, ok := n.services[key]
	if !ok {
		return fmt.Errorf("delete service %s/%s on %s: no such service", addr, protocol, n.name)
	}
	delete(n.services, key)
	if err := n.writeServices(addr.Addr().Is6(), []Service{s}); err != nil {
		n.services[key] = s
		return fmt.Errorf("delete service %s/%s: %w", addr, protocol, err)
	}
	return nil
}

// writeServices replaces the lab's chains of one family; gone are services whose chains go if nothing needs them now.
// The caller holds n.mu.
func (n *Node) writeServices(v6 bool, gone []Service) error {
	command := "iptables-restore"
	if v6 {
		command = "ip6tables-restore"
	}
	rules, chains := n.serviceRules(v6)
	var b strings.Builder
	b.WriteString("*nat\n")
	for _, c := range chains {
		fmt.Fprintf(&b, ":%s - [0:0]\n", c) // makes or empties it
	}
	var dead []string
	for _, s := range gone {
		for _, c := range s.chains() {
			if !slices.Contains(chains, c) {
				dead = append(dead, c)
			}
		}
	}
	for _, c := range dead {
		fmt.Fprintf(&b, ":%s - [0:0]\n", c)
	}
	if !n.jumps[v6] {
		b.WriteString("-A PREROUTING -j LAB-SERVICES\n-A OUTPUT -j LAB-SERVICES\n-A POSTROUTING -j LAB-MASQUERADE\n")
	}
	b.WriteString(rules)
	for _, c := range dead {
		fmt.Fprintf(&b, "-X %s\n", c)
	}
	b.WriteString("COMMIT\n")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := n.Run(ctx, b.String(), command, "--noflush", "--wait", "5"); err != nil {
		return err
	}
	n.jumps[v6] = true
	return nil
}

func (s Service) chains() []string {
	names := []string{s.chain("")}
	for _, b := range s.Backends {
		names = append(names, s.chain(b.String()))
	}
	return names
}

// serviceRules renders all services of a family, in a stable order, and names the chains they use.
func (n *Node) serviceRules(v6 bool) (rules string, chains []string) {
	chains = []string{"LAB-SERVICES", "LAB-MASQUERADE"}
	var b strings.Builder
	b.WriteString("-A LAB-MASQUERADE -m mark ! --mark 0x4000/0x4000 -j RETURN\n" +
		"-A LAB-MASQUERADE -j MARK --xor-mark 0x4000\n-A LAB-MASQUERADE -j MASQUERADE --random-fully\n")
	var list []Service
	for _, s := range n.services {
		if s.Addr.Addr().Is6() == v6 {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(x, y Service) int {
		return cmp.Or(x.Addr.Compare(y.Addr), strings.Compare(x.Protocol, y.Protocol))
	})
	for _, s := range list {
		chains = append(chains, s.chains()...)
		top := s.chain("")
		fmt.Fprintf(&b, "-A LAB-SERVICES -d %s -p %s --dport %d -j %s\n", s.Addr.Addr(), s.Protocol, s.Addr.Port(), top)
		if !s.Local {
			fmt.Fprintf(&b, "-A %s ! -s %s -j MARK --set-xmark 0x4000/0x4000\n", top, allPods(v6))
		}
		for i, backend := range s.Backends {
			chain := s.chain(backend.String())
			if left := len(s.Backends) - i; left > 1 {
				fmt.Fprintf(&b, "-A %s -m statistic --mode random --probability %.10f -j %s\n", top, 1/float64(left), chain)
			} else {
				fmt.Fprintf(&b, "-A %s -j %s\n", top, chain)
			}
			fmt.Fprintf(&b, "-A %s -s %s -j MARK --set-xmark 0x4000/0x4000\n", chain, backend.Addr())
			fmt.Fprintf(&b, "-A %s -p %s -j DNAT --to-destination %s\n", chain, s.Protocol, backend)
		}
	}
	return b.String(), chains
}

// allPods covers the pod prefixes of all nodes.
func allPods(v6 bool) netip.Prefix {
	if v6 {
		return netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 0x65}), 32)
	}
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 65, 0, 0}), 16)
}
