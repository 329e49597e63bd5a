package iptables

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/iptables"
)

// nudged counts what the dataplane asks of the loop.
type nudged struct {
	quietNode
	count int
}

func (n *nudged) Nudge(time.Duration) { n.count++ }

// searches reports whether packets of pods are searched for source routes before any other rule.
func (n *fakeNode) searches(t *testing.T) bool {
	t.Helper()
	rules := 0
	found := false
	for line := range strings.Lines(n.tables.Save(iptables.V4, "mangle")) {
		if !strings.Contains(line, "-A PREROUTING ") {
			continue
		}
		if rules++; strings.Contains(line, "--bytecode") {
			if found = true; rules != 1 {
				t.Errorf("rule %d of PREROUTING is %q, want it to be the first", rules, line)
			}
		}
	}
	if want := map[bool]int{false: 0, true: 1}[found]; rules != want {
		t.Errorf("PREROUTING has %d rules, want %d", rules, want)
	}
	return found
}

// A kernel that follows no source routes drops packets with one, so only packets of other nodes are searched. The setting may change at
// any time, and a write may fail.
func TestPacketsAreSearchedForRoutesWhereTheKernelFollowsThem(t *testing.T) {
	n := allowedNode(t).fakeNode
	node, follows := &nudged{}, true
	n.kernel.Node, n.kernel.SourceRoutes = node, func() bool { return follows }
	n.mustApply(t)
	if !n.searches(t) {
		t.Fatal("packets are not searched although the kernel follows routes")
	}
	look := func(want int) {
		t.Helper()
		n.resync = true // what a look finds in the tables asks for no pass then
		before := node.count
		if _, err := n.Sweep(); err != nil {
			t.Fatal(err)
		}
		if got := node.count - before; got != want {
			t.Errorf("a look asks for %d passes, want %d", got, want)
		}
	}
	look(0)
	for _, follows = range []bool{false, true, false} {
		look(1)
		n.tables.Fail(errors.New("the table cannot be written"))
		if err := n.apply(); err == nil {
			t.Error("a write that failed is not reported")
		}
		look(1)
		n.mustApply(t)
		if n.searches(t) != follows {
			t.Errorf("packets are searched: %v; the kernel follows routes: %v", !follows, follows)
		}
		look(0)
		commits := len(n.tables.Transactions())
		n.mustApply(t)
		if len(n.tables.Transactions()) != commits {
			t.Error("the chains were written once more")
		}
	}
	follows = !follows
	n.locked = true
	n.tables.Lock(true)
	look(0) // each pass would wait for the lock
	n.tables.Lock(false)
	look(1) // the lock is free
	look(1) // for the setting
	follows = !follows
	n.open(t) // another agent, whose world comes beside this one
	n.kernel.SourceRoutes = func() bool { return follows }
	n.mustApply(t)
	if n.searches(t) {
		t.Error("an agent that starts has packets searched although the kernel follows no routes")
	}
}
