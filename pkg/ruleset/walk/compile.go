package walk

import (
	"fmt"

	"github.com/margay-project/margay/pkg/ruleset"
)

// match reports whether a packet has a property.
type match func(s *state) (bool, error)

// act does what a target does. The verdict 0 lets the packet go on with the next rule.
type act func(s *state) (Verdict, error)

// rule is a rule as functions. It goes to another chain, or acts.
type rule struct {
	conditions []condition
	act        act
	to         *chain
	isGoto     bool
	left       string // the rule without the matches that are constant
	tests      []Test
	uses       uses
}

// condition is one match of a rule.
type condition struct {
	holds match
	// varies: it asks for more than interfaces, marks and connection of a packet.
	varies bool
	// mark: it holds for packets whose bits under the mask are the value, and for no others.
	mark, value uint32
}

// matches holds when all conditions do. They are tried in order, and the first that does not hold ends it, as in the kernel.
func (r *rule) matches(s *state) (bool, error) {
	for i := range r.conditions {
		if ok, err := r.conditions[i].holds(s); !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

// compiler makes rules; equal parts of rules share one function.
type compiler struct {
	table *Table
	parts map[string]match
}

func (c *compiler) rule(text string) rule {
	parsed, err := ruleset.ParseRule(text)
	if err != nil {
		return unknown(err)
	}
	r := rule{left: leftOf(parsed), tests: testsOf(parsed), uses: usesOf(parsed)}
	for _, o := range parsed.Basic.Options {
		m, err := c.shared("", o, basicMatch)
		if err != nil {
			return unknown(err)
		}
		r.conditions = append(r.conditions, condition{holds: m, varies: optionVaries(o)})
	}
	for _, part := range parsed.Matches {
		conditions, err := c.part(parsed, part)
		if err != nil {
			return unknown(err)
		}
		for i, m := range conditions {
			made := condition{holds: m, varies: partVaries(part)}
			if part.Name == "mark" && !part.Options[i].Negated {
				made.value, made.mark, _ = valueAndMask(part.Options[i].Values[0])
			}
			r.conditions = append(r.conditions, made)
		}
	}
	if err := c.target(&r, parsed); err != nil {
		return unknown(err)
	}
	return r
}

// unknown is a rule that is an error for each packet that comes to it: whether it matches is not known either.
func unknown(err error) rule {
	return rule{conditions: []condition{{holds: func(*state) (bool, error) { return false, err }}}, uses: uses{unknown: true}}
}

func (c *compiler) shared(name string, o ruleset.Option, make func(ruleset.Option) (match, error)) (match, error) {
	key := fmt.Sprint(name, o)
	if m := c.parts[key]; m != nil {
		return m, nil
	}
	m, err := make(o)
	if err == nil {
		c.parts[key] = m
	}
	return m, err
}

// part compiles one -m.
func (c *compiler) part(r ruleset.Rule, part ruleset.Part) ([]match, error) {
	if part.Name == "conntrack" {
		m, err := conntrack(part)
		return []match{m}, err
	}
	make := optionMatches[part.Name]
	if make == nil {
		return nil, fmt.Errorf("the match %s is not known here", part.Name)
	}
	if err := checkProtocol(r, part.Name); err != nil {
		return nil, err
	}
	var conditions []match
	for _, o := range part.Options {
		m, err := c.shared(part.Name, o, make)
		if err != nil {
			return nil, err
		}
		conditions = append(conditions, m)
	}
	return conditions, nil
}

// optionMatches are the matches whose options are conditions of their own.
var optionMatches = map[string]func(ruleset.Option) (match, error){
	"tcp": transport, "udp": transport, "sctp": transport, "multiport": transport,
	"icmp": icmp, "icmp6": icmp,
	"mark": mark, "connmark": connmark,
	"set": set, "comment": comment, "limit": limit, "rt": routing, "bpf": bytecode, "addrtype": addrtype, "pkttype": pkttype,
}

// target compiles what the rule does.
func (c *compiler) target(r *rule, parsed ruleset.Rule) error {
	name := parsed.Target.Name
	if to := c.table.chains[name]; to != nil && to.policy == 0 {
		r.to, r.isGoto = to, parsed.Goto
		return nil
	}
	if parsed.Goto {
		return fmt.Errorf("-g %s: there is no such chain", name)
	}
	make := targets[name]
	if make == nil {
		return fmt.Errorf("the target %s is not known here", name)
	}
	var err error
	r.act, err = make(parsed.Target)
	return err
}
