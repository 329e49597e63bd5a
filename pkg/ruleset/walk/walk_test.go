package walk_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/ruleset"
	"github.com/margay-project/margay/pkg/ruleset/walk"
)

// read makes tables of the text of rulesets.
func read(t testing.TB, text string) map[string]*walk.Table {
	t.Helper()
	saved, err := ruleset.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string]*walk.Table{}
	for i := range saved {
		tables[saved[i].Name] = walk.NewTable(&saved[i])
	}
	return tables
}

// one is a table whose FORWARD has the rules, each in a line; chains of others follow as ":name" and their rules.
func one(rules string) string {
	head, chains := "*mangle\n:FORWARD ACCEPT [0:0]\n", ""
	name := "FORWARD"
	for _, line := range strings.Split(strings.TrimSpace(rules), "\n") {
		line = strings.TrimSpace(line)
		if next, ok := strings.CutPrefix(line, ":"); ok {
			name = next
			head += ":" + name + " - [0:0]\n"
			continue
		}
		chains += "-A " + name + " " + line + "\n"
	}
	return head + chains + "COMMIT\n"
}

func packet() walk.Packet {
	return walk.Packet{In: "cali1", Out: "eth0", Src: netip.MustParseAddr("10.1.0.1"), Dst: netip.MustParseAddr("10.2.0.2"),
		Protocol: 6, TCP: walk.SYN, Ports: walk.Ports{Src: 40000, Dst: 80}, Mark: 0x10,
		Connection: &walk.Connection{Protocol: 6, Mark: 0x20}}
}

func TestControlFlow(t *testing.T) {
	for _, tc := range []struct {
		name, rules string
		want        walk.Verdict
		path        string // chain and index of each rule that matched
	}{
		{"the policy", "-p udp -j DROP", walk.Accept, "FORWARD-1"},
		{"the first that matches decides", "-p tcp -j DROP\n-j ACCEPT", walk.Drop, "FORWARD0"},
		{"reject", "-p tcp -j REJECT --reject-with tcp-reset", walk.Reject, "FORWARD0"},
		{"a rule without a target goes on", "-p tcp\n-j DROP", walk.Drop, "FORWARD0 FORWARD1"},
		{"a log goes on", "-j NFLOG --nflog-group 1\n-j DROP", walk.Drop, "FORWARD0 FORWARD1"},
		{"a jump comes back", "-j a\n-j DROP\n:a\n-p udp -j ACCEPT", walk.Drop, "FORWARD0 FORWARD1"},
		{"RETURN comes back", "-j a\n-j DROP\n:a\n-j RETURN\n-j ACCEPT", walk.Drop, "FORWARD0 a0 FORWARD1"},
		{"RETURN in a built-in chain is its policy", "-j RETURN\n-j DROP", walk.Accept, "FORWARD0 FORWARD-1"},
		{"a goto does not come back", "-j a\n-p tcp -j DROP\n:a\n-g b\n-j ACCEPT\n:b\n-p udp -j ACCEPT", walk.Drop, "FORWARD0 a0 FORWARD1"},
		{"RETURN after a goto", "-j a\n-p tcp -j DROP\n:a\n-g b\n-j ACCEPT\n:b\n-j RETURN\n-j ACCEPT", walk.Drop, "FORWARD0 a0 b0 FORWARD1"},
		{"a goto from a built-in chain ends with its policy", "-g a\n-j DROP\n:a\n-p udp -j DROP", walk.Accept, "FORWARD0 FORWARD-1"},
		{"ACCEPT in a chain is final in the table", "-j a\n-j DROP\n:a\n-j ACCEPT", walk.Accept, "FORWARD0 a0"},
	} {
		r, err := walk.Walk([]walk.Stage{{Table: read(t, one(tc.rules))["mangle"], Chain: "FORWARD"}}, packet(), nil)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		var path []string
		for _, step := range r.Path {
			path = append(path, fmt.Sprint(step.Chain, step.Index))
		}
		if got := strings.Join(path, " "); r.Verdict != tc.want || got != tc.path {
			t.Errorf("%s: %v by %s, want %v by %s", tc.name, r.Verdict, got, tc.want, tc.path)
		}
	}
}

