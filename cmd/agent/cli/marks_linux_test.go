package cli

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/marks"
)

func TestUsersOfOurMarkBitsAreSaidInOneLine(t *testing.T) {
	users := []marks.User{{Where: "a", Use: marks.Use{Changes: 1}}, {Where: "b", Use: marks.Use{Reads: 1}}, {Where: "c"}, {Where: "d"}, {Where: "e"}}
	got := markText(users)
	for _, want := range []string{"a changes bits 0x00000001; b reads bits 0x00000001; ", "and 2 more", "--mark-mask"} {
		if !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("no %q in %q", want, got)
		}
	}
}

// TestARuleThatSetsOurMarkBitsIsSaid: such a bit can take packets past policy.
func TestARuleThatSetsOurMarkBitsIsSaid(t *testing.T) {
	for backend, where := range map[string]string{
		"iptables": "nftables ip mangle PREROUTING rule", "iptables-legacy": "iptables-legacy mangle PREROUTING rule 1",
	} {
		t.Run(backend, func(t *testing.T) {
			n := newNode(t)
			err := n.machine.Do(func() error {
				return exec.Command(backend, "-t", "mangle", "-A", "PREROUTING", "-i", "eth0", "-j", "MARK", "--or-mark", "0x1000").Run()
			})
			if err != nil {
				t.Fatal(err)
			}
			words := []string{"other programs use packet mark bits of Margay", where, "changes bits 0x00001000", "--mark-mask"}
			n.want(1, append(words, "PROBLEM"), "check")
			n.want(0, []string{"no rule of the node uses them"}, "check", "--mark-mask", "0x00700000")
			n.launch()
			n.ready(func() bool {
				out, code := n.cli("show", "problems")
				return code == 0 && strings.Contains(out, where)
			}, "the agent to say that somebody uses its bits")
			n.want(0, words, "show", "problems")
			n.unready("node")
		})
	}
}
