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

// icmpOf returns the index of ICMP in a family and that of the other family's ICMP, both protocol numbers, and the match of types.
func icmpOf(family uint8) (index, other int, proto, otherProto uint8, option string) {
	if family == 4 {
		return bpf.L4ICMP, bpf.L4ICMPv6, model.ProtoICMP, model.ProtoICMPv6, "-m icmp --icmp-type"
	}
	return bpf.L4ICMPv6, bpf.L4ICMP, model.ProtoICMPv6, model.ProtoICMP, "-m icmp6 --icmpv6-type"
}

// icmp adds the lines of ICMP of both families. ICMP of the other family has no types.
func (w *writer) icmp(p *part, l *leaf, s side) {
	index, other, proto, otherProto, _ := icmpOf(w.o.Family)
	k := l[index]
	rest := k.rest
	switch {
	case len(k.spans) == 0:
	case s == opener:
		for typ := range 256 {
			w.icmpType(p, k, uint8(typ), uint8(typ), s)
		}
	default: // only answers go against a flow
		for _, pair := range icmpPairs[w.o.Family] {
			w.icmpType(p, keys{k.spans, k.rest}, pair.request, pair.reply, s)
		}
		rest = noEffect
	}
	if rest != l.rest() || s == answerer && len(k.spans) > 0 {
		p.add(ofProtocol(proto), rest, s, w)
	}
	if l[other].rest != l.rest() {
		p.add(ofProtocol(otherProto), l[other].rest, s, w)
	}
}

// icmpType adds the lines for packets of the type seen, which are judged as packets of the type judged.
func (w *writer) icmpType(p *part, k keys, judged, seen uint8, s side) {
	_, _, proto, _, option := icmpOf(w.o.Family)
	first, lastKey := uint16(judged)<<8, uint16(judged)<<8|0xff
	spans := cut(k, first, lastKey)
	most, count := spans[0].to, 0
	for _, x := range spans {
		if n := int(x.hi) - int(x.lo) + 1; n > count {
			most, count = x.to, n
		}
	}
	for _, x := range spans {
		for key := int(x.lo); key <= int(x.hi) && x.to != most; key++ {
			p.add(fmt.Sprintf("%s %s %d/%d", ofProtocol(proto), option, seen, key&0xff), x.to, s, w)
		}
	}
	if most != k.rest || s == answerer {
		p.add(fmt.Sprintf("%s %s %d", ofProtocol(proto), option, seen), most, s, w)
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