func TestMarksGoFromTableToTable(t *testing.T) {
	tables := read(t, one("-m mark --mark 0x10 -j MARK --set-xmark 0x3/0x1\n-j CONNMARK --set-xmark 0x1/0xf0\n-j ACCEPT")+
		"*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -m mark --mark 0x13 -m connmark --mark 0x1 -j DROP\nCOMMIT\n")
	p := packet()
	r, err := walk.Walk([]walk.Stage{{Table: tables["mangle"], Chain: "FORWARD"}, {Table: tables["filter"], Chain: "FORWARD"}}, p, nil)
	if err != nil || r.Verdict != walk.Drop || r.Mark != 0x13 || r.ConnMark != 0x1 {
		t.Errorf("%+v, %v", r, err)
	}
	if p.Mark != 0x10 || p.Connection.Mark != 0x20 {
		t.Error("the caller's packet was changed")
	}
}

// A walk may begin in a chain of ours, so that rules of others need not be known.
func TestAWalkThroughOneChain(t *testing.T) {
	tables := read(t, one("-j a\n-m nonsense -j DROP\n:a\n-p tcp -j RETURN"))
	r, err := walk.Walk([]walk.Stage{{Table: tables["mangle"], Chain: "a"}}, packet(), nil)
	if err != nil || r.Verdict != walk.Returned {
		t.Errorf("%+v, %v", r, err)
	}
	var unknown *walk.UnknownError
	_, err = walk.Walk([]walk.Stage{{Table: tables["mangle"], Chain: "FORWARD"}}, packet(), nil)
	if !errors.As(err, &unknown) || unknown.Step != (walk.Step{Table: "mangle", Chain: "FORWARD", Index: 1}) {
		t.Errorf("a rule of others: %v", err)
	}
}

func TestWhatIsUnknownIsAnError(t *testing.T) {
	for _, rules := range []string{
		"-m nonsense -j DROP", "-j LOG", "-j TRACE", "-g missing", "-j missing", "-p tcp -m recent --set -j DROP", "-m tcp --dport 80 -j DROP",
		"-p udp -m tcp --dport 80 -j DROP", "-m conntrack --ctstatus ASSURED -j DROP", "-m set --match-set s src -j DROP", "-m set --match-set s src --return-nomatch",
		"-j SET --map-set s src --map-prio", "-j SET --add-set s src", "-m addrtype --dst-type LOCAL", "-m bpf --bytecode 1,6", "-m pkttype --pkt-type unicast",
		"-s 2001:db8::/32 -j DROP", "-j a\n:a\n-j b\n:b\n-j a", "-p tcp -j CONNMARK --save-mark", "-m set --match-set s src,nowhere",
	} {
		if r, err := walk.Walk([]walk.Stage{{Table: read(t, one(rules))["mangle"], Chain: "FORWARD"}}, packet(), nil); err == nil {
			t.Errorf("%q: %+v", rules, r)
		}
	}
	if _, err := walk.Walk([]walk.Stage{{Table: read(t, one("-j DROP"))["mangle"], Chain: "absent"}}, packet(), nil); err == nil {
		t.Error("a chain that does not exist")
	}
}

// prefixes are sets of prefixes with marks, longest first.
type prefixes map[string][]entry

type entry struct {
	prefix string
	walk.Entry
}

func (sets prefixes) Lookup(set string, places []walk.Place, p *walk.Packet) (walk.Entry, bool, error) {
	entries, exists := sets[set]
	if !exists || len(places) != 1 {
		return walk.Entry{}, false, errors.New("no such set")
	}
	i := slices.IndexFunc(entries, func(e entry) bool { return netip.MustParsePrefix(e.prefix).Contains(p.Addr(places[0])) })
	if i < 0 {
		return walk.Entry{}, false, nil
	}
	return entries[i].Entry, true, nil
}

