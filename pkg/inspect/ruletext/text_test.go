package ruletext

import (
	"fmt"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/model"
)

func TestRuleTextSaysWhatAnEntryMatches(t *testing.T) {
	const both = bpf.RuleV4 | bpf.RuleV6
	name := func(n uint32) string { return fmt.Sprintf("set %d", n) }
	ports := func(r bpf.Rule, list ...model.PortRange) bpf.Rule {
		r.Ndports = uint8(len(list))
		for i, p := range list {
			r.Dport[i].Lo, r.Dport[i].Hi = p.Lo, p.Hi
		}
		return r
	}
	source := func(r bpf.Rule, lo, hi uint16) bpf.Rule {
		r.Nsports, r.Sport[0].Lo, r.Sport[0].Hi = 1, lo, hi
		return r
	}
	for _, test := range []struct {
		want    string
		ingress bool
		rule    bpf.Rule
	}{
		{"anything", true, bpf.Rule{Flags: both}},
		{"ipv4", true, bpf.Rule{Flags: bpf.RuleV4}},
		{"ipv6 tcp", true, bpf.Rule{Flags: bpf.RuleV6 | bpf.RuleProto, Proto: 6}},
		{"not udp", true, bpf.Rule{Flags: both | bpf.RuleNotProto, Proto: 17}},
		{"from {set 1} from {set 2} not from {set 3}", true, bpf.Rule{Flags: both, In: [3]uint32{1, 2}, NotIn: [3]uint32{3}}},
		{"to {set 1}", false, bpf.Rule{Flags: both, In: [3]uint32{1}}},
		{
			"tcp port 80,8000-8080", true,
			ports(bpf.Rule{Flags: both | bpf.RuleProto, Proto: 6}, model.PortRange{Lo: 80, Hi: 80}, model.PortRange{Lo: 8000, Hi: 8080}),
		},
		{
			"udp port 53 source port 1-1023", true,
			source(ports(bpf.Rule{Flags: both | bpf.RuleProto, Proto: 17}, model.PortRange{Lo: 53, Hi: 53}), 1, 1023),
		},
		{"icmp type 8", true, ports(bpf.Rule{Flags: both | bpf.RuleProto, Proto: 1}, model.PortRange{Lo: 8 << 8, Hi: 8<<8 | 255})},
		{
			"icmpv6 type 128 code 0, type/code 1/2 to 1/4", true,
			ports(bpf.Rule{Flags: both | bpf.RuleProto, Proto: 58}, model.PortRange{Lo: 128 << 8, Hi: 128 << 8}, model.PortRange{Lo: 1<<8 | 2, Hi: 1<<8 | 4}),
		},
	} {
		if got := ruleText(test.rule, test.ingress, name); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestActionsHaveWords(t *testing.T) {
	for action, want := range map[uint8]string{
		bpf.RuleAllow: "Allow", bpf.RuleDeny: "Deny", bpf.RulePass: "Pass", bpf.RuleLog: "Log", bpf.RuleSkip: "skip rule", 77: "action 77",
	} {
		if got := actionText(action); got != want {
			t.Errorf("action %d is %q, want %q", action, got, want)
		}
	}
}
