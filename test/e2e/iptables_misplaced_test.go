package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// Somebody has replaced a built-in chain. A cleanup removes everything that is Margay's, also where the chain of others goes to it, and says
// that the chain stays.
func TestCleanupBesideAMisplacedChain(t *testing.T) {
	for what, definition := range map[string]string{"another priority": " { type filter hook forward priority 300; }", "no hook": ""} {
		t.Run(what, func(t *testing.T) {
			c, client, servers := ofNftables(t)
			run := func(input, command string, args ...string) string {
				out, err := c.Node(0).Run(context.Background(), input, command, args...)
				if err != nil {
					t.Fatalf("%s: %v\n%s", command, err, out)
				}
				return out
			}
			a := c.Agent(0)
			a.Kill()
			run("flush chain ip mangle FORWARD\ndelete chain ip mangle FORWARD\nadd chain ip mangle FORWARD"+definition+
				"\nadd rule ip mangle FORWARD counter jump mgyA-FORWARD\nadd rule ip mangle FORWARD counter comment theirs\n", "nft", "-f", "-")
			out := run("", testcluster.Build(t), "cleanup", "--bpffs", a.BPFFS, "--socket", a.Socket)
			if !strings.Contains(out, "not removed") || !strings.Contains(out, "chain FORWARD of IPv4 table mangle") {
				t.Errorf("cleanup says\n%s", out)
			}
			if left := run("", "nft", "list", "ruleset"); strings.Contains(left, "mgy") || !strings.Contains(left, `comment "theirs"`) {
				t.Errorf("there is\n%s", left)
			}
			if left := run("", "ipset", "list", "-n"); strings.Contains(left, "mgy") {
				t.Errorf("there are the sets\n%s", left)
			}
			if got := echo.DialTCP(client.Host, servers[1].Addr4(), soon); got.Outcome != echo.Connected {
				t.Errorf("after the cleanup a connection ends with %v", got)
			}
		})
	}
}
