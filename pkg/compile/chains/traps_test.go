package chains_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/compile/chains"
)

// accepted reports whether a backend takes rules.
func accepted(t *testing.T, b backend, rules string) bool {
	t.Helper()
	cmd := exec.Command(b.command("-restore"))
	cmd.Stdin = strings.NewReader(rules)
	return cmd.Run() == nil
}

// What kernels refuse, and so what the shape of the chains is about.
func TestKernelsRefuseLoopsAndDeepChains(t *testing.T) {
	testutil.Privileged(t)
	row := func(n int) string {
		var s strings.Builder
		s.WriteString("*mangle\n")
		for i := range n {
			fmt.Fprintf(&s, ":c%d - [0:0]\n", i)
		}
		s.WriteString("-A OUTPUT -j c0\n")
		for i := range n - 1 {
			fmt.Fprintf(&s, "-A c%d -g c%d\n", i, i+1)
		}
		fmt.Fprintf(&s, "-A c%d -j DROP\nCOMMIT\n", n-1)
		return s.String()
	}
	// Back by another way, though a mark says that no packet goes round twice.
	loop := "*mangle\n:a - [0:0]\n:b - [0:0]\n-A OUTPUT -j a\n-A a -j b\n-A b -m mark --mark 0x1/0x1 -j RETURN\n-A b -j MARK --set-xmark 0x1/0x1\n-A b -g a\nCOMMIT\n"
	for _, b := range backends {
		testutil.RequireCommand(t, b.command("-restore"))
		t.Run(b.command(""), func(t *testing.T) {
			testutil.NetNS(t).Enter(t)
			if accepted(t, b, loop) {
				t.Error("a loop is accepted")
			}
			if !accepted(t, b, row(chains.NFTDepth)) {
				t.Errorf("%d chains one after the other are refused", chains.NFTDepth)
			}
			if got := accepted(t, b, row(chains.NFTDepth+1)); got != (b.name == "legacy") {
				t.Errorf("%d chains one after the other are accepted: %v", chains.NFTDepth+1, got)
			}
		})
	}
}

// SET in another table than mangle and REJECT in mangle are refused: that is why mangle judges and filter resets.
func TestKernelsRefuseSetAndRejectElsewhere(t *testing.T) {
	testutil.Privileged(t)
	testutil.RequireCommand(t, "ipset")
	for _, b := range backends {
		t.Run(b.command(""), func(t *testing.T) {
			testutil.NetNS(t).Enter(t)
			run(t, fmt.Sprintf("create s hash:net family %s skbinfo\n", map[uint8]string{4: "inet", 6: "inet6"}[b.family]), "ipset", "restore")
			for table, rules := range map[string][2]string{ // accepted, refused
				"mangle": {"-j SET --map-set s src --map-mark", "-p tcp -j REJECT --reject-with tcp-reset"},
				"filter": {"-p tcp -j REJECT --reject-with tcp-reset", "-j SET --map-set s src --map-mark"},
			} {
				for i, rule := range rules {
					if got := accepted(t, b, fmt.Sprintf("*%s\n-A FORWARD %s\nCOMMIT\n", table, rule)); got != (i == 0) {
						t.Errorf("table %s: %q accepted: %v", table, rule, got)
					}
				}
			}
		})
	}
}

// A program of classic BPF in a rule has 64 instructions at most: that is why the chains' own compare only what they must.
func TestKernelsRefuseLongPrograms(t *testing.T) {
	testutil.Privileged(t)
	const most = 64
	rule := func(instructions int) string {
		return fmt.Sprintf("*mangle\n-A FORWARD -m bpf --bytecode \"%d%s,6 0 0 1\" -j DROP\nCOMMIT\n", instructions, strings.Repeat(",48 0 0 0", instructions-1))
	}
	for _, b := range backends {
		t.Run(b.command(""), func(t *testing.T) {
			testutil.NetNS(t).Enter(t)
			if !accepted(t, b, rule(most)) || accepted(t, b, rule(most+1)) {
				t.Errorf("%d instructions are not what a rule may have", most)
			}
		})
	}
}
