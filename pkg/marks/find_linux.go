package marks

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Find looks for users in the network namespace of the calling thread. Users that could be found are returned beside an error.
// It takes time in proportion to the rules, about a second for some 100,000.
func Find() ([]User, error) {
	var all []User
	var errs []error
	for _, find := range []func() ([]User, error){routingRules, nftables, legacy} {
		users, err := find()
		all = append(all, users...)
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

func routingRules() ([]User, error) {
	rules, err := netlink.RuleList(netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list routing rules: %w", err)
	}
	var users []User
	for _, r := range rules {
		mask := ^uint32(0)
		if r.Mask != nil {
			mask = *r.Mask
		} else if r.Mark == 0 {
			continue
		}
		users = append(users, User{fmt.Sprintf("ip rule %d", r.Priority), Use{Reads: mask}})
	}
	return users, nil
}

// nftables lists the rules of all families and tables. iptables keeps its own there, too, unless it is the legacy one.
func nftables() ([]User, error) {
	const tries = 10
	for try := 1; ; try++ {
		users, err := nftablesOnce()
		switch {
		case errors.Is(err, netlink.ErrDumpInterrupted) && try < tries:
			continue
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPROTONOSUPPORT):
			return nil, nil // not in this kernel
		case err != nil:
			return users, fmt.Errorf("list rules of nftables: %w", err)
		}
		return users, nil
	}
}

func nftablesOnce() ([]User, error) {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	var users []User
	var errs []error
	err := request.ExecuteIter(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWRULE, func(message []byte) bool {
		user, err := decodeRule(message)
		errs = append(errs, err)
		if user.Use != (Use{}) {
			users = append(users, user)
		}
		return err == nil
	})
	return users, errors.Join(append(errs, err)...)
}

// decodeRule reads one rule: struct nfgenmsg, then attributes.
func decodeRule(message []byte) (User, error) {
	if len(message) < nl.SizeofNfgenmsg {
		return User{}, fmt.Errorf("a rule of %d bytes", len(message))
	}
	rule, err := attributes(message[nl.SizeofNfgenmsg:])
	if err != nil {
		return User{}, err
	}
	handle, _ := expression{attrs: map[uint16][]byte{0: last4(rule[unix.NFTA_RULE_HANDLE])}}.number(0)
	var expressions []expression
	list, err := nl.ParseRouteAttr(rule[unix.NFTA_RULE_EXPRESSIONS])
	if err != nil {
		return User{}, err
	}
	for _, element := range list {
		one, err := attributes(element.Value)
		if err != nil {
			return User{}, err
		}
		attrs, err := attributes(one[unix.NFTA_EXPR_DATA])
		if err != nil {
			return User{}, err
		}
		expressions = append(expressions, expression{text(one[unix.NFTA_EXPR_NAME]), attrs})
	}
	return User{Use: effect(expressions), Where: fmt.Sprintf("nftables %s %s %s rule %d", family(message[0]),
		text(rule[unix.NFTA_RULE_TABLE]), text(rule[unix.NFTA_RULE_CHAIN]), handle)}, nil
}

// last4 is the lower half of a handle, which is a number of 64 bits.
func last4(b []byte) []byte { return b[max(0, len(b)-4):] }

func attributes(b []byte) (map[uint16][]byte, error) {
	list, err := nl.ParseRouteAttr(b)
	if err != nil {
		return nil, err
	}
	const flags = unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER
	attrs := make(map[uint16][]byte, len(list))
	for _, a := range list {
		attrs[a.Attr.Type&^flags] = a.Value
	}
	return attrs, nil
}

func family(n uint8) string {
	switch n {
	case unix.NFPROTO_INET:
		return "inet"
	case unix.NFPROTO_IPV4:
		return "ip"
	case unix.NFPROTO_ARP:
		return "arp"
	case unix.NFPROTO_NETDEV:
		return "netdev"
	case unix.NFPROTO_BRIDGE:
		return "bridge"
	case unix.NFPROTO_IPV6:
		return "ip6"
	}
	return fmt.Sprintf("family %d", n)
}
