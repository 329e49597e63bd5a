package chains

import (
	"fmt"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/model"
)

// icmpPair is a type of ICMP whose packets are answered, and the type of the answers, as the kernel's conntrack has them.
type icmpPair struct{ request, reply uint8 }

var icmpPairs = map[uint8][]icmpPair{
	4: {{8, 0}, {13, 14}, {15, 16}, {17, 18}},
	6: {{128, 129}, {139, 140}},
}

// icmpFamily is ICMP of one family: its index, its protocol number, and the match of its types.
type icmpFamily struct {
	index int
	proto uint8
	types string
}

// icmpOf returns the ICMP of a family and that of the other one.
func icmpOf(family uint8) (own, other icmpFamily) {
	v4 := icmpFamily{bpf.L4ICMP, model.ProtoICMP, "-m icmp --icmp-type"}
	v6 := icmpFamily{bpf.L4ICMPv6, model.ProtoICMPv6, "-m icmp6 --icmpv6-type"}
	if family == 4 {
		return v4, v6
	}
	return v6, v4
}

// icmp adds the lines of ICMP of both families. ICMP of the other family has no types.
func (w *writer) icmp(p *part, l *leaf, s side) {
	own, other := icmpOf(w.o.Family)
	k := l[own.index]
	rest := k.rest
	switch {
	case len(k.spans) == 0:
	case s == opener:
		for typ := range 256 {
			w.icmpType(p, k, uint8(typ), uint8(typ), s)
		}
	default: // only answers go against a flow
		for _, pair := range icmpPairs[w.o.Family] {
			w.icmpType(p, k, pair.request, pair.reply, s)
		}
		rest = noEffect
	}
	if rest != l.rest() || s == answerer && len(k.spans) > 0 {
		p.add(ofProtocol(own.proto), rest, s, w)
	}
	if l[other.index].rest != l.rest() {
		p.add(ofProtocol(other.proto), l[other.index].rest, s, w)
	}
}

// icmpType adds the lines for packets of the type seen, which are judged as packets of the type judged.
func (w *writer) icmpType(p *part, k keys, judged, seen uint8, s side) {
	own, _ := icmpOf(w.o.Family)
	protocol := ofProtocol(own.proto) + " " + own.types
	spans := cut(k, uint16(judged)<<8, uint16(judged)<<8|0xff)
	most, count := spans[0].to, 0
	for _, x := range spans {
		if n := int(x.hi) - int(x.lo) + 1; n > count {
			most, count = x.to, n
		}
	}
	for _, x := range spans {
		for key := int(x.lo); key <= int(x.hi) && x.to != most; key++ {
			p.add(fmt.Sprintf("%s %d/%d", protocol, seen, key&0xff), x.to, s, w)
		}
	}
	if most != k.rest || s == answerer {
		p.add(fmt.Sprintf("%s %d", protocol, seen), most, s, w)
	}
}

// cut returns the spans of keys from lo to hi, those of the rest included.
func cut(k keys, lo, hi uint16) []span {
	var out []span
	at := int(lo)
	for _, x := range k.spans {
		if x.hi < lo || x.lo > hi {
			continue
		}
		from, to := max(x.lo, lo), min(x.hi, hi)
		if int(from) > at {
			out = append(out, span{uint16(at), from - 1, k.rest})
		}
		out = append(out, span{from, to, x.to})
		at = int(to) + 1
	}
	if at <= int(hi) {
		out = append(out, span{uint16(at), hi, k.rest})
	}
	return out
}
