//go:build linux

package cli

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
)

// An agent whose process is stopped, or that hangs, answers nothing. The kernel enforces and can be read all the same.
func TestBesideASilentAgentTheMapsAnswer(t *testing.T) {
	n := newNode(t)
	n.start()
	n.wantReach(80, true)
	if err := n.agent.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	silent := fmt.Sprintf("the agent (process %d) is silent, since its process is stopped", n.agent.Process.Pid)
	var all sync.WaitGroup
	for _, c := range []struct {
		code  int
		words []string
		args  []string
	}{
		{0, []string{silent, "shop/web", "shop/db", "tcx/ingress,tcx/egress"}, []string{"show", "endpoints"}},
		{0, []string{silent, "NetworkPolicy shop/db ingress[0]"}, []string{"show", "rules", "shop/db"}},
		{0, []string{n.db.Addr4().String() + ":80 (shop/db)"}, []string{"show", "flows"}},
		{1, []string{silent, "policy of 2 endpoints is enforced"}, []string{"show", "status"}},
		{1, []string{"BPF JIT compiler", silent, "it was not checked"}, []string{"check"}},
	} {
		all.Go(func() { n.want(c.code, c.words, c.args...) })
	}
	all.Wait()
	if err := n.agent.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}
