package ruletext

import (
	"fmt"
	"strings"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/model"
)

// ruleText says in words what an entry of the ordered match table matches. name gives a set's words by its number.
func ruleText(r bpf.Rule, ingress bool, name func(uint32) string) string {
	var parts []string
	switch {
	case r.Flags&bpf.RuleV6 == 0:
		parts = append(parts, "ipv4")
	case r.Flags&bpf.RuleV4 == 0:
		parts = append(parts, "ipv6")
	}
	if r.Flags&bpf.RuleProto != 0 {
		parts = append(parts, model.ProtocolName(r.Proto))
	}
	if r.Flags&bpf.RuleNotProto != 0 {
		parts = append(parts, "not "+model.ProtocolName(r.Proto))
	}
	remote := "to"
	if ingress {
		remote = "from"
	}
	for _, n := range r.In {
		if n != 0 {
			parts = append(parts, fmt.Sprintf("%s {%s}", remote, name(n)))
		}
	}
	for _, n := range r.NotIn {
		if n != 0 {
			parts = append(parts, fmt.Sprintf("not %s {%s}", remote, name(n)))
		}
	}
	var ports, sources []model.PortRange
	for _, d := range r.Dport[:min(int(r.Ndports), len(r.Dport))] {
		ports = append(ports, model.PortRange{Lo: d.Lo, Hi: d.Hi})
	}
	for _, s := range r.Sport[:min(int(r.Nsports), len(r.Sport))] {
		sources = append(sources, model.PortRange{Lo: s.Lo, Hi: s.Hi})
	}
	if len(ports) > 0 {
		parts = append(parts, portsText(r.Proto, ports))
	}
	if len(sources) > 0 {
		parts = append(parts, "source "+portsText(0, sources))
	}
	if len(parts) == 0 {
		return "anything"
	}
	return strings.Join(parts, " ")
}

func portsText(proto uint8, ranges []model.PortRange) string {
	isICMP := proto == model.ProtoICMP || proto == model.ProtoICMPv6
	var texts []string
	for _, r := range ranges {
		if isICMP {
			texts = append(texts, typeText(r.Lo, r.Hi))
		} else {
			texts = append(texts, rangeText(r.Lo, r.Hi))
		}
	}
	if isICMP {
		return strings.Join(texts, ", ")
	}
	return "port " + strings.Join(texts, ",")
}

// typeText is a range of ICMP types and codes.
func typeText(lo, hi uint16) string {
	switch {
	case lo == hi:
		return fmt.Sprintf("type %d code %d", lo>>8, lo&255)
	case lo>>8 == hi>>8 && lo&255 == 0 && hi&255 == 255:
		return fmt.Sprintf("type %d", lo>>8)
	}
	return fmt.Sprintf("type/code %d/%d to %d/%d", lo>>8, lo&255, hi>>8, hi&255)
}

func rangeText(lo, hi uint16) string {
	if lo == hi {
		return fmt.Sprint(lo)
	}
	return fmt.Sprintf("%d-%d", lo, hi)
}

// actionText is the action of an entry as people read it.
func actionText(a uint8) string {
	switch a {
	case bpf.RuleAllow:
		return "Allow"
	case bpf.RuleDeny:
		return "Deny"
	case bpf.RulePass:
		return "Pass"
	case bpf.RuleLog:
		return "Log"
	case bpf.RuleSkip:
		return "skip rule"
	}
	return fmt.Sprintf("action %d", a)
}
