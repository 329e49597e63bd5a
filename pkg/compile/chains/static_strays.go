package chains

import "slices"

// strays are rules for packets from further sources that are judged alone.
//
// If the node routes the source to the pod that sends, all packets to that address come to the pod, and the kernel's connections with
// that address are the pod's own. So they are judged like those of its other addresses. Otherwise a connection with the same ends may
// belong to others, and the pod's packet is judged alone, as if there was no connection.
//
// Such a packet is marked as stray before routing. It may begin a connection in the kernel's table, which gets the mark lone.
// The first packet of that connection that is not stray decides which end has opened the flow.
type strays struct {
	t          *terms
	flows      *flows
	addresses  *addresses
	checks     *checks
	judgement  *judgement
	copies     copies
	dropToHost bool // see Config
}

// stray returns the mark of a stray packet, until it is judged, and the mask of that.
func stray(m Marks) (value, mask uint32) { return m.against() | m.midflow(), m.mask }

// alone returns the mark of a packet that was judged alone and allowed, and the mask of that.
func alone(m Marks) (value, mask uint32) { return m.allow() | m.midflow(), m.mask }

// any returns the rule if there may be stray packets, and otherwise no rule.
func (s *strays) any(rule string) string { return when(s.addresses.further() && rule != "", rule) }

// judged leads stray packets that match to a chain that judges them.
func (s *strays) judged(match, chain string) string {
	return s.any(both(match, s.t.marked(stray(s.t.marks))) + " -g " + s.t.name(chain))
}

// allowed is for packets that were judged alone and allowed.
func (s *strays) allowed(target string) string {
	return s.any(s.t.marked(alone(s.t.marks)) + " " + target)
}

// lone is for packets of connections that a stray packet has begun.
func (s *strays) lone(rest string) string { return s.any(s.flows.lone() + " " + rest) }

// denied is for stray packets that a slot denies. The flow with their ends goes on: it may be that of others.
func (s *strays) denied() []string {
	match := s.t.marked(s.t.marks.midflow(), s.t.marks.midflow())
	return []string{s.any(s.copies.of(EventDenied, match)), s.any(match + " -j DROP")}
}

// deniedLone is for packets of lone connections that a slot denies.
func (s *strays) deniedLone() []string {
	return []string{s.any(s.copies.of(EventDenied, s.flows.lone())), s.lone("-j DROP")}
}

// chains makes the chains that judge stray packets: the policies of both ends judge each of them as one that opens a flow. They leave
// the mark of the connection alone, which may be that of others, unless they have begun it. An allowed packet leaves with a mark by
// which table filter knows it.
func (s *strays) chains() []Chain {
	if !s.addresses.further() {
		return nil
	}
	t, m := s.t, s.t.marks
	// A connection that has been answered was begun by others even if it has no mark, such as one from before the agent, so the state
	// has to be NEW. With the direction ORIGINAL instead, a pod that poses as the opener could have the answers judged as if the
	// other end had opened the connection.
	begin := "-m conntrack --ctstate NEW " + connmark("", Value{0, m.mask}) + " " + setConnmark(m.Lone())
	first := slices.Concat([]string{s.checks.encapBefore(""), s.checks.quotes()}, s.checks.dubious(), []string{begin, t.mark(m.midflow(), m.mask)},
		s.judgement.by(EgressSlots, t.in, "src"))
	last := []string{s.copies.of(EventAllowed, "-m conntrack --ctstate NEW"), t.mark(alone(m))}
	lone := t.chain("lone", slices.Concat(first, []string{s.judgement.again(t.out)}, s.judgement.by(IngressSlots, t.out, "dst"), last)...)
	toHost := []string{s.checks.routed(), s.checks.encap("")}
	if s.dropToHost {
		return []Chain{lone, t.chain("lone-in", append(toHost, "-j DROP")...)}
	}
	return []Chain{lone, t.chain("lone-in", slices.Concat(toHost, first, last)...)}
}
