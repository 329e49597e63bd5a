package iptables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/model"
)

// slowTable makes the table of connections one whose readings last until the test lets them end. Each reading is delivered when it begins;
// what is sent for it ends it.
type slowTable struct {
	begun chan struct{}
	end   chan error
	woken chan struct{}
}

func (n *fakeNode) slowTable() slowTable {
	s := slowTable{make(chan struct{}), make(chan error), make(chan struct{}, 100)}
	n.state.endpoints.heirs.patience = 0
	n.state.endpoints.heirs.slow = true
	n.state.endpoints.heirs.wake = func() { s.woken <- struct{}{} }
	n.flows.ending = func() error {
		s.begun <- struct{}{}
		return <-s.end
	}
	return s
}

// begins waits until a reading begins.
func (s slowTable) begins(t *testing.T) {
	t.Helper()
	select {
	case <-s.begun:
	case <-time.After(patience):
		t.Fatal("the table is not read")
	}
}

// wakes waits until Apply is to be called again.
func (s slowTable) wakes(t *testing.T) {
	t.Helper()
	select {
	case <-s.woken:
	case <-time.After(patience):
		t.Fatal("Apply is not called again")
	}
}

// isOpen reports whether packets of an address by an interface pass.
func (n *fakeNode) isOpen(addr, iface string) bool {
	a := netip.MustParseAddr(addr)
	_, ok := n.sets.Lookup(n.state.sets.of[familyOf(a)].own.Spec().Name, ipsets.Key{Prefix: single(a), Interface: iface})
	return ok
}

// An address that an endpoint gets is closed until the connections of its former owners are removed, and no other change waits for that. An
// attempt that fails opens nothing.
func TestAnAddressIsClosedWhileItHasConnectionsOfAnother(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, append(narrow.updates(), endpointAt("former", "cali4", "10.0.7.1", nil))...)
	n.connect("10.0.7.1", "8.8.8.8")
	s, waited := n.slowTable(), false
	n.state.world.unseen.waiting = func(context.Context) error {
		waited = true
		return nil
	}
	n.beside = true
	n.mustApply(t, model.EndpointUpdate{ID: model.WorkloadID("t", "former")}, endpointAt("heir", "cali5", "10.0.7.1", nil))
	s.begins(t)
	if !waited {
		t.Error("the table is read while packets may be under way that have found the former owner")
	}
	if n.isOpen("10.0.7.1", "cali4") || n.isOpen("10.0.7.1", "cali5") {
		t.Error("the address is open while connections of its former owner are removed")
	}
	if got := n.statusOf(t, "heir"); !strings.Contains(got.NotInForce, "former pods") {
		t.Errorf("the status of the heir is %+v", got)
	}
	wide := narrow
	wide.ports = []uint16{8080}
	n.mustApply(t, wide.updates()...)
	if n.state.static.written[4].generation != n.state.static.generation.number || !n.isOpen("10.0.0.10", "calia") {
		t.Error("a policy is not in force while the table is read")
	}
	s.end <- errRefused
	s.wakes(t)
	if err := n.apply(); !errors.Is(err, errRefused) || n.isOpen("10.0.7.1", "cali5") {
		t.Errorf("after a failure: %v, open: %t", err, n.isOpen("10.0.7.1", "cali5"))
	}
	n.state.endpoints.heirs.rests = time.Time{}
	n.mustApply(t)
	s.begins(t)
	s.end <- nil
	n.state.endpoints.heirs.wait()
	n.mustApply(t)
	if !n.isOpen("10.0.7.1", "cali5") {
		t.Error("the address stays closed")
	}
	n.flows.ending = nil
	n.wantGone(t, "removed", []string{"10.0.7.1", "8.8.8.8"}, "10.0.7.1")
}

// However many pods come and go while the table is read, it is read once more for all of them: a pod waits for the rest of the reading under
// way, for a rest of the same length, and for its own, whatever others do meanwhile.
func TestTheTableIsReadForAllThatHaveComeMeanwhile(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	s := n.slowTable()
	n.beside = true
	flaps := 0
	flap := func() {
		t.Helper()
		addr := fmt.Sprintf("10.0.8.%d", flaps%250+1)
		n.mustApply(t, endpointAt("flaps", "cali6", addr, nil))
		flaps++
	}
	flap()
	s.begins(t)
	const many = 500
	for i := range many {
		n.mustApply(t, endpointAt(fmt.Sprint("job", i), fmt.Sprint("calij", i), fmt.Sprintf("10.1.%d.%d", i/250, i%250+1), nil))
		if i%10 == 0 {
			flap()
		}
	}
	open := func() (count int) {
		for i := range many {
			if n.isOpen(fmt.Sprintf("10.1.%d.%d", i/250, i%250+1), fmt.Sprint("calij", i)) {
				count++
			}
		}
		return count
	}
	s.end <- nil
	s.wakes(t)
	n.mustApply(t)
	rest := time.Until(n.state.endpoints.heirs.rests)
	if took := time.Since(n.state.endpoints.heirs.began); rest > took {
		t.Errorf("after a reading of at most %v the next one rests for %v", took, rest)
	}
	for range 10 {
		flap()
	}
	if got := open(); got != 0 {
		t.Errorf("%d pods are open before their connections are removed", got)
	}
	for n.state.endpoints.heirs.ends == nil {
		s.wakes(t) // the rest is over
		flap()
	}
	s.begins(t)
	flap()
	s.end <- nil
	n.state.endpoints.heirs.wait()
	n.mustApply(t)
	if got := open(); got != many {
		t.Errorf("after one reading more %d of %d pods are open", got, many)
	}
}

