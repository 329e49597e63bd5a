package iptables_test

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/nfnl"
)

// putToSleep makes a table dormant, which its rules do not show.
func putToSleep(t *testing.T, k kernel, table string) {
	t.Helper()
	tableFlags(t, k, table, "{ flags dormant; }")
	if !asleep(t, k, table) {
		t.Fatal("the table is not dormant")
	}
}

func tableFlags(t *testing.T, k kernel, table, flags string) {
	t.Helper()
	family := map[iptables.Family]string{iptables.V4: "ip", iptables.V6: "ip6"}[k.family]
	if out, err := exec.Command("nft", "add", "table", family, table, flags).CombinedOutput(); err != nil {
		t.Fatalf("nft add table: %v: %s", err, out)
	}
}

func asleep(t *testing.T, k kernel, table string) bool {
	t.Helper()
	family := map[iptables.Family]string{iptables.V4: "ip", iptables.V6: "ip6"}[k.family]
	out, err := exec.Command("nft", "list", "table", family, table).CombinedOutput()
	if err != nil && !strings.Contains(string(out), "flags") {
		t.Fatalf("nft list table: %v: %s", err, out)
	}
	return strings.Contains(string(out), "flags dormant")
}

func dormantKernels(t *testing.T, test func(t *testing.T, k kernel)) {
	realKernels(t, func(t *testing.T, k kernel) {
		if k.tools.Backend != iptables.NFT {
			t.Skip("tables of iptables-legacy cannot be dormant")
		}
		testutil.RequireCommand(t, "nft")
		test(t, k)
	})
}

// A dormant table is a finding of Check and of a verification, and the next Apply makes it active. That is no alteration by others.
func TestADormantTableIsFoundAndMadeActive(t *testing.T) {
	dormantKernels(t, func(t *testing.T, k kernel) {
		table := example(t, k)
		before := own(t, table)
		for range 2 {
			table.Observe(func() bool { return true })
			putToSleep(t, k, "mangle")
			waitTouched(t, table)
			read, err := iptables.ReadAll(t.Context(), table, func() error { return nil })
			if err != nil {
				t.Fatal(err)
			}
			if found, _ := read.Altered(table); len(found) != 1 || !strings.Contains(found[0].String(), "dormant") {
				t.Errorf("a verification finds %v", found)
			}
			if found := findings(t, table); len(found) != 1 || !strings.HasPrefix(found[0].String(), "the table is dormant") {
				t.Errorf("Check finds %v", found)
			}
			apply(t, table)
			if asleep(t, k, "mangle") {
				t.Fatal("the table is dormant after Apply")
			}
			if touched, err := table.Touched(); touched || err != nil {
				t.Errorf("right after it was made active: touched %v, %v", touched, err)
			}
			if found := findings(t, table); len(found) > 0 {
				t.Errorf("Check after the repair: %v", found)
			}
		}
		if after := own(t, table); !slices.Equal(after, before) {
			t.Errorf("after the repair:\n%s\nbefore:\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
		}
	})
}

// The first Apply of an agent makes a table active that was dormant before, and other tables stay as they are.
func TestTheFirstApplyMakesADormantTableActive(t *testing.T) {
	dormantKernels(t, func(t *testing.T, k kernel) {
		example(t, k)
		putToSleep(t, k, "mangle")
		k.load(t, "nat", ":other - [0:0]")
		putToSleep(t, k, "nat")
		apply(t, unwritten(t, k))
		if asleep(t, k, "mangle") || !asleep(t, k, "nat") {
			t.Errorf("dormant: mangle %v, nat %v; want the latter only", asleep(t, k, "mangle"), asleep(t, k, "nat"))
		}
	})
}

// A table that has nothing of ours, and is to have nothing, stays as others have made it.
func TestADormantTableWithoutOurChainsStaysDormant(t *testing.T) {
	dormantKernels(t, func(t *testing.T, k kernel) {
		k.load(t, "mangle", ":other - [0:0]")
		putToSleep(t, k, "mangle")
		apply(t, k.table("mangle"))
		if !asleep(t, k, "mangle") {
			t.Error("the table is active")
		}
	})
}

// A transaction that the kernel refuses has no effect, not even that of its other requests, and its error is the kernel's.
func TestATransactionOfRequestsIsRefusedAsAWhole(t *testing.T) {
	dormantKernels(t, func(t *testing.T, k kernel) {
		example(t, k)
		conn, err := nfnl.Open()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		})
		request := func(table string, flags uint32) nfnl.Request {
			var a nfnl.Encoder
			a.String(1, table)
			a.Uint32(2, flags)
			return nfnl.Request{Subsystem: 10, Command: 0, Family: map[iptables.Family]uint8{iptables.V4: 2, iptables.V6: 10}[k.family], Attributes: a.Bytes()}
		}
		const dormant, unknown = 1, 1 << 31
		for range 2 { // answers to the first one are not those to the second
			if err := conn.Transaction(request("mangle", dormant), request("mangle", unknown)); !errors.Is(err, syscall.EOPNOTSUPP) {
				t.Errorf("a transaction with unknown flags: %v", err)
			}
			if asleep(t, k, "mangle") {
				t.Error("a part of a refused transaction is in force")
			}
		}
		if err := conn.Transaction(request("mangle", 0), request("mangle", dormant)); err != nil || !asleep(t, k, "mangle") {
			t.Errorf("a transaction of two requests: %v, or not in force", err)
		}
	})
}
