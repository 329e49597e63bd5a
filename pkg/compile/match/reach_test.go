package match

import (
	"slices"
	"testing"

	"github.com/margay-project/margay/bpf"
)

func TestEntriesAfterOneThatDecidesEverythingAreNeverReached(t *testing.T) {
	const both = bpf.RuleV4 | bpf.RuleV6
	allow := func(flags uint8) bpf.Rule { return bpf.Rule{Action: bpf.RuleAllow, Flags: flags} }
	tcp := bpf.Rule{Action: bpf.RuleAllow, Flags: both | bpf.RuleProto, Proto: 6}
	of := func(r bpf.Rule) bpf.Rule { r.In = [3]uint32{1}; return r }
	jump := func(r bpf.Rule, action uint8, to uint16) bpf.Rule { r.Action, r.Jump = action, to; return r }
	const yes, no = true, false
	for _, test := range []struct {
		name  string
		rules []bpf.Rule
		want  []bool
	}{
		{"none", nil, []bool{}},
		{"a policy, the end of its tier, the profile", []bpf.Rule{of(tcp), {Action: bpf.RuleDeny, Flags: both}, allow(both), {Action: bpf.RuleDeny, Flags: both}},
			[]bool{yes, yes, no, no}},
		{"one IP version is decided", []bpf.Rule{allow(bpf.RuleV4), allow(bpf.RuleV4), tcp, allow(bpf.RuleV6), allow(both)}, []bool{yes, no, yes, yes, no}},
		{"each is decided by a rule of its own", []bpf.Rule{allow(bpf.RuleV4), allow(bpf.RuleV6), tcp}, []bool{yes, yes, no}},
		{"conditions", []bpf.Rule{tcp, of(allow(both)), {Action: bpf.RuleAllow, Flags: both, Ndports: 1}, {Action: bpf.RuleAllow, Flags: both, Nsports: 1},
			{Action: bpf.RuleAllow, Flags: both | bpf.RuleNotProto, Proto: 6}, {Action: bpf.RuleAllow, Flags: both, NotIn: [3]uint32{1}}, allow(both)},
			[]bool{yes, yes, yes, yes, yes, yes, yes}},
		{"pass of everything", []bpf.Rule{jump(allow(both), bpf.RulePass, 3), tcp, allow(both), tcp, allow(both)}, []bool{yes, no, no, yes, yes}},
		{"pass of a part", []bpf.Rule{jump(tcp, bpf.RulePass, 3), tcp, allow(both), tcp, allow(both)}, []bool{yes, yes, yes, yes, yes}},
		{"pass before a denial of everything", []bpf.Rule{jump(of(tcp), bpf.RulePass, 2), {Action: bpf.RuleDeny, Flags: both}, allow(both), tcp}, []bool{yes, yes, yes, no}},
		{"log goes on", []bpf.Rule{{Action: bpf.RuleLog, Flags: both}, allow(both), tcp}, []bool{yes, yes, no}},
		{"skip", []bpf.Rule{jump(of(allow(both)), bpf.RuleSkip, 2), allow(both), allow(both), tcp}, []bool{yes, yes, yes, no}},
	} {
		p := &Program{Rules: test.rules}
		if got := p.Reached(); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
