package ruleset

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
)

// A world is all chains whose names have the same first part, up to the first dash: mgyA-FORWARD and mgyA-i17 are of the world
// mgyA. Its seal is a comment in a chain of its own, which no packet enters: a digest of all other chains of the world and of the
// rules of built-in chains that go to it. A reader without the desired chains can prove by the seal that no rule was changed, added,
// removed or moved since they were written. The seal protects against accidents, not against an attacker, who can write a seal, too.

// anyAgent is the prefix of the names of all chains of agents, of this one and of others on the same machine. Rules that go to
// chains of several agents stand before all other rules, in any order: a packet passes only if every agent allows it.
const anyAgent = "mgy"

// SealChain is the last part of the name of a seal's chain.
const SealChain = "seal"

// World returns the world that a chain belongs to.
func World(chain string) string {
	world, _, _ := strings.Cut(chain, "-")
	return world
}

// Sum is the digest of a set of chains; it does not depend on their order. The zero value is that of the empty set.
type Sum struct {
	high, low uint64
	chains    int
}

// Add adds a chain that is not in the set.
func (s *Sum) Add(d Digest) {
	s.high += binary.BigEndian.Uint64(d[:8])
	s.low += binary.BigEndian.Uint64(d[8:])
	s.chains++
}

// Remove removes a chain that is in the set.
func (s *Sum) Remove(d Digest) {
	s.high -= binary.BigEndian.Uint64(d[:8])
	s.low -= binary.BigEndian.Uint64(d[8:])
	s.chains--
}

// Seal returns the chain that seals a world whose chains have this sum.
func (s *Sum) Seal(world string) Chain {
	text := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, s.high), s.low)
	comment := fmt.Sprintf("mgy:1:%d:%s", s.chains, hex.EncodeToString(text))
	return Chain{world + "-" + SealChain, []string{"-m comment --comment " + Quote(comment)}}
}

// Entrance returns the digest of the rules of a built-in chain that go to one world, for the Sum of that world.
func Entrance(builtIn string, rules []string) Digest { return Chain{builtIn, rules}.Digest() }

// SealError reports that a world has no seal, or has changed since it was sealed.
type SealError struct{ World, Problem string }

func (e *SealError) Error() string { return fmt.Sprintf("chains of %s: %s", e.World, e.Problem) }

// VerifySeal compares a world of the table with its seal. The error is a *SealError.
func (t *Saved) VerifySeal(world string) error {
	sealed := t.Chain(world + "-" + SealChain)
	if sealed == nil {
		return &SealError{world, "they have no seal"}
	}
	var sum Sum
	for i := range t.Chains {
		chain := &t.Chains[i]
		switch {
		case chain == sealed:
		case chain.BuiltIn():
			rules, first := t.entrance(chain, world)
			if len(rules) == 0 {
				continue
			}
			if !first {
				return &SealError{world, fmt.Sprintf("the rules of %s that go to them are not its first ones", chain.Name)}
			}
			sum.Add(Entrance(chain.Name, rules))
		case World(chain.Name) == world:
			sum.Add(chain.Chain().Digest())
		}
	}
	want := sum.Seal(world)
	if have := sealed.Chain(); have.Digest() != want.Digest() {
		return &SealError{world, fmt.Sprintf("they were altered after they were sealed: %q, want %q", have.Rules, want.Rules)}
	}
	return nil
}

// entrance are the rules of a built-in chain that go to the world, and whether they are its first ones.
func (t *Saved) entrance(chain *SavedChain, world string) (rules []string, first bool) {
	return chain.Entrance(func(target string) bool { return strings.HasPrefix(target, world+"-") })
}

// Entrance returns the rules of a built-in chain that go to chains for which own holds. first: the only other rules before and
// between them go to chains of other agents.
func (c *SavedChain) Entrance(own func(chain string) bool) (rules []string, first bool) {
	first = true
	others := false
	for _, rule := range c.Rules {
		target, _ := Target(rule.Text)
		switch {
		case own(target):
			first = first && !others
			rules = append(rules, rule.Text)
		case !strings.HasPrefix(target, anyAgent):
			others = true
		}
	}
	return rules, first
}
