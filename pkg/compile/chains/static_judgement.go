package chains

import "slices"

// judgement are rules by which the policies of both ends of a packet judge it.
type judgement struct {
	t         *terms
	addresses *addresses
	// grace: a packet that its sender's policy denies may be an answer, see MidFlowAnswer.
	grace bool
}

// by returns the rules by which the policy of one end judges: at is the match of its interface, end is "src" or "dst". Packets that
// fall off the tree of slots are dropped. The number in the mark must be 0 before.
func (j *judgement) by(d Direction, at, end string) []string {
	t, set := j.t, j.t.sets.Egress
	if d == IngressSlots {
		set = t.sets.Ingress
	}
	return []string{
		at + " -j SET --map-set " + set + " " + end + "," + end + " --map-mark",
		j.addresses.slot(at, end, d),
		at + " -j " + t.name(string(d)),
		at + " " + t.marked(0, t.marks.allow()) + " -j DROP",
	}
}

// again clears number and verdict before the other end judges: an endpoint without a slot must not inherit those of the first end.
func (j *judgement) again(at string) string {
	return at + " " + j.t.mark(0, j.t.marks.number()|j.t.marks.allow())
}

// chains makes F, for packets that go the way their flow was opened, and R, for those against it.
func (j *judgement) chains() []Chain { return []Chain{j.openerFirst(), j.answererFirst()} }

// openerFirst judges by the sender's egress, then by the receiver's ingress.
func (j *judgement) openerFirst() Chain {
	t := j.t
	mid := when(j.grace, t.marked(t.marks.midflow(), t.marks.midflow())+" -j RETURN")
	return t.chain("F", slices.Concat([]string{t.clear()}, j.by(EgressSlots, t.in, "src"), []string{mid, j.again(t.out)},
		j.by(IngressSlots, t.out, "dst"), []string{mid, "-g " + t.name("allow")})...)
}

// answererFirst judges by the same two policies.
func (j *judgement) answererFirst() Chain {
	t := j.t
	return t.chain("R", slices.Concat([]string{t.mark(t.marks.against(), t.marks.mask)}, j.by(EgressSlots, t.out, "dst"),
		[]string{j.again(t.in)}, j.by(IngressSlots, t.in, "src"), []string{"-g " + t.name("allow")})...)
}
