package bpfmaps

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/bpf"
)

func end(a string, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(a), port)
}

// opened are flows of an address that are open, on an interface.
func opened(of string, ifindex uint32, n int) (flows []Flow) {
	for i := range n {
		flows = append(flows, NewFlow(end(of, 1000+uint16(i)), end("10.0.0.9", 80), 6, bpf.CtEntry{State: stateOpen, OpenerIf: ifindex}))
	}
	return flows
}

// TestAddedFlowsAreCharged: of each share as many as it may have, before programs use the maps. Of the rest, as many as a share may
// have half-open ones. The maps have 1,024 entries: a share has one flow of either kind, and all together 384 more open ones.
func TestAddedFlowsAreCharged(t *testing.T) {
	m, _ := openMaps(t)
	room := Room{Unused: true, Share: func(ifindex uint32) (uint32, bool) { return ifindex, ifindex == 3 || ifindex == 4 }, Quota: 100}
	add := func(what string, flows []Flow, want int, open3, open4, common uint32) {
		t.Helper()
		adder, err := m.Flows.NewAdder(room)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, f := range flows {
			one, err := adder.Add([]Flow{f})
			if n += one; err != nil {
				t.Fatal(err)
			}
		}
		shares, sharesErr := m.Flows.Shares()
		if err != nil || sharesErr != nil || n != want {
			t.Fatalf("%s: %d added, want %d; %v, %v", what, n, want, err, sharesErr)
		}
		if got := [3]uint32{shares[3].Open, shares[4].Open, shares[bpf.Shares].Open}; got != [3]uint32{open3, open4, common} {
			t.Errorf("%s: charged %v", what, got)
		}
	}
	add("of a share", opened("10.0.0.3", 3, 50), 50, 50, 0, 49)
	add("once more", opened("10.0.0.3", 3, 50), 0, 50, 0, 49)
	add("of no endpoint", opened("10.0.0.5", 5, 3), 0, 50, 0, 49)
	add("beyond the quota", opened("10.0.0.4", 4, 200), 101, 50, 100, 148)
	add("the other way round", []Flow{NewFlow(end("10.0.0.9", 80), end("10.0.0.3", 1000), 6, bpf.CtEntry{State: stateOpen, OpenerIf: 3})}, 0, 50, 100, 148)
	room.Unused = false
	add("while programs count", opened("10.1.0.3", 3, 5), 1, 50, 100, 148)
	open, half := 0, 0
	for f, err := range m.Flows.All() {
		if err != nil {
			t.Fatal(err)
		}
		opener, _ := f.Ends()
		if opener.Port() < 1000 || f.Entry.Place != 0 || f.Entry.State != stateOpen { // those that are not charged, too, have the timeout of open ones
			t.Errorf("%+v", f)
		}
		if f.Open {
			open++
		} else {
			half++
		}
	}
	if open != 150 || half != 2 {
		t.Errorf("%d open, %d half-open", open, half)
	}
}