func TestSetsAnswer(t *testing.T) {
	sets := prefixes{"classes": {{"10.2.0.0/16", walk.Entry{Mark: 0x3_0000, Mask: 0xff_0000}}}}
	tables := read(t, one("-j SET --map-set classes src --map-mark\n-m mark --mark 0x10 -j SET --map-set classes dst --map-mark\n"+
		"-m mark --mark 0x30010 -m set --match-set classes dst -m set ! --match-set classes src -j DROP"))
	r, err := walk.Walk([]walk.Stage{{Table: tables["mangle"], Chain: "FORWARD"}}, packet(), sets)
	if err != nil || r.Verdict != walk.Drop || r.Mark != 0x3_0010 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := walk.Walk([]walk.Stage{{Table: tables["mangle"], Chain: "FORWARD"}}, packet(), prefixes{}); err == nil {
		t.Error("a set that does not exist")
	}
}

// What single matches mean, where the kernel test has no packets for them.
func TestMatches(t *testing.T) {
	routed := packet()
	routed.Routing = &walk.Routing{Type: 2, SegmentsLeft: 1}
	fragment := packet()
	fragment.Fragment, fragment.Ports = true, walk.Ports{}
	limited := packet()
	limited.Others.Limited = true
	others := packet()
	others.Others = walk.Others{SrcType: "UNICAST", DstType: "LOCAL", LinkType: "unicast", BPF: func(code string) bool { return code == "1,6 0 0 1" }}
	translated := packet()
	translated.Connection = &walk.Connection{State: walk.Established, DNAT: true, ReplyDst: netip.MustParseAddr("192.0.2.1")}
	for _, tc := range []struct {
		rule string
		p    walk.Packet
		want bool
	}{
		{"-m rt --rt-segsleft 1:255", routed, true},
		{"-m rt --rt-segsleft 0", routed, false},
		{"-m rt --rt-type 2", routed, true},
		{"-m rt ! --rt-type 2", routed, false},
		{"-m rt ! --rt-type 2", packet(), false},
		{"-p tcp -m tcp --sport 0:65535 --dport 0", fragment, false},
		{"-p tcp -m tcp ! --dport 5", fragment, false},
		{"-p tcp", fragment, true},
		{"-m limit --limit 1/sec", packet(), true},
		{"-m limit --limit 1/sec", limited, false},
		{"-m addrtype --dst-type LOCAL,BROADCAST", others, true},
		{"-m addrtype ! --src-type LOCAL", others, true},
		{"-m pkttype --pkt-type broadcast", others, false},
		{`-m bpf --bytecode "1,6 0 0 1"`, others, true},
		{"-m conntrack --ctstate DNAT", translated, true},
		{"-m conntrack --ctstate SNAT", translated, false},
		{"-m conntrack --ctrepldst 192.0.2.1", translated, true},
		{"-m conntrack --ctstate DNAT --ctrepldst 192.0.2.0/24", translated, true},
		{"-m conntrack ! --ctrepldst 192.0.2.1", translated, false},
		{"-m conntrack --ctrepldst 192.0.2.2", translated, false},
		{"-m conntrack --ctrepldst 192.0.2.1", packet(), false},
		{"-p tcp -m multiport --dports 1,79:81", packet(), true},
		{"-p tcp -m multiport ! --ports 40000", packet(), false},
		{"-m mark --mark 0x11/0x10", packet(), false}, // a bit outside of the mask
	} {
		r, err := walk.Walk([]walk.Stage{{Table: read(t, one(tc.rule+" -j DROP"))["mangle"], Chain: "FORWARD"}}, tc.p, nil)
		if err != nil || (r.Verdict == walk.Drop) != tc.want {
			t.Errorf("%s: %v, %v, want a match: %v", tc.rule, r.Verdict, err, tc.want)
		}
	}
}
