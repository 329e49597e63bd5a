package node

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/marks"
)

func TestUsersOfOurMarkBitsAreSaidInOneLine(t *testing.T) {
	users := []marks.User{{Where: "a", Use: marks.Use{Changes: 1}}, {Where: "b", Use: marks.Use{Reads: 1}}, {Where: "c"}, {Where: "d"}, {Where: "e"}}
	got := markText(users, "--mark-mask")
	for _, want := range []string{"a changes bits 0x00000001; b reads bits 0x00000001; ", "and 2 more", "--mark-mask"} {
		if !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("no %q in %q", want, got)
		}
	}
}

// Where iptables enforces, its own chains use its bits: only rules of others are a finding.
func TestRulesOfOthersThatUseTheBitsOfIPTablesAreFound(t *testing.T) {
	testutil.Privileged(t)
	testutil.NetNS(t).Enter(t)
	for _, command := range []string{"iptables", "iptables-legacy"} {
		for _, args := range []string{"-N mgyA-allow", "-A mgyA-allow -j MARK --or-mark 0x10000", "-A PREROUTING -j MARK --or-mark 0x20000",
			"-A PREROUTING -j MARK --or-mark 0x1000"} {
			if out, err := exec.Command(command, append([]string{"-t", "mangle"}, strings.Fields(args)...)...).CombinedOutput(); err != nil {
				t.Fatalf("%s %s: %v\n%s", command, args, err, out)
			}
		}
	}
	users, err := findMarks(0xffff0000)
	if err != nil {
		t.Fatal(err)
	}
	if len(users) != 2 || users[0].Changes != 0x20000 || users[1].Changes != 0x20000 {
		t.Errorf("found %v, want the rule with 0x20000 of each backend", users)
	}
	if check := markCheck(ownMarks{0xffff0000, "--iptables-mark-mask"}); check.OK || !strings.Contains(check.Detail, "--iptables-mark-mask") {
		t.Errorf("%+v", check)
	}
}
