package chains

import "slices"

// forwarding is the chain that packets between pods and others enter.
type forwarding struct {
	t         *terms
	flows     *flows
	addresses *addresses
	checks    *checks
	strays    *strays
	grace     bool // see judgement
}

func (f *forwarding) chain() Chain {
	t := f.t
	mid := t.marked(t.marks.midflow(), t.marks.midflow())
	ofOthers := f.checks.others("! " + t.in + " ! " + t.out)
	tcp, others := f.flows.fast("-p tcp"), f.flows.known()
	if others == "" { // one match of the protocol is all that a rule has room for
		others = "! -p tcp"
	}
	return t.chain("FORWARD", slices.Concat([]string{
		t.only(6, ofOthers),
		f.checks.routed(),
		// PREROUTING has dropped packets from foreign addresses, except neighbour discovery. Another check would cost each packet of a
		// flow a lookup. Without the jump in PREROUTING, F finds no slot for such an address.
		t.only(6, f.addresses.spoofed("-p ipv6-icmp")),
		f.addresses.stale(),
		when(!f.addresses.further(), tcp), // before rules that no packet of TCP matches
		f.checks.encap(t.in),
		f.strays.judged(t.in, "lone"),
		when(f.addresses.further(), tcp),
		f.flows.fast(others),
		// Most packets of pods match fast, so this rule comes after it. Of the rules before, packets of others match fast only, which returns, too.
		t.only(4, ofOthers),
		f.checks.encapBefore(t.in),
	}, f.checks.errors(), f.checks.dubious(), []string{
		t.icmp() + " -m conntrack --ctstate RELATED -g " + t.name("F"), // whatever the direction of the flow that it is about
		f.flows.revoked() + " -g " + t.name("revoked"),
		f.strays.lone("-g " + t.name("F")), // whichever end sends the first packet that is not alone is the opener
		// The opener of the flow is that of conntrack, unless the first packet on record was an answer.
		f.flows.turned() + " -m conntrack --ctdir ORIGINAL -g " + t.name("R"),
		f.flows.notTurned() + " -m conntrack --ctdir REPLY -g " + t.name("R"),
		"-j " + t.name("F"),
		when(f.grace, mid+" "+setConnmark(f.flows.turn())),
		when(f.grace, mid+" -g "+t.name("R")),
	})...)
}
