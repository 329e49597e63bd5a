package iptables

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/model"
)

// Chains of ours have been restored into the other backend, whose commands are not there: that is an error which says what to do, policy goes
// on to change, and the copy is removed once there are commands.
func TestACopyInABackendWithoutCommandsIsReported(t *testing.T) {
	n := newRealNode(t, iptables.Legacy)
	installed := n.kernel.Others
	n.kernel.Others = func(context.Context) []*iptables.Tools { return []*iptables.Tools{n.kernel.Tools} }
	n.start()
	n.apply(-1)
	run := func(input, command string, args ...string) string {
		t.Helper()
		out, err := n.Run(t.Context(), input, command, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, table := range tableNames {
		run(run("", "iptables-legacy-save", "-t", table), "iptables-nft-restore", "--noflush")
	}
	copied := func() bool { return strings.Contains(run("", "iptables-nft-save"), ":mgy") }
	compare := func() (err error) {
		n.do(func() error {
			n.agent.Resync()
			err = n.agent.Apply(context.Background(), n.graph.Flush())
			return nil
		})
		return err
	}
	for range 2 {
		n.next()
		err := compare()
		if err == nil || !strings.Contains(err.Error(), copiedText(iptables.NFT)) || !strings.Contains(err.Error(), errNotRemoved.Error()) {
			t.Errorf("error %v, want one that says what to do about the copy", err)
		}
		port := strconv.Itoa(1000 + n.rounds)
		if saved := run("", "iptables-legacy-save", "-t", "mangle"); !strings.Contains(saved, port) {
			t.Errorf("round %d: no rule has port %s", n.rounds, port)
		}
	}
	if !copied() {
		t.Fatal("the copy has gone")
	}
	n.agent.kernel.Others = installed
	if err := compare(); err != nil {
		t.Error(err)
	}
	if copied() {
		t.Error("there is the copy still")
	}
	n.do(func() error { return n.agent.Apply(context.Background(), model.Changes{InSync: true}) })
	n.kernel.Others = installed
	n.check("without the copy")
}
