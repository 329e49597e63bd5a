package pair

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// The groups to which the node's rules copy packets that conntrack finds invalid, and those that are delivered to the node itself.
const (
	invalidGroup   = 77
	deliveredGroup = 78
)

// ownMark is the mark of what the node sends for a test.
const ownMark = 1

// muteNode keeps the node's kernel from answering what is sent to it, and copies what is delivered to it, behind all rules of policy.
func (s *side) muteNode() error {
	rules := func(source netip.Addr, except string) string {
		return fmt.Sprintf("*raw\n%s-A OUTPUT -s %s -m mark ! --mark %d -j DROP\nCOMMIT\n*security\n-A INPUT -i cali+ -j NFLOG --nflog-group %d\nCOMMIT\n",
			except, source, ownMark, deliveredGroup)
	}
	discovery := ""
	for kind := 133; kind <= 137; kind++ {
		discovery += fmt.Sprintf("-A OUTPUT -p icmpv6 --icmpv6-type %d -j ACCEPT\n", kind)
	}
	return s.run(s.node.Host, rules(nodeAddrs[0], ""), rules(nodeAddrs[1], discovery))
}

// sendFromNode sends a packet as a process of the node.
func (s *side) sendFromNode(packet []byte) error {
	domain, level, option := unix.AF_INET, unix.SOL_IP, unix.IP_HDRINCL
	var to unix.Sockaddr
	if packet[0]>>4 == 4 {
		to = &unix.SockaddrInet4{Addr: [4]byte(packet[16:])}
	} else {
		domain, level, option = unix.AF_INET6, unix.SOL_IPV6, unix.IPV6_HDRINCL
		to = &unix.SockaddrInet6{Addr: [16]byte(packet[24:])}
	}
	return s.node.Do(func() error {
		fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		if err != nil {
			return fmt.Errorf("open a raw socket at the node: %w", err)
		}
		err = errors.Join(unix.SetsockoptInt(fd, level, option, 1), unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, ownMark))
		if err == nil {
			err = unix.Sendto(fd, packet, 0, to)
		}
		if err = errors.Join(err, unix.Close(fd)); err != nil && !errors.Is(err, unix.EPERM) { // its own rules drop it
			return fmt.Errorf("send a packet from the node: %w", err)
		}
		return nil
	})
}
