package agent

import (
	"fmt"
	"strings"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/explain"
)

// RuleText says in words what an entry of the ordered match table matches. name gives a set's words by its number.
func RuleText(r bpf.Rule, ingress bool, name func(uint32) string) string {
	var parts []string
	switch {
	case r.Flags&bpf.RuleV6 == 0:
		parts = append(parts, "ipv4")
	case r.Flags&bpf.RuleV4 == 0:
		parts = append(parts, "ipv6")
	}
	if r.Flags&bpf.RuleProto != 0 {
		parts = append(parts, explain.ProtocolName(r.Proto))
	}
	if r.Flags&bpf.RuleNotProto != 0 {
		parts = append(parts, "not "+explain.ProtocolName(r.Proto))
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
	var ports []string
	for i := range min(int(r.Ndports), len(r.Dport)) {
		ports = append(ports, portText(r.Proto, r.Dport[i].Lo, r.Dport[i].Hi))
	}
	if len(ports) > 0 {
		parts = append(parts, strings.Join(ports, ","))
	}
	var sources []string
	for i := range min(int(r.Nsports), len(r.Sport)) {
		sources = append(sources, rangeText(r.Sport[i].Lo, r.Sport[i].Hi))
	}
	if len(sources) > 0 {
		parts = append(parts, "source port "+strings.Join(sources, ","))
	}
	if len(parts) == 0 {
		return "anything"
	}
	return strings.Join(parts, " ")
}

func portText(proto uint8, lo, hi uint16) string {
	if proto != 1 && proto != 58 {
		return "port " + rangeText(lo, hi)
	}
	if lo>>8 == hi>>8 && lo != hi {
		return fmt.Sprintf("type %d", lo>>8)
	}
	if lo == hi {
		return fmt.Sprintf("type %d code %d", lo>>8, lo&255)
	}
	return fmt.Sprintf("type/code %d/%d-%d/%d", lo>>8, lo&255, hi>>8, hi&255)
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
