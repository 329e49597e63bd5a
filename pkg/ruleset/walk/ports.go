package walk

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/margay-project/margay/pkg/ruleset"
)

// ofTransport makes a condition of a test of the transport header. Later fragments have none, and match nothing.
func ofTransport(negated bool, test func(p *Packet) bool) match {
	return func(s *state) (bool, error) { return !s.packet.Fragment && test(&s.packet) != negated, nil }
}

func transport(o ruleset.Option) (match, error) {
	switch o.Name {
	case "--sport", "--sports", "--dport", "--dports", "--ports":
		return portMatch(o)
	case "--tcp-flags":
		mask, flags := tcpFlags(o.Values[0]), tcpFlags(o.Values[1])
		return ofTransport(o.Negated, func(p *Packet) bool { return p.TCP&mask == flags }), nil
	}
	return nil, fmt.Errorf("option %s is not known here", o.Name)
}

func portMatch(o ruleset.Option) (match, error) {
	var spans []span
	for _, text := range strings.Split(o.Values[0], ",") {
		s, err := readSpan(text)
		if err != nil {
			return nil, err
		}
		spans = append(spans, s)
	}
	has := func(port uint16) bool {
		for _, s := range spans {
			if s.has(uint64(port)) {
				return true
			}
		}
		return false
	}
	return ofTransport(o.Negated, func(p *Packet) bool {
		switch o.Name {
		case "--sport", "--sports":
			return has(p.Ports.Src)
		case "--dport", "--dports":
			return has(p.Ports.Dst)
		}
		return has(p.Ports.Src) || has(p.Ports.Dst)
	}), nil
}

// span is an interval, both ends included.
type span struct{ low, high uint64 }

func (s span) has(n uint64) bool { return s.low <= n && n <= s.high }

func readSpan(text string) (s span, err error) {
	low, high, _ := strings.Cut(text, ":")
	if s.low, err = strconv.ParseUint(low, 10, 32); err == nil {
		s.high, err = strconv.ParseUint(high, 10, 32)
	}
	return s, err
}

var flagBits = map[string]uint8{"FIN": FIN, "SYN": SYN, "RST": RST, "PSH": PSH, "ACK": ACK, "URG": URG}

func tcpFlags(text string) (bits uint8) {
	for _, name := range strings.Split(text, ",") {
		bits |= flagBits[name]
	}
	return bits
}

func icmp(o ruleset.Option) (match, error) {
	if o.Values[0] == "any" {
		return ofTransport(o.Negated, func(*Packet) bool { return true }), nil
	}
	kind, code, withCode := strings.Cut(o.Values[0], "/")
	k, err := strconv.ParseUint(kind, 10, 8)
	c := uint64(0)
	if err == nil && withCode {
		c, err = strconv.ParseUint(code, 10, 8)
	}
	if err == nil && k == 255 && o.Name == "--icmp-type" {
		err = fmt.Errorf("type 255 stands for any to some versions of iptables")
	}
	return ofTransport(o.Negated, func(p *Packet) bool {
		return uint64(p.ICMP.Type) == k && (!withCode || uint64(p.ICMP.Code) == c)
	}), err
}
