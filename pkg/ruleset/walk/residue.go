package walk

import (
	"fmt"
	"strings"

	"github.com/margay-project/margay/pkg/ruleset"
)

// uses are what rules need and change besides the headers of a packet.
type uses struct {
	reads   uint32 // bits of marks
	writes  bool   // marks
	sets    bool   // marks of entries of sets
	unknown bool
	done    bool // of a chain: computed
}

func usesOf(r ruleset.Rule) (u uses) {
	for _, part := range r.Matches {
		if part.Name != "mark" {
			continue
		}
		for _, o := range part.Options {
			_, mask, err := valueAndMask(o.Values[0])
			u.reads, u.unknown = u.reads|mask, u.unknown || err != nil
		}
	}
	switch r.Target.Name {
	case "SET":
		u.sets, u.writes = true, true
	case "MARK", "CONNMARK":
		u.writes = true
	}
	return u
}

// constant are the matches that ask for no more than marks and connection of a packet.
var constant = map[string]bool{"mark": true, "connmark": true, "conntrack": true, "comment": true}

func optionVaries(o ruleset.Option) bool { return o.Name != "-i" && o.Name != "-o" }

func partVaries(part ruleset.Part) bool {
	_, byProtocol := part.Option("--ctproto")
	return !constant[part.Name] || byProtocol
}

// leftOf is the text of a rule without the matches that do not vary.
func leftOf(r ruleset.Rule) string {
	left := ruleset.Rule{Target: r.Target, Goto: r.Goto}
	for _, o := range r.Basic.Options {
		if optionVaries(o) {
			left.Basic.Options = append(left.Basic.Options, o)
		}
	}
	for _, part := range r.Matches {
		if partVaries(part) {
			left.Matches = append(left.Matches, part)
		}
	}
	return left.String()
}

func (u *uses) add(o uses) {
	u.reads |= o.reads
	u.writes, u.sets, u.unknown = u.writes || o.writes, u.sets || o.sets, u.unknown || o.unknown
}

// sum computes what a chain uses. Of chains in a circle, which no kernel has, a part may be missing.
func (c *chain) sum() uses {
	if c.uses.done {
		return c.uses
	}
	c.uses.done = true
	for i := range c.rules {
		u := c.rules[i].uses
		if c.rules[i].to != nil {
			u.add(c.rules[i].to.sum())
		}
		c.uses.add(u)
	}
	return c.uses
}

// Residue returns what is left of the rules from one chain on, for packets of which interfaces, mark and connection are known, and the
// entries that sets have for their addresses: in p, and in what sets answer for it. Two packets that are equal but for those
// entries, and have equal residues, meet the same verdict. A rule that compares addresses is part of the residue, and not what comes of
// it. bits are those of the mark that matter at the end of the walk. Not ok: it cannot be said.
func Residue(stage Stage, p Packet, sets Sets, bits uint32) (residue string, ok bool) {
	r := &remaining{state: state{packet: p, sets: sets, steps: mostSteps}, bits: bits}
	if p.Connection != nil {
		connection := *p.Connection
		r.packet.Connection = &connection
	}
	c := stage.Table.chains[stage.Chain]
	if c == nil {
		return "", false
	}
	ended, ok := r.chain(c, 0)
	if !ok {
		return "", false
	}
	if !ended {
		fmt.Fprintf(&r.text, "%#x", r.packet.Mark&bits)
	}
	return r.text.String(), true
}

// remaining is a packet on its way of which only a part is known.
type remaining struct {
	state
	bits uint32
	text strings.Builder
}

// chain goes through a chain. ended: all packets leave there.
func (r *remaining) chain(c *chain, depth int) (ended, ok bool) {
	if depth > mostDepth || c.uses.unknown {
		return false, false
	}
	for i := range c.rules {
		rule := &c.rules[i]
		if r.steps--; r.steps < 0 {
			return false, false
		}
		possible, certain, err := r.partly(rule)
		switch {
		case err != nil:
			return false, false
		case !possible:
		case certain:
			if ended, ok = r.certain(rule, depth); ended || !ok {
				return ended, ok
			}
		case !r.perhaps(rule, depth):
			return false, false
		}
	}
	return false, true
}

// partly reports whether the rule may match, as far as the packet is known, and whether it does in any case.
func (r *remaining) partly(rule *rule) (possible, certain bool, err error) {
	certain = true
	for i := range rule.conditions {
		c := &rule.conditions[i]
		if c.varies {
			certain = false
			continue
		}
		if holds, err := c.holds(&r.state); !holds || err != nil {
			return false, false, err
		}
	}
	return true, certain, nil
}

// certain follows a rule that matches.
func (r *remaining) certain(rule *rule, depth int) (ended, ok bool) {
	if rule.to != nil {
		if u := rule.to.uses; rule.isGoto && depth == 0 && !u.sets {
			r.note(rule)
			return true, !u.unknown
		}
		ended, ok = r.chain(rule.to, depth+1)
		return ended || rule.isGoto, ok
	}
	verdict, err := rule.act(&r.state)
	if verdict == 0 || err != nil {
		return false, err == nil
	}
	if verdict == Returned && depth > 0 {
		return false, false // how it goes on depends on the jump: left out, since no chain of ours does so
	}
	r.note(rule)
	return true, true
}

// perhaps notes a rule that some of the packets match. Those must not come back with another mark.
func (r *remaining) perhaps(rule *rule, depth int) bool {
	r.note(rule)
	leaves := rule.to != nil && rule.isGoto && depth == 0
	u := rule.uses
	if rule.to != nil {
		u = rule.to.uses
	}
	return !u.unknown && !u.sets && (leaves || !u.writes)
}

// note adds a rule to the residue, with what will be seen of the mark behind it.
func (r *remaining) note(rule *rule) {
	seen := r.bits
	if rule.to != nil {
		seen |= rule.to.uses.reads
	}
	fmt.Fprintf(&r.text, "%s %#x\n", rule.left, r.packet.Mark&seen)
}
