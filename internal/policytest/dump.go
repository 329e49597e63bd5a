package policytest

import (
	"fmt"
	"strings"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/compile/match"
	"github.com/margay-project/margay/pkg/model"
)

// Dump writes a program one entry a line, with the names of sets.
func Dump(p *match.Program, n *Numbers) string {
	names := map[uint32]model.SetID{}
	for id, i := range n.Sets {
		names[i] = id
	}
	var b strings.Builder
	for i := range p.Rules {
		b.WriteString(DumpEntry(&p.Rules[i], names) + "\n")
	}
	return b.String()
}

// DumpEntry writes one entry.
func DumpEntry(r *bpf.Rule, names map[uint32]model.SetID) string {
	words := []string{map[uint8]string{
		bpf.RuleAllow: "allow", bpf.RuleDeny: "deny", bpf.RulePass: "pass", bpf.RuleLog: "log", bpf.RuleSkip: "skip",
	}[r.Action]}
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	if r.Action == bpf.RulePass || r.Action == bpf.RuleSkip {
		add("->%d", r.Jump)
	}
	const both = bpf.RuleV4 | bpf.RuleV6
	if r.Flags&both != both {
		add("%s", map[uint8]string{0: "never", bpf.RuleV4: "v4", bpf.RuleV6: "v6"}[r.Flags&both])
	}
	if r.Flags&bpf.RuleProto != 0 {
		add("proto=%d", r.Proto)
	}
	if r.Flags&bpf.RuleNotProto != 0 {
		add("proto!=%d", r.Proto)
	}
	for _, x := range r.Dport[:r.Ndports] {
		add("dport=%d-%d", x.Lo, x.Hi)
	}
	for _, x := range r.Sport[:r.Nsports] {
		add("sport=%d-%d", x.Lo, x.Hi)
	}
	for _, s := range r.In {
		if s != 0 {
			add("in=%s", names[s])
		}
	}
	for _, s := range r.NotIn {
		if s != 0 {
			add("not=%s", names[s])
		}
	}
	if r.Flags&bpf.RuleEnd != 0 {
		add("end")
	}
	return strings.Join(words, " ")
}
