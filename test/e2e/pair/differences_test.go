package pair

import (
	"fmt"
	"slices"
	"strings"

	"github.com/margay-project/margay/internal/testutil"
)

// The differences between the dataplanes that docs/iptables.md names. Each has a name, under which finish counts it.
const (
	differsInvalid       = "conntrack found it invalid: dropped with iptables"
	differsUnfollowed    = "UDP-Lite: each packet is judged for itself with iptables"
	differsDirection     = "both ends have sent, policy allows one direction: that of the flow is that of the first packet that passed with iptables, of the first that was sent by BPF"
	differsAgain         = "of a flow that policy denied meanwhile: conntrack keeps it, by BPF its opener has to begin again"
	differsEnded         = "of a flow that a RST or ABORT has ended: conntrack may begin another one"
	differsSYN           = "both ends have sent a SYN: part of one connection with iptables, by BPF the later one opens another"
	differsStale         = "error about a flow that was not judged since policy changed: by BPF it passes if policy allows the flow"
	differsAttempt       = "the other end has begun the flow before, in vain: by BPF TCP in mid-flow and echo replies may be answers to it"
	differsAuthenticated = "IPv6 with an authentication header begins no flow with iptables-nft, and has no routing header with iptables"
	differsExtended      = "ICMPv6 that conntrack finds invalid, behind an extension header: dropped with iptables"
	differsOfInvalid     = "error about a packet that conntrack found invalid: with iptables it is about no flow"
	differsQuoted        = "error that quotes an authentication header: BPF finds no flow behind it"
	differsNodeTCP       = "TCP of the node with a pod in mid-flow: with iptables the first packet on record says who has opened it, by BPF a SYN or the kernel does"
	differsNode          = "the node's packet in a flow that a pod has opened and policy denies, or one that quotes nothing: BPF drops it"
	differsOrder         = "last fragment first: reassembled with iptables, dropped by BPF (D-12)"
)

// difference names the rule by which the sides may differ about a shot; empty: they may not.
func (p *pair) difference(x *shot, bpf, ipt arrival) string {
	switch {
	case ipt.invalid && ipt.places == 0 && conntrackJudges(x.packet):
		return differsInvalid
	case x.unfollowed:
		return differsUnfollowed
	case x.swapped && bpf.places == 0:
		return differsOrder
	case ipt.invalid && ipt.places == 0 && len(x.packet.Extensions) > 0:
		return differsExtended
	case x.authenticated && ipt.places == 0 && (p.sides[byIPTables].name == "iptables-nft" || x.routed):
		return differsAuthenticated
	case x.from == theNode && bpf.places == 0:
		return differsNode
	case x.flow != nil && x.flow.outOfOrder() && slices.Contains(x.flow.places[:], theNode):
		return differsNodeTCP
	case x.flow != nil && (x.flow.denied || x.flow.vain[x.end] && !x.opens()):
		return differsAgain
	case x.quotes && ipt.places == 0 && p.sides[byIPTables].board.of(x.flow.last[1-x.end].k).invalid:
		return differsOfInvalid
	case x.quotes && x.flow.last[1-x.end].authenticated && bpf.places == 0:
		return differsQuoted
	case x.flow != nil && x.flow.ended:
		return differsEnded
	case x.flow != nil && x.flow.syns == [2]bool{true, true}:
		return differsSYN
	case x.quotes && x.flow.judged < x.round && ipt.places == 0:
		return differsStale
	case x.flow != nil && x.flow.vain[1-x.flow.openerOr(x.end)] && !x.opens():
		return differsAttempt
	case x.either:
		return differsDirection
	}
	return ""
}

// outOfOrder reports whether TCP of the flow was sent out of order.
func (f *flow) outOfOrder() bool {
	return slices.ContainsFunc(f.shots, func(x *shot) bool { return strings.HasPrefix(x.what, "TCP out of order") })
}

// opens reports whether a packet of its kind begins a flow, in whichever state the flow is.
func (x *shot) opens() bool {
	switch l4 := x.packet.L4.(type) {
	case testutil.TCP:
		return l4.Flags&testutil.SYN != 0 && l4.Flags&testutil.ACK == 0
	case testutil.ICMP:
		return l4.Type != echoTypes(x.flow.v6)[server]
	}
	return true
}

// conntrackJudges reports whether the packet is of a protocol of which conntrack's finding counts.
func conntrackJudges(q testutil.Packet) bool {
	switch l4 := q.L4.(type) {
	case testutil.TCP, testutil.SCTP:
		return true
	case testutil.UDP:
		return !l4.Lite
	}
	return false
}

// wrong says what is wrong with what became of a shot; empty: nothing, as far as is known yet.
func (p *pair) wrong(x *shot) string {
	bpf, ipt := p.sides[byBPF].board.of(x.k), p.sides[byIPTables].board.of(x.k)
	if ipt.invalid && ipt.places != 0 && conntrackJudges(x.packet) {
		return "conntrack found it invalid, and it passed with iptables"
	}
	if x.flow != nil && (bpf.places != 0 || ipt.places != 0) && !p.within(x, bpf.places|ipt.places) {
		return fmt.Sprintf("policy of one end allows it in no direction: by BPF it arrived at [%s], with iptables at [%s]", names(bpf), names(ipt))
	}
	if p.difference(x, bpf, ipt) == "" && bpf.places != ipt.places {
		return fmt.Sprintf("by BPF it arrived at [%s], with iptables at [%s]", names(bpf), names(ipt))
	}
	if x.tail != 0 && !x.swapped {
		tails := [2]arrival{p.sides[byBPF].board.of(x.tail), p.sides[byIPTables].board.of(x.tail)}
		if tails[0].places != bpf.places || tails[1].places != ipt.places {
			return fmt.Sprintf("only a part of its fragments arrived: by BPF [%s] and [%s], with iptables [%s] and [%s]",
				names(bpf), names(tails[0]), names(ipt), names(tails[1]))
		}
	}
	if x.want == nil || ipt.invalid && conntrackJudges(x.packet) {
		return ""
	}
	for i, a := range []arrival{bpf, ipt} {
		if a.at(x.place) != *x.want && !(i == byBPF && (x.swapped || x.unfollowed)) {
			return fmt.Sprintf("%s: it arrived: %v, and the oracle says %v", p.sides[i].name, a.at(x.place), *x.want)
		}
	}
	return ""
}

// count counts a shot, and by which rule the sides differ about it.
func (p *pair) count(x *shot) {
	x.found = p.arrivals(x)
	bpf, ipt := p.sides[byBPF].board.of(x.k), p.sides[byIPTables].board.of(x.k)
	kind := strings.SplitN(x.what, ",", 2)[0]
	switch rule := p.difference(x, bpf, ipt); {
	case bpf.places != ipt.places:
		p.counts["differs: "+rule]++
	case bpf.places == 0:
		p.counts[kind+", dropped"]++
	default:
		p.counts[kind+", passed"]++
	}
	if x.want != nil {
		p.counts["(judged by the oracle too)"]++
	}
}

func names(a arrival) string {
	var list []string
	for at := range place(places) {
		if a.at(at) {
			list = append(list, at.String())
		}
	}
	if a.invalid {
		list = append(list, "invalid")
	}
	return strings.Join(list, ", ")
}
