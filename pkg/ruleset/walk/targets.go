package walk

import (
	"fmt"

	"github.com/margay-project/margay/pkg/ruleset"
)

// targets are what a rule can do other than go to a chain. A rule without a target only counts.
var targets = map[string]func(ruleset.Part) (act, error){
	"":         func(ruleset.Part) (act, error) { return always(0), nil },
	"ACCEPT":   func(ruleset.Part) (act, error) { return always(Accept), nil },
	"DROP":     func(ruleset.Part) (act, error) { return always(Drop), nil },
	"RETURN":   func(ruleset.Part) (act, error) { return always(Returned), nil },
	"NFLOG":    func(ruleset.Part) (act, error) { return always(0), nil },
	"REJECT":   reject,
	"MARK":     setMark,
	"CONNMARK": setConnmark,
	"SET":      mapSet,
}

func always(v Verdict) act { return func(*state) (Verdict, error) { return v, nil } }

func reject(p ruleset.Part) (act, error) {
	answer := "port-unreachable"
	if o, ok := p.Option("--reject-with"); ok {
		answer = o.Values[0]
	}
	return func(s *state) (Verdict, error) {
		s.answer = answer
		return Reject, nil
	}, nil
}

// only is the one option that a target has to have.
func only(p ruleset.Part, name string) (ruleset.Option, error) {
	if o, ok := p.Option(name); ok && len(p.Options) == 1 {
		return o, nil
	}
	return ruleset.Option{}, fmt.Errorf("%s with options other than %s is not known here", p.Name, name)
}

func setMark(p ruleset.Part) (act, error) {
	o, err := only(p, "--set-xmark")
	if err != nil {
		return nil, err
	}
	value, mask, err := valueAndMask(o.Values[0])
	return func(s *state) (Verdict, error) {
		s.packet.Mark = s.packet.Mark&^mask ^ value
		return 0, nil
	}, err
}

// setConnmark does nothing to a packet without a connection.
func setConnmark(p ruleset.Part) (act, error) {
	o, err := only(p, "--set-xmark")
	if err != nil {
		return nil, err
	}
	value, mask, err := valueAndMask(o.Values[0])
	return func(s *state) (Verdict, error) {
		if c := s.packet.Connection; c != nil {
			c.Mark = c.Mark&^mask ^ value
		}
		return 0, nil
	}, err
}

// mapSet gives the packet the mark of its entry; without one, the packet keeps its own.
func mapSet(p ruleset.Part) (act, error) {
	o, ok := p.Option("--map-set")
	_, marks := p.Option("--map-mark")
	if !ok || !marks || len(p.Options) != 2 {
		return nil, fmt.Errorf("SET with options other than --map-set and --map-mark is not known here")
	}
	places, err := readPlaces(o.Values[1])
	return func(s *state) (Verdict, error) {
		e, found, err := s.lookup(o.Values[0], places)
		if found && err == nil {
			s.packet.Mark = s.packet.Mark&^e.Mask ^ e.Mark
		}
		return 0, err
	}, err
}