// A staged policy changes no address, so its endpoint keeps its connections.
func TestAStagedPolicyEndsNoConnections(t *testing.T) {
	for _, keep := range []bool{false, true} {
		n := newFakeNode(t)
		n.keep = keep
		n.open(t)
		n.mustApply(t, narrow.updates()...)
		all := []string{"10.0.0.10", "10.0.2.1"}
		n.connect(all...)
		n.mustApply(t, policyOn("a", true, 80))
		n.wantGone(t, fmt.Sprintf("staged, kept: %t", keep), all)
		n.mustApply(t, policyOn("a", true, 81))
		n.wantGone(t, "changed", all)
	}
}

// An endpoint that gets another interface is another pod with the same addresses.
func TestAnotherInterfaceHasNoConnections(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, append(narrow.updates(), endpointAt("db", "cali4", "10.0.7.1", nil))...)
	all := []string{"10.0.7.1", "8.8.8.8"}
	n.connect(all...)
	n.mustApply(t, endpointAt("db", "cali4", "10.0.7.1", map[string]string{"role": "x"}))
	n.wantGone(t, "other labels", all)
	n.mustApply(t, endpointAt("db", "cali5", "10.0.7.1", nil))
	n.wantGone(t, "another interface", all, "10.0.7.1")
}

// An agent that starts removes the connections of addresses that have another endpoint than in the chains in force, or had none: before packets
// go to its own, and once more after. Also those that its predecessor had not removed yet. Those of others stay.
func TestARestartRemovesConnectionsOfFormerOwners(t *testing.T) {
	n := newFakeNode(t)
	all := []string{"10.0.0.10", "10.0.7.1", "10.0.7.2", "10.0.7.3", "8.8.8.8"}
	n.connect(all...)
	n.mustApply(t, append(narrow.updates(), endpointAt("former", "cali4", "10.0.7.1", nil))...)
	n.wantGone(t, "where nothing was in force", all)
	s := n.slowTable()
	n.beside = true
	n.mustApply(t, endpointAt("late", "cali6", "10.0.7.2", nil))
	s.begins(t) // and the agent is killed
	s.end <- errRefused
	n.state.endpoints.heirs.wait()
	former, _ := n.worlds(t)
	n.beside = false
	n.open(t)
	var ends []string
	n.flows.ending = func() error {
		inForce, _ := n.worlds(t)
		if world := strings.Join(inForce, " "); !slices.Contains(ends, world) {
			ends = append(ends, world)
			n.connect(all...) // the former owners have begun connections again until now
		}
		return nil
	}
	updates := append(narrow.updates(), endpointAt("heir", "cali5", "10.0.7.1", nil), endpointAt("late", "cali6", "10.0.7.2", nil))
	n.mustApply(t, updates...)
	n.wantGone(t, "after a change while no agent ran", all, "10.0.7.1", "10.0.7.2")
	if now, _ := n.worlds(t); !slices.Equal(ends, []string{former[0], now[0]}) {
		t.Errorf("connections end while packets go to %v, want %v and then %v", ends, former, now)
	}
	n.flows.ending = func() error { t.Error("connections are searched although nothing has changed"); return nil }
	n.open(t)
	n.mustApply(t, updates...)
	n.mustApply(t)
}

// An agent that comes after another dataplane removes the connections of addresses that have another endpoint than there: before packets go to its
// chains, and once more after. That also holds if an agent was killed in a switch, and chains are in force, too.
func TestASwitchRemovesConnectionsOfFormerOwners(t *testing.T) {
	for name, chains := range map[string]bool{"of the other dataplane": false, "of either one": true} {
		t.Run(name, func(t *testing.T) {
			n := newFakeNode(t)
			if chains {
				n.mustApply(t, append(narrow.updates(), endpointAt("former", "cali5", "10.0.7.1", nil))...)
			}
			all := []string{"10.0.0.10", "10.0.7.1", "10.0.7.2", "8.8.8.8"}
			n.connect(all...)
			n.former = map[netip.Addr]string{netip.MustParseAddr("10.0.0.10"): "calia", netip.MustParseAddr("10.0.7.1"): "cali4",
				netip.MustParseAddr("10.0.7.2"): "cali9"}
			n.open(t)
			times := 0
			n.flows.ending = func() error {
				if times++; times <= 2 {
					n.connect(all...)
				}
				return nil
			}
			n.mustApply(t, append(narrow.updates(), endpointAt("heir", "cali5", "10.0.7.1", nil))...)
			n.wantGone(t, "after a pod was replaced while no agent ran", all, "10.0.7.1", "10.0.7.2")
			n.flows.ending = func() error { t.Error("connections are searched once more"); return nil }
			n.mustApply(t)
		})
	}
}
