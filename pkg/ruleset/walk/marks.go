package walk

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/margay-project/margay/pkg/ruleset"
)

// valueAndMask reads "0x1/0xff".
func valueAndMask(text string) (value, mask uint32, err error) {
	first, second, _ := strings.Cut(text, "/")
	v, err := strconv.ParseUint(first, 0, 32)
	if err != nil {
		return 0, 0, err
	}
	m, err := strconv.ParseUint(second, 0, 32)
	return uint32(v), uint32(m), err
}

// mark compares the bits under the mask with the whole value: a value with bits outside of its mask matches nothing.
func mark(o ruleset.Option) (match, error) {
	value, mask, err := valueAndMask(o.Values[0])
	return is(o.Negated, func(p *Packet) bool { return p.Mark&mask == value }), err
}

// connmark matches no packet without a connection, negated or not.
func connmark(o ruleset.Option) (match, error) {
	value, mask, err := valueAndMask(o.Values[0])
	return func(s *state) (bool, error) {
		c := s.packet.Connection
		return c != nil && (c.Mark&mask == value) != o.Negated, nil
	}, err
}

// conntrack is one condition, because what a packet without a connection matches depends on all of its options: with --ctstate
// nothing but that is asked, without it nothing matches.
func conntrack(part ruleset.Part) (match, error) {
	states, byState := part.Option("--ctstate")
	direction, byDirection := part.Option("--ctdir")
	protocol, byProtocol := part.Option("--ctproto")
	replies, byReplies := part.Option("--ctrepldst")
	number, answered := uint64(0), netip.Prefix{}
	if byDirection && (direction.Negated || direction.Values[0] != "ORIGINAL" && direction.Values[0] != "REPLY") {
		return nil, fmt.Errorf("--ctdir %v is not known here", direction.Values)
	}
	seen := map[string]bool{"--ctstate": false, "--ctdir": false, "--ctproto": false, "--ctrepldst": false}
	for _, o := range part.Options {
		if twice, known := seen[o.Name]; twice || !known {
			return nil, fmt.Errorf("option %s is not known here, or stands twice", o.Name)
		}
		seen[o.Name] = true
	}
	wanted := map[string]bool{}
	if byState {
		for _, name := range strings.Split(states.Values[0], ",") {
			if !stateNames[name] {
				return nil, fmt.Errorf("the state %s is not known here", name)
			}
			wanted[name] = true
		}
	}
	if byProtocol {
		var err error
		if number, err = strconv.ParseUint(protocol.Values[0], 10, 8); err != nil {
			return nil, err
		}
	}
	if byReplies {
		var err error
		if answered, err = netip.ParsePrefix(replies.Values[0]); err != nil {
			return nil, err
		}
	}
	return func(s *state) (bool, error) {
		c := s.packet.Connection
		switch {
		case byState && inStates(&s.packet, wanted) == states.Negated:
			return false, nil
		case c == nil:
			return byState, nil
		case byDirection && c.Reply != (direction.Values[0] == "REPLY"):
			return false, nil
		case byReplies && answered.Contains(c.ReplyDst) == replies.Negated:
			return false, nil
		}
		return !byProtocol || (uint64(c.Protocol) == number) != protocol.Negated, nil
	}, nil
}

var stateNames = map[string]bool{"INVALID": true, "UNTRACKED": true, "NEW": true, "ESTABLISHED": true, "RELATED": true, "SNAT": true, "DNAT": true}

func inStates(p *Packet, wanted map[string]bool) bool {
	c := p.Connection
	switch {
	case c == nil && p.Untracked:
		return wanted["UNTRACKED"]
	case c == nil:
		return wanted["INVALID"]
	case wanted["SNAT"] && c.SNAT, wanted["DNAT"] && c.DNAT:
		return true
	}
	return wanted[[...]string{New: "NEW", Established: "ESTABLISHED", Related: "RELATED"}[c.State]]
}
