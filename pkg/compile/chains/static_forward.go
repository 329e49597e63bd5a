package chains

import "slices"

// forward makes the chain that packets between pods and others enter.
func (b *static) forward() {
	turned := equals(b.c.Marks.turned(), b.c.Marks.turned())
	mid := "-m mark --mark " + equals(b.midflow, b.midflow)
	grace := b.c.MidFlow == MidFlowAnswer
	others := "! " + b.in + " ! " + b.out + " -j RETURN"
	rules := []string{
		b.only(6, others),
		b.routed(),
		// PREROUTING has dropped packets from foreign addresses, except neighbour discovery. Another check would cost each packet of a
		// flow a lookup. Without the jump in PREROUTING, F finds no slot for such an address.
		b.only(6, b.spoofed("-p ipv6-icmp")),
		b.stale(),
		when(!b.c.AllowEncap, b.in+" ! -p tcp -j "+b.name("encap")),
		ifSources(b, b.in+isStray(b)+" -g "+b.name("lone")),
		b.fast(),
		// Most packets of pods match fast, so this rule comes after it. Of the rules before, packets of others match fast only, which returns, too.
		b.only(4, others),
	}
	rules = slices.Concat(rules, b.errors(), b.dubious(), []string{
		b.icmp() + " -m conntrack --ctstate RELATED -g " + b.name("F"), // whatever the direction of the flow that it is about
		b.revoked(),
		ifSources(b, isLone(b)+" -g "+b.name("F")), // whichever end sends the first packet that is not alone is the opener
		// The opener of the flow is that of conntrack, unless the first packet on record was an answer.
		"-m connmark --mark " + turned + " -m conntrack --ctdir ORIGINAL -g " + b.name("R"),
		"-m connmark ! --mark " + turned + " -m conntrack --ctdir REPLY -g " + b.name("R"),
		"-j " + b.name("F"),
		when(grace, mid+" -j CONNMARK --set-xmark "+turned),
		when(grace, mid+" -g "+b.name("R")),
	})
	b.chain("FORWARD", rules...)
}

// judged returns the rules by which the policy of one end judges: at is the match of its interface, set has the slots, ends is the end
// ("src" or "dst"), tree is the chain that leads to the slot. Packets that fall off the tree are dropped. The number in the mark must
// be 0 before.
func (b *static) judged(at, set, ends, tree string) []string {
	return []string{
		at + " -j SET --map-set " + set + " " + ends + "," + ends + " --map-mark",
		ifSources(b, at+" -m mark --mark "+equals(0, b.number)+" -j "+b.name(ends+"-"+tree)),
		at + " -j " + b.name(tree),
		at + " -m mark --mark " + equals(0, b.allow) + " -j DROP",
	}
}

// again clears number and verdict before the other end judges: an endpoint without a slot must not inherit those of the first end.
func (b *static) again(at string) string {
	return at + " -j MARK --set-xmark " + equals(0, b.number|b.allow)
}

// openerFirst judges packets that go the way their flow was opened: the sender's egress, then the receiver's ingress.
func (b *static) openerFirst() {
	mid := when(b.c.MidFlow == MidFlowAnswer, "-m mark --mark "+equals(b.midflow, b.midflow)+" -j RETURN")
	rules := []string{"-j MARK --set-xmark " + equals(0, b.mask)}
	rules = append(rules, b.judged(b.in, b.sets.Egress, "src", "eg")...)
	rules = append(rules, mid, b.again(b.out))
	rules = append(rules, b.judged(b.out, b.sets.Ingress, "dst", "in")...)
	b.chain("F", append(rules, mid, "-g "+b.name("allow"))...)
}

// answererFirst judges packets against their flow by the same two policies.
func (b *static) answererFirst() {
	rules := []string{"-j MARK --set-xmark " + equals(b.against, b.mask)}
	rules = append(rules, b.judged(b.out, b.sets.Egress, "dst", "eg")...)
	rules = append(rules, b.again(b.in))
	rules = append(rules, b.judged(b.in, b.sets.Ingress, "src", "in")...)
	b.chain("R", append(rules, "-g "+b.name("allow"))...)
}
