package ruleset

import (
	"fmt"
	"strconv"
	"strings"
)

// Counter has the numbers of packets and bytes that a rule has matched, or that a chain's policy has decided.
type Counter struct{ Packets, Bytes uint64 }

// SavedRule is a rule as iptables-save prints it, without "-A NAME".
type SavedRule struct {
	Text    string
	Counter Counter
}

// SavedChain is a chain as iptables-save prints it. Policy is empty for user-defined chains.
type SavedChain struct {
	Name    string
	Policy  string
	Counter Counter
	Rules   []SavedRule
}

// BuiltIn reports whether the chain is one of the kernel's, which every table has.
func (c *SavedChain) BuiltIn() bool { return c.Policy != "" }

// Chain returns the chain without its counters.
func (c *SavedChain) Chain() Chain {
	chain := Chain{Name: c.Name, Rules: make([]string, len(c.Rules))}
	for i := range c.Rules {
		chain.Rules[i] = c.Rules[i].Text
	}
	return chain
}

// Saved is one table as iptables-save prints it, with its chains in the order of the output.
type Saved struct {
	Name   string
	Chains []SavedChain
	places map[string]int
}

// Chain returns the chain of that name, nil if the table has none.
func (t *Saved) Chain(name string) *SavedChain {
	if i, ok := t.places[name]; ok {
		return &t.Chains[i]
	}
	return nil
}

// Parse reads what iptables-save prints, with or without counters (-c). The texts in the result share the memory of output.
func Parse(output string) ([]Saved, error) {
	var tables []Saved
	var open *Saved
	for number := 1; output != ""; number++ {
		line, rest, _ := strings.Cut(output, "\n")
		output = rest
		line = strings.TrimRight(line, " \r")
		if line == "" || line[0] == '#' {
			continue
		}
		var err error
		switch {
		case line[0] == '*':
			tables = append(tables, Saved{Name: line[1:], places: map[string]int{}})
			open = &tables[len(tables)-1]
		case open == nil:
			err = fmt.Errorf("%q stands outside of tables", line)
		case line == "COMMIT":
			open = nil
		default:
			err = open.read(line)
		}
		if err != nil {
			return nil, fmt.Errorf("read a saved ruleset, line %d: %w", number, err)
		}
	}
	if open != nil {
		return nil, fmt.Errorf("read a saved ruleset: table %s has no COMMIT", open.Name)
	}
	return tables, nil
}

// read adds one line inside a table: a chain, or a rule.
func (t *Saved) read(line string) error {
	if line[0] == ':' {
		return t.readChain(line[1:])
	}
	var rule SavedRule
	if line[0] == '[' {
		counter, rest, err := readCounter(line)
		if err != nil {
			return err
		}
		rule.Counter, line = counter, rest
	}
	rest, ok := strings.CutPrefix(line, "-A ")
	if !ok {
		return fmt.Errorf("%q is not a rule", line)
	}
	name, text, _ := strings.Cut(rest, " ")
	chain := t.Chain(name)
	if chain == nil {
		return fmt.Errorf("a rule of chain %s, which was not declared", name)
	}
	rule.Text = strings.TrimRight(text, " ")
	chain.Rules = append(chain.Rules, rule)
	return nil
}

// readChain reads "NAME POLICY [packets:bytes]", with - in place of the policy of user-defined chains.
func (t *Saved) readChain(line string) error {
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return fmt.Errorf("%q is not a chain", line)
	}
	if t.Chain(fields[0]) != nil {
		return fmt.Errorf("chain %s is declared twice", fields[0])
	}
	chain := SavedChain{Name: fields[0]}
	if fields[1] != "-" {
		chain.Policy = fields[1]
	}
	if len(fields) > 2 {
		counter, _, err := readCounter(fields[2])
		if err != nil {
			return err
		}
		chain.Counter = counter
	}
	t.places[chain.Name] = len(t.Chains)
	t.Chains = append(t.Chains, chain)
	return nil
}

// readCounter reads "[packets:bytes]" and returns what follows it.
func readCounter(text string) (c Counter, rest string, err error) {
	inner, rest, ok := strings.Cut(strings.TrimPrefix(text, "["), "]")
	packets, bytes, colon := strings.Cut(inner, ":")
	if !ok || !colon {
		return c, "", fmt.Errorf("%q does not begin with [packets:bytes]", text)
	}
	if c.Packets, err = strconv.ParseUint(packets, 10, 64); err == nil {
		c.Bytes, err = strconv.ParseUint(bytes, 10, 64)
	}
	if err != nil {
		return c, "", fmt.Errorf("%q does not begin with [packets:bytes]: %w", text, err)
	}
	return c, strings.TrimLeft(rest, " "), nil
}
