package walk

import (
	"strconv"
	"strings"

	"github.com/margay-project/margay/pkg/ruleset"
)

// Field is a part of the transport header that a Test is about.
type Field uint8

// The fields. Types are ICMP's, with the code: type<<8 | code.
const (
	Protocols Field = iota
	SrcPorts
	DstPorts
	Types
)

// Test is an interval of a field, of packets of one protocol, that a rule distinguishes from what is outside of it.
type Test struct {
	Field     Field
	Protocol  uint8 // of Protocols: 0
	Low, High uint16
}

// testsOf are the tests of a rule.
func testsOf(r ruleset.Rule) (tests []Test) {
	o, ok := r.Basic.Option("-p")
	if !ok {
		return nil
	}
	n, err := strconv.ParseUint(o.Values[0], 10, 8)
	if err != nil {
		return nil
	}
	protocol := uint8(n)
	tests = append(tests, Test{Field: Protocols, Low: uint16(n), High: uint16(n)})
	for _, part := range r.Matches {
		for _, o := range part.Options {
			tests = append(tests, optionTests(protocol, o)...)
		}
	}
	return tests
}

func optionTests(protocol uint8, o ruleset.Option) (tests []Test) {
	fields := map[string][]Field{"--sport": {SrcPorts}, "--sports": {SrcPorts}, "--dport": {DstPorts}, "--dports": {DstPorts},
		"--ports": {SrcPorts, DstPorts}, "--icmp-type": {Types}, "--icmpv6-type": {Types}}[o.Name]
	for _, field := range fields {
		for _, text := range strings.Split(o.Values[0], ",") {
			if t := (Test{Field: field, Protocol: protocol}); field == Types && t.readType(text) || field != Types && t.readPorts(text) {
				tests = append(tests, t)
			}
		}
	}
	return tests
}

func (t *Test) readPorts(text string) bool {
	s, err := readSpan(text)
	t.Low, t.High = uint16(s.low), uint16(s.high)
	return err == nil
}

func (t *Test) readType(text string) bool {
	kind, code, withCode := strings.Cut(text, "/")
	k, err := strconv.ParseUint(kind, 10, 8)
	t.Low, t.High = uint16(k)<<8, uint16(k)<<8|0xff
	if err == nil && withCode {
		var c uint64
		c, err = strconv.ParseUint(code, 10, 8)
		t.Low |= uint16(c)
		t.High = t.Low
	}
	return err == nil
}

// Tests returns what the rules of a chain, and of those that they go to, ask of packets that come there with these bits in their
// mark: rules for other marks are left out. No rule may change the bits. Each test is there once, in no order.
func (t *Table) Tests(chainName string, value, bits uint32) []Test {
	found, seen := map[Test]bool{}, map[*chain]bool{}
	var visit func(c *chain)
	visit = func(c *chain) {
		if c == nil || seen[c] {
			return
		}
		seen[c] = true
		for i := range c.rules {
			r := &c.rules[i]
			if !r.mayMatch(value, bits) {
				continue
			}
			for _, test := range r.tests {
				found[test] = true
			}
			visit(r.to)
			if r.isGoto && r.surelyMatches(value, bits) {
				break
			}
		}
	}
	visit(t.chains[chainName])
	list := make([]Test, 0, len(found))
	for test := range found {
		list = append(list, test)
	}
	return list
}

// surelyMatches reports whether nothing but such bits decides whether the rule matches, and it does.
func (r *rule) surelyMatches(value, bits uint32) bool {
	for _, c := range r.conditions {
		if c.mark == 0 || c.mark&^bits != 0 || value&c.mark != c.value {
			return false
		}
	}
	return true
}

// mayMatch reports whether the rule's matches of the mark leave it possible that bits have a value.
func (r *rule) mayMatch(value, bits uint32) bool {
	for _, c := range r.conditions {
		if both := c.mark & bits; value&both != c.value&both {
			return false
		}
	}
	return true
}
