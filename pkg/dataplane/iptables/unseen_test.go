package iptables

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/model"
)

// recorded applies updates and returns what was written in what order: "chains", "wait", and the names of sets without the world.
// awaited says whether transactions wait for packets themselves.
func (n *fakeNode) recorded(t *testing.T, awaited bool, updates ...model.Update) string {
	t.Helper()
	var list []string
	known := len(n.tables.Transactions())
	note := func(what string) {
		if now := len(n.tables.Transactions()); now > known {
			known, list = now, append(list, "chains")
		}
		if what != "" && (len(list) == 0 || list[len(list)-1] != what) {
			list = append(list, what)
		}
	}
	n.state.world.unseen.awaited = awaited
	n.state.world.unseen.waiting = func(context.Context) error { note("wait"); return nil }
	n.sets.Refuse = func(set string, c ipsets.Change) error { note(strings.TrimLeft(set, "mgyAB46-")); return nil }
	defer func() { n.sets.Refuse = nil }()
	n.mustApply(t, updates...)
	note("")
	return strings.Join(list, " ")
}

// A pod that comes, with a policy and a class that others have, waits for no packet: none of its own is judged before it is open.
func TestANewPodWaitsForNoPacket(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	for i := range 2 {
		got := n.recorded(t, true, endpointAt(fmt.Sprint("b", i), fmt.Sprint("cali5", i), fmt.Sprintf("10.0.3.%d", i+1), map[string]string{"app": "a"}))
		if strings.Contains(got, "wait") || !strings.HasSuffix(got, "chains own") {
			t.Errorf("pod %d: %s", i, got)
		}
	}
}

// Addresses get a class that packets in the former chains do not know, only after these have left; endpoints that were open get
// chains that do not know the former classes only after packets have left that may have found one.
func TestPacketsLeaveBeforeWhatTheyDoNotKnow(t *testing.T) {
	for _, awaited := range []bool{false, true} {
		n := newFakeNode(t)
		n.mustApply(t, narrow.updates()...)
		got := n.recorded(t, awaited, wide.updates()...)
		classes, bound := strings.Index(got, " class"), strings.Index(got, " in")
		switch {
		case classes < 0 || bound < classes || !strings.Contains(got[classes:bound], "wait"):
			t.Errorf("awaited %v: endpoints are bound while packets may have former classes: %s", awaited, got)
		case !awaited && !strings.Contains(got[:classes], "chains wait"):
			t.Errorf("addresses get classes that packets in former chains do not know: %s", got)
		case awaited && strings.Contains(got[:classes], "wait"):
			t.Errorf("a wait for chains that no packet is in any more: %s", got)
		}
	}
}

// Of nftables a packet may find the chains before a transaction, not those before two: between two there is a wait, after an Apply
// at the latest.
func TestTwoTransactionsHaveAWaitBetweenThem(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	n.Prepare()
	next := narrow
	for i := range 3 {
		next.ports = []uint16{uint16(100 + i)}
		got := n.recorded(t, false, next.updates()...)
		if want := "chains"; i == 0 && got != want {
			t.Errorf("%s, want %s", got, want)
		} else if want := "wait chains"; i > 0 && got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
