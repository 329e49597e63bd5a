package walk

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/ruleset"
)

func set(o ruleset.Option) (match, error) {
	if o.Name != "--match-set" {
		return nil, fmt.Errorf("option %s is not known here", o.Name)
	}
	places, err := readPlaces(o.Values[1])
	return func(s *state) (bool, error) {
		_, found, err := s.lookup(o.Values[0], places)
		return found != o.Negated, err
	}, err
}

func readPlaces(text string) (places []Place, err error) {
	for _, word := range strings.Split(text, ",") {
		switch word {
		case "src":
			places = append(places, Src)
		case "dst":
			places = append(places, Dst)
		default:
			return nil, fmt.Errorf("the place %q is not known here", word)
		}
	}
	return places, nil
}

var errNoSets = errors.New("there is no set to look it up in")

func (s *state) lookup(name string, places []Place) (Entry, bool, error) {
	if s.sets == nil {
		return Entry{}, false, fmt.Errorf("set %s: %w", name, errNoSets)
	}
	e, found, err := s.sets.Lookup(name, places, &s.packet)
	if err != nil {
		err = fmt.Errorf("set %s: %w", name, err)
	}
	return e, found, err
}

func comment(ruleset.Option) (match, error) {
	return is(false, func(*Packet) bool { return true }), nil
}

func limit(o ruleset.Option) (match, error) {
	if o.Negated {
		return nil, errors.New("a limit cannot be negated")
	}
	return is(false, func(p *Packet) bool { return !p.Others.Limited }), nil
}

// routing matches no packet without a routing header.
func routing(o ruleset.Option) (match, error) {
	field := func(r *Routing) uint32 { return r.SegmentsLeft }
	text := o.Values[0]
	switch o.Name {
	case "--rt-segsleft":
	case "--rt-type":
		field = func(r *Routing) uint32 { return r.Type }
		text += ":" + text
	default:
		return nil, fmt.Errorf("option %s is not known here", o.Name)
	}
	spanned, err := readSpan(text)
	return is(false, func(p *Packet) bool {
		return p.Routing != nil && spanned.has(uint64(field(p.Routing))) != o.Negated
	}), err
}

func bytecode(o ruleset.Option) (match, error) {
	return func(s *state) (bool, error) {
		if s.packet.Others.BPF == nil {
			return false, errors.New("no answer is given for the match bpf")
		}
		return s.packet.Others.BPF(o.Values[0]) != o.Negated, nil
	}, nil
}

func addrtype(o ruleset.Option) (match, error) {
	types := strings.Split(o.Values[0], ",")
	return func(s *state) (bool, error) {
		have := s.packet.Others.SrcType
		if o.Name == "--dst-type" {
			have = s.packet.Others.DstType
		}
		if have == "" {
			return false, errors.New("no answer is given for the match addrtype")
		}
		return slices.Contains(types, have) != o.Negated, nil
	}, nil
}

func pkttype(o ruleset.Option) (match, error) {
	return func(s *state) (bool, error) {
		if s.packet.Others.LinkType == "" {
			return false, errors.New("no answer is given for the match pkttype")
		}
		return (s.packet.Others.LinkType == o.Values[0]) != o.Negated, nil
	}, nil
}
