package chains

import (
	"fmt"
	"slices"
)

// verdicts are the chains that slots lead to, and those that follow the judgement of both ends.
type verdicts struct {
	t         *terms
	flows     *flows
	addresses *addresses
	strays    *strays
	copies    copies
	grace     bool // see judgement
	resets    Resets
}

// chains makes those of table mangle.
func (v *verdicts) chains() []Chain {
	t, m := v.t, v.t.marks
	return []Chain{
		t.chain("ok", t.mark(m.allow(), m.allow())),
		v.allow(),
		v.deny(),
		t.chain("revoked", v.end()...),
		t.chain("leaving",
			v.ended()+" -j DROP", // table filter has not reset it
			// Packets of the node to a Service get to a pod's interface after OUTPUT. Those of other nodes and pods have passed FORWARD.
			t.out+" -m conntrack --ctstate DNAT -m set ! --match-set "+t.sets.Own+" dst,dst -j "+t.name("translated"),
			v.strays.allowed(t.clear())),
		t.chain("translated", append(v.addresses.reachable(), "-j DROP")...),
	}
}

// allow makes the chain for packets that both ends allow.
func (v *verdicts) allow() Chain {
	return v.t.chain("allow",
		v.copies.of(EventAllowed, v.flows.unjudged()),
		v.copies.of(EventAllowedAgain, v.flows.judged()),
		v.t.clear(),
		v.t.icmp()+" -m conntrack --ctstate RELATED -j RETURN", // its flow is that of the packet it quotes
		v.strays.lone("-m conntrack --ctdir REPLY "+setConnmark(v.flows.turn())),
		setConnmark(v.flows.allowed))
}

// deny makes the chain for packets that a slot denies.
func (v *verdicts) deny() Chain {
	t, m := v.t, v.t.marks
	pods := t.in + " " + t.out
	own := " -m set --match-set " + t.sets.Own
	rules := append(v.strays.denied(),
		// A pod to itself (D-16).
		pods+own+" src,src"+own+" src,dst "+t.mark(m.allow(), m.allow()),
		pods+" "+t.marked(m.allow(), m.allow())+" -j RETURN")
	if v.grace { // the packet may be an answer: it counts as allowed until it is judged as one
		rules = append(rules,
			"-p tcp -m tcp ! --syn -m conntrack --ctstate NEW "+connmark("", Value{0, m.generation() | m.turned()})+" "+
				t.mark(m.allow()|m.midflow(), m.allow()|m.midflow()),
			t.marked(m.midflow(), m.midflow())+" -j RETURN")
	}
	return t.chain("deny", slices.Concat(rules, []string{
		v.copies.of(EventDenied, v.flows.unjudged()),
		t.icmp() + " -m conntrack --ctstate RELATED -j DROP", // and its flow goes on
		v.flows.unjudged() + " -j DROP",
		// These have no connection: no mark says that they were allowed before, and none would have table filter drop them.
		v.copies.of(EventDenied, withoutConnection),
		withoutConnection + " -j DROP",
	}, v.strays.deniedLone(), []string{
		v.copies.of(EventRevoked, ""),
		setConnmark(m.denies(v.flows.allowed)),
	}, v.end())...)
}

// ResetsMasqueraded is the prefix of copies for resets, if the node replaces both the source and the destination of the connection: then the
// packet has an end that its receiver does not know. The copy without the prefix follows.
const ResetsMasqueraded = "masqueraded"

// end returns the rules that end flows which were allowed before: TCP is reset, by table filter towards the sender unless beside, and by
// the listener of the NFLOG group towards the other end.
func (v *verdicts) end() []string {
	copied := fmt.Sprintf("--nflog-group %d --nflog-size %d", v.resets.Group, copiedBytes)
	return []string{
		when(v.resets.Group != 0, "-p tcp -m conntrack --ctstate SNAT -m conntrack --ctstate DNAT -j NFLOG --nflog-prefix "+ResetsMasqueraded+" "+copied),
		when(v.resets.Group != 0, "-p tcp -j NFLOG "+copied),
		when(!v.resets.Beside, "-p tcp "+v.t.mark(v.t.marks.midflow(), v.t.marks.mask)),
		when(!v.resets.Beside, "-p tcp -j ACCEPT"),
		"-j DROP",
	}
}

// ended matches packets of flows that have ended, see end.
func (v *verdicts) ended() string { return v.t.marked(v.t.marks.midflow(), v.t.marks.mask) }

// filter makes the chain of table filter, for packets of flows that policy has not allowed. It resets those of flows that policy has
// come to deny. Packets are judged in mangle, and each flow allowed there has a mark. A flow without one was not judged: somebody has
// flushed FORWARD of mangle, put a rule before ours, or made a chain accept. The packets that mangle lets pass without a mark are left
// out: ICMP errors, which belong to no flow of their own, and answers to the node.
func (v *verdicts) filter() Chain {
	const flow = " -m conntrack --ctstate NEW,ESTABLISHED"
	return v.t.chain("unjudged",
		v.strays.allowed("-j RETURN"),
		"-p tcp "+v.ended()+" -j REJECT --reject-with tcp-reset",
		v.t.out+flow+" -j DROP",
		v.t.in+" "+v.flows.answered(),
		v.t.in+flow+" -j DROP")
}
