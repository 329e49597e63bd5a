package match

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/model"
)

func TestNumbersOfAMatchTable(t *testing.T) {
	entries := []bpf.Rule{
		{Id: 70, In: [3]uint32{64, 3}, NotIn: [3]uint32{mostInWords, 1<<32 - 1}},
		{Id: 2, In: [3]uint32{3, 1}, NotIn: [3]uint32{0, mostInWords - 1}},
		{Id: 70, NotIn: [3]uint32{1<<32 - 1}},
		{},
	}
	if d := cmp.Diff([]uint32{1, 3, 64, mostInWords - 1, mostInWords, 1<<32 - 1}, SetNumbers(entries)); d != "" {
		t.Error("sets", d)
	}
	if d := cmp.Diff([]uint32{2, 70}, RuleNumbers(entries)); d != "" {
		t.Error("rules", d)
	}
	if none := SetNumbers(entries[3:]); none != nil {
		t.Errorf("a table without sets has %v", none)
	}
}

// What a rule leaves in the memory that the next one uses again must not show.
func TestRulesDoNotShareWhatTheyAreExpandedFrom(t *testing.T) {
	var s scratch
	tcp, udp := l4Option{proto: 6, families: bothFamilies, ranges: ports(80)}, l4Option{proto: 17, families: bothFamilies, ranges: ports(53)}
	all := s.start(l4Match{proto: -1, notProto: -1, families: bothFamilies})
	both := s.require(all, destinationSide, []l4Option{tcp, udp})
	from := s.require(both, sourceSide, []l4Option{{proto: 6, families: bothFamilies, ranges: ports(1000)}})
	if len(both) != 2 || both[1].proto != 17 || len(from) != 1 || from[0].proto != 6 || len(from[0].sport) != 1 {
		t.Errorf("both %+v, from %+v", both, from)
	}
	if again := s.require(s.start(l4Match{proto: 17, notProto: -1, families: bothFamilies}), destinationSide, []l4Option{tcp}); len(again) != 0 {
		t.Errorf("a UDP rule with TCP's ports matches %+v", again)
	}
}

func ports(port uint16) []model.PortRange { return []model.PortRange{{Lo: port, Hi: port}} }

// The kernel has the name of a CIDR list, so another agent must give it the same one.
func TestACIDRListKeepsItsName(t *testing.T) {
	var list []netip.Prefix
	for _, text := range []string{"10.1.2.3/8", "fd00::/16", "10.0.0.0/9", "192.168.7.0/24"} {
		list = append(list, netip.MustParsePrefix(text))
	}
	if id := newNetSet(list).id; id != "net:3x-k5ZjSXaf-PvLbTJaEavUW" {
		t.Errorf("the list is named %s", id)
	}
}

// Each entry counts that may deny a member of a set something.
func TestDenyingSets(t *testing.T) {
	for action, want := range map[uint8][]uint32{bpf.RuleAllow: {3, 4}, bpf.RuleLog: nil, bpf.RuleDeny: {1, 2}, bpf.RulePass: {1, 2, 3, 4}, bpf.RuleSkip: {1, 2, 3, 4}} {
		entries := []bpf.Rule{{Action: action, In: [3]uint32{2, 1, 2}, NotIn: [3]uint32{4, 0, 3}}, {Action: action, In: [3]uint32{2}}}
		if got := DenyingSets(entries); !slices.Equal(got, want) {
			t.Errorf("action %d: %v, want %v", action, got, want)
		}
	}
}
