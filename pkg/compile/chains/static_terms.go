package chains

import "fmt"

// terms are what all parts of the static chains write rules with: names, marks and matches of one world and family.
type terms struct {
	names   Names
	sets    Sets
	marks   Marks
	family  uint8
	in, out string // match packets from and to workload interfaces
}

// chain makes a chain. Empty rules are left out.
func (t *terms) chain(name string, rules ...string) Chain {
	c := Chain{Name: t.name(name)}
	for _, r := range rules {
		if r != "" {
			c.Rules = append(c.Rules, r)
		}
	}
	c.Decides = make([]Decision, len(c.Rules))
	return c
}

// name returns the full name of a chain.
func (t *terms) name(name string) string { return t.names.Chain(name) }

// only returns the rule if the chains are of the family, and otherwise no rule.
func (t *terms) only(family uint8, rule string) string { return when(t.family == family, rule) }

// icmp matches ICMP of the family.
func (t *terms) icmp() string {
	if t.family == 4 {
		return "-p icmp"
	}
	return "-p ipv6-icmp"
}

// mark sets the bits of the mask in a packet's mark.
func (t *terms) mark(value, mask uint32) string { return "-j MARK --set-xmark " + equals(value, mask) }

// clear clears our bits in a packet's mark.
func (t *terms) clear() string { return t.mark(0, t.marks.mask) }

// marked matches packets by bits of their mark.
func (t *terms) marked(value, mask uint32) string { return "-m mark --mark " + equals(value, mask) }

// equals returns the operand of a match or of a change of marks.
func equals(value, mask uint32) string { return fmt.Sprintf("%#x/%#x", value, mask) }

// when returns the rule if so holds, and otherwise the empty string, which stands for no rule.
func when(so bool, rule string) string {
	if so {
		return rule
	}
	return ""
}
