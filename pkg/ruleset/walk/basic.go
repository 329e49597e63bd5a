package walk

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/margay-project/margay/pkg/ruleset"
)

// is makes a condition of a test that needs the packet alone.
func is(negated bool, test func(p *Packet) bool) match {
	return func(s *state) (bool, error) { return test(&s.packet) != negated, nil }
}

func basicMatch(o ruleset.Option) (match, error) {
	value := o.Values[0]
	switch o.Name {
	case "-s", "-d":
		prefix, err := netip.ParsePrefix(value)
		if err != nil {
			return nil, err
		}
		place := Src
		if o.Name == "-d" {
			place = Dst
		}
		return func(s *state) (bool, error) {
			addr := s.packet.Addr(place)
			if addr.Is4() != prefix.Addr().Is4() {
				return false, fmt.Errorf("%s %s: the packet is of the other family", o.Name, value)
			}
			return prefix.Contains(addr) != o.Negated, nil
		}, nil
	case "-i":
		return is(o.Negated, func(p *Packet) bool { return interfaceMatches(value, p.In) }), nil
	case "-o":
		return is(o.Negated, func(p *Packet) bool { return interfaceMatches(value, p.Out) }), nil
	case "-p":
		n, err := strconv.ParseUint(value, 10, 8)
		return is(o.Negated, func(p *Packet) bool { return uint64(p.Protocol) == n }), err
	}
	return nil, fmt.Errorf("option %s is not known here", o.Name)
}

// interfaceMatches compares a name; one that ends in + stands for all that begin so.
func interfaceMatches(pattern, name string) bool {
	if start, ok := strings.CutSuffix(pattern, "+"); ok {
		return strings.HasPrefix(name, start)
	}
	return name == pattern
}

// protocols of the matches that read a transport header: the kernel has them only in rules with that -p.
var protocols = map[string][]string{
	"tcp": {"6"}, "udp": {"17"}, "sctp": {"132"}, "icmp": {"1"}, "icmp6": {"58"}, "multiport": {"6", "17", "33", "132", "136"},
}

var errProtocol = errors.New("it needs -p with its protocol")

func checkProtocol(r ruleset.Rule, name string) error {
	want := protocols[name]
	if want == nil {
		return nil
	}
	if p, ok := r.Basic.Option("-p"); ok && !p.Negated {
		for _, number := range want {
			if p.Values[0] == number {
				return nil
			}
		}
	}
	return fmt.Errorf("the match %s: %w", name, errProtocol)
}
