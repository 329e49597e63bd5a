// Package ruleset handles chains of rules of iptables as values: their text, the output of iptables-save, and whether two texts mean
// the same rule. It is pure: it runs no command and does not access the kernel.
//
//   - ruleset.go: Chain, and the checks of its name and rules; words.go: the words of a rule
//   - save.go: the output of iptables-save as tables, chains and counters
//   - rule.go, options.go, values.go (numbers), names.go (words): a rule as matches and a target with normalised values; its canonical text
//   - graph.go: the graph that jumps make: unknown chains, loops, depth
//   - seal.go: a digest of chains that is kept beside them
//
// A rule is the text that follows "-A CHAIN" in a ruleset: "-p tcp -m tcp --dport 80 -g ok". The same rule has many texts: iptables
// prints a rule in another form than it has read it, and its versions and backends differ. So rules are compared by their canonical
// text.
package ruleset

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// maxName is the most bytes that the name of a chain may have; iptables refuses longer ones.
const maxName = 28

// Chain is a user-defined chain: its name, and its rules in order, each without "-A NAME". A rule should have each match once:
// iptables-nft-save prints two of tcp as one, and then the rule seems to be another one.
type Chain struct {
	Name  string
	Rules []string
}

// Digest identifies the canonical text of rules. A collision does not happen by accident.
type Digest [16]byte

// Digest returns the digest of the chain's name and of the canonical texts of its rules in their order.
func (c Chain) Digest() Digest {
	h := sha256.New()
	h.Write([]byte(c.Name))
	for _, rule := range c.Rules {
		h.Write([]byte{'\n'})
		h.Write([]byte(Canonical(rule)))
	}
	var d Digest
	copy(d[:], h.Sum(nil))
	return d
}

// Check returns an error if the chain cannot stand in a ruleset: a name that iptables would refuse or mistake, or a rule that
// is not one line of words. It does not know matches and targets.
func (c Chain) Check() error {
	if err := CheckName(c.Name); err != nil {
		return err
	}
	for i, rule := range c.Rules {
		if err := CheckRule(rule); err != nil {
			return fmt.Errorf("chain %s, rule %d: %w", c.Name, i+1, err)
		}
	}
	return nil
}

// CheckName returns an error if name cannot be the name of a user-defined chain.
func CheckName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("chain name %q has %d bytes; it may have 1 to %d", name, len(name), maxName)
	}
	for i := range len(name) {
		c := name[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || i > 0 && (c == '-' || c == '_' || c == '.')) {
			return fmt.Errorf("chain name %q has the character %q; letters, digits, and after the first one -, _ and . are possible", name, c)
		}
	}
	return nil
}

// CheckRule returns an error if text cannot be a rule on a line of its own. So a text with a line feed cannot become two lines of a
// transaction.
func CheckRule(text string) error {
	for i := range len(text) {
		if text[i] < ' ' || text[i] == 0x7f {
			return fmt.Errorf("rule %q has a control character", text)
		}
	}
	words, err := Words(text)
	if err != nil {
		return fmt.Errorf("rule %q: %w", text, err)
	}
	if len(words) > 0 && words[0] != "!" && !strings.HasPrefix(words[0], "-") {
		return fmt.Errorf("rule %q does not begin with an option", text)
	}
	return nil
}

// Target returns the chain or target that the rule names after -j or -g, and whether it is -g. It is empty for a rule without
// a target.
func Target(rule string) (name string, isGoto bool) {
	words, err := Words(rule)
	if err != nil {
		return "", false
	}
	for i := 0; i+1 < len(words); i++ {
		switch words[i] {
		case "-j", "--jump":
			return words[i+1], false
		case "-g", "--goto":
			return words[i+1], true
		}
	}
	return "", false
}
