package iptables

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/model"
)

// says reports whether the log has a line with all of the words, and empties it.
func says(log *bytes.Buffer, words ...string) bool {
	defer log.Reset()
	for line := range strings.Lines(log.String()) {
		all := true
		for _, word := range words {
			all = all && strings.Contains(line, word)
		}
		if all {
			return true
		}
	}
	return false
}

// Only what has been written is reported and counted as repaired. What could not be written is reported once, with the reason.
func TestARepairIsReportedOnceItIsWritten(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	n.Resync() // so that the chains are known
	n.mustApply(t)
	var log bytes.Buffer
	n.log = slog.New(slog.NewTextHandler(&log, nil))
	const repaired, waits = "somebody else, repaired", "not repaired yet"

	if err := n.tables.Load(iptables.V4, "*mangle\n-F mgyA-deny\nCOMMIT\n"); err != nil {
		t.Fatal(err)
	}
	n.Resync()
	n.tables.Lock(true)
	err := n.apply()
	if _, locked := errors.AsType[*iptables.LockedError](err); !locked || n.repairs != 0 || strings.Contains(log.String(), repaired) || !says(&log, waits, "mgyA-deny", "lock") {
		t.Errorf("a repair that waits for the lock: %v, %d repairs, and the log has %s", err, n.repairs, &log)
	}
	if err := n.apply(); err == nil || n.repairs != 0 || log.Len() > 0 {
		t.Errorf("a repair that waits longer: %v, %d repairs, and the log has %s", err, n.repairs, &log)
	}
	n.tables.Lock(false)
	n.mustApply(t)
	if n.repairs != 1 || !says(&log, repaired, "mgyA-deny") {
		t.Errorf("afterwards there are %d repairs, and the log has %s", n.repairs, &log)
	}

	all, err := ipsets.ListAll(n.sets, n.state.sets.of[4].own.Spec())
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	refused := errors.New("no memory")
	gone := ipsets.Change{Entry: all[0], Remove: true}
	if _, err := n.sets.Write(n.state.sets.of[4].own.Spec(), []ipsets.Change{gone}); err != nil {
		t.Fatal(err)
	}
	n.sets.Refuse = func(string, ipsets.Change) error { return refused }
	n.Resync()
	if err := n.apply(); !errors.Is(err, refused) || n.repairs != 1 || strings.Contains(log.String(), repaired) || !says(&log, waits, "mgyA4-own", "no memory") {
		t.Errorf("a repair of a set that fails: %v, %d repairs, and the log has %s", err, n.repairs, &log)
	}
	n.sets.Refuse = nil
	n.mustApply(t)
	if n.repairs != 2 || !says(&log, repaired, "mgyA4-own") {
		t.Errorf("afterwards there are %d repairs, and the log has %s", n.repairs, &log)
	}
}

// A table that cannot be written stops the repair of no other one, and no packet is judged by what depends on it.
func TestATableThatFailsStopsNoOtherRepair(t *testing.T) {
	for failing := range 4 {
		n := newFakeNode(t)
		n.mustApply(t, narrow.updates()...)
		n.Resync() // so that the chains are known
		n.mustApply(t)
		saved := func(t *tableOf) string { return normal(n.tables.Save(iptables.Family(t.family), t.name)) }
		want := map[*tableOf]string{}
		for _, table := range n.state.world.tables {
			want[table] = saved(table)
		}
		n.flushAll(t)
		n.tables.Fail(append(make([]error, failing), errors.New("no memory"))...)
		repaired, err := n.state.repair(t.Context(), slog.New(slog.DiscardHandler))
		if err == nil || repaired == 0 {
			t.Errorf("table %d fails: %d repairs, %v", failing, repaired, err)
		}
		for i, table := range n.state.world.tables {
			if same := saved(table) == want[table]; same != (i != failing) {
				t.Errorf("table %d fails: %v is repaired: %v", failing, table, same)
			}
		}
		n.mustApply(t)
		n.Resync()
		n.mustApply(t)
		for table, text := range want {
			if saved(table) != text {
				t.Errorf("in the end %v is\n%s\nwant\n%s", table, saved(table), text)
			}
		}
	}
}

// If the chains of new policies cannot be written, no endpoint is bound to them, although other tables are written.
func TestNoEndpointIsBoundToChainsThatAreNotWritten(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	next := endpointAt("new", "cali7", "10.0.7.1", map[string]string{"app": "a"})
	n.tables.Fail(errors.New("no memory"))
	err := n.apply(append(wide.updates(), next)...)
	for _, set := range []string{"mgyA4-own", "mgyA4-in"} {
		if err == nil || n.has(set, ipsets.Key{Prefix: single(next.Endpoint.Addrs[0]), Interface: "cali7"}) {
			t.Errorf("the chains are not written, %v, and %s has the new endpoint", err, set)
		}
	}
	if n.mustApply(t); !n.has("mgyA4-own", ipsets.Key{Prefix: single(next.Endpoint.Addrs[0]), Interface: "cali7"}) {
		t.Error("the new endpoint is closed once they are written")
	}
}

// Chains and sets that others have altered may have allowed flows that policy denies: live flows are judged again with what is written in their
// place, and not before. An alteration that waits for a transaction counts once.
func TestFlowsAreJudgedAgainAfterARepair(t *testing.T) {
	for what, damage := range map[string]func(n *fakeNode) error{
		"a chain": func(n *fakeNode) error {
			return n.tables.Load(iptables.V4, "*mangle\n-I mgyA-deny -j ACCEPT\nCOMMIT\n")
		},
		"an entry": func(n *fakeNode) error {
			spec := n.state.sets.of[4].own.Spec()
			_, err := n.sets.Write(spec, []ipsets.Change{{Entry: ipsets.Entry{Key: keys(n.state.endpoints.bound[model.WorkloadID("t", "a")].policy)[0]}, Remove: true}})
			return err
		},
	} {
		n := newFakeNode(t)
		n.mustApply(t, narrow.updates()...)
		n.Resync() // so that the chains are known
		n.mustApply(t)
		first := n.state.static.generation.number
		n.Resync()
		if n.mustApply(t); n.state.static.generation.number != first {
			t.Errorf("%s: without an alteration the generation is %d after %d", what, n.state.static.generation.number, first)
		}
		if err := damage(n); err != nil {
			t.Fatal(err)
		}
		n.tables.Lock(true)
		n.Resync()
		for range 2 {
			if n.apply() == nil {
				t.Errorf("%s: the repair does not wait for the lock", what)
			}
		}
		n.tables.Lock(false)
		n.mustApply(t)
		if got := n.state.static.generation.number; got != first+1 {
			t.Errorf("%s: after the repair the generation is %d, want %d", what, got, first+1)
		}
		if is := n.contents(t); !strings.Contains(is, fmt.Sprintf("--set-xmark %#x/0xbfff0000", 1<<31|(first+1)<<16)) {
			t.Errorf("%s: the chains do not write generation %d:\n%s", what, first+1, is)
		}
	}
}
