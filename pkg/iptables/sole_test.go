package iptables_test

import (
	"errors"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/iptables"
)

// One agent at a time has a network namespace to itself. Those of other namespaces do not matter.
func TestOneAgentForEachNetworkNamespace(t *testing.T) {
	testutil.Privileged(t)
	testutil.NetNS(t).Enter(t)
	first, err := iptables.Sole()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := iptables.Sole(); !errors.Is(err, iptables.ErrNotSole) {
		t.Errorf("a second one: %v", err)
	}
	reserved := func(want bool) {
		t.Helper()
		if got, err := iptables.Reserved(); err != nil || got != want {
			t.Errorf("reserved: %t, %v, want %t", got, err, want)
		}
	}
	reserved(true)
	testutil.NetNS(t).Do(t, func() {
		reserved(false)
		other, err := iptables.Sole()
		if err != nil {
			t.Fatalf("in another namespace: %v", err)
		}
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	reserved(false)
	again, err := iptables.Sole()
	if err != nil {
		t.Fatalf("after the first has ended: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
