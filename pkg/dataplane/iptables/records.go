package iptables

import (
	"net/netip"
	"strings"

	"github.com/margay-project/margay/pkg/flows"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/packetlog"
)

// describe writes the deciding rule, its policy and the trace into a record.
func describe(r *flows.Record, v model.Verdict) {
	r.Rule = "no rule"
	if v.By != (model.RuleID{}) {
		r.Rule = v.By.String()
	}
	// A profile is no policy: "profile/kns.shop", against "default/knp/shop/db" and "default/gnp/deny-all".
	if policy, _, ok := strings.Cut(r.Rule, "#"); ok && strings.Count(policy, "/") > 1 {
		r.Policy = policy
	}
	if len(v.Logged)+len(v.Passed) > 0 {
		r.Trace = &flows.Trace{Logged: texts(v.Logged), Passed: texts(v.Passed)}
	}
}

func texts(list []model.RuleID) (all []string) {
	for _, id := range list {
		all = append(all, id.String())
	}
	return all
}

// flowOf returns a packet in the form of records.
func flowOf(c *packetlog.Copy, p model.Packet) flows.Packet {
	f := flows.Packet{Protocol: c.Packet.Protocol, Src: netip.AddrPortFrom(p.Src, p.SrcPort), Dst: netip.AddrPortFrom(p.Dst, p.DstPort)}
	if c.Packet.ICMP != nil {
		f.ICMP = &flows.ICMP{Type: p.ICMPType, Code: p.ICMPCode}
	}
	return f
}
