package iptables

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
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
		want := n.saved()
		n.flushAll(t)
		n.tables.Fail(append(make([]error, failing), errors.New("no memory"))...)
		repaired, err := n.state.repair(t.Context(), slog.New(slog.DiscardHandler))
		if err == nil || repaired == 0 {
			t.Errorf("table %d fails: %d repairs, %v", failing, repaired, err)
		}
		for i, table := range n.state.world.tables {
			is := n.tables.Save(iptables.Family(table.family), table.name)
			if same := strings.Contains(want, is); same != (i != failing) {
				t.Errorf("table %d fails: %v is repaired: %v", failing, table, same)
			}
		}
		n.mustApply(t)
		n.Resync()
		if n.mustApply(t); n.saved() != want {
			t.Errorf("in the end there are\n%s\nwant\n%s", n.saved(), want)
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
