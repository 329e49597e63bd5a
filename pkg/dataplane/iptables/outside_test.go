package iptables

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

// named returns the names of all sets of agents.
func (n *fakeNode) named(t *testing.T) []string {
	t.Helper()
	names, err := n.sets.Names("mgy")
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// wantRefused applies policy and wants nothing changed because of an interface without the prefix.
func (n *fakeNode) wantRefused(t *testing.T, iface string) {
	t.Helper()
	chains, sets := n.saved(), n.named(t)
	for range 2 {
		err := n.apply(narrow.updates()...)
		if err == nil || !strings.Contains(err.Error(), `with another prefix than "eni" enforces policy on interfaces of pods (`+iface+")") {
			t.Errorf("error %v", err)
		}
		if _, err := n.Sweep(); err != nil {
			t.Error(err)
		}
	}
	if now := n.saved(); now != chains {
		t.Errorf("chains were\n%s\nand are\n%s", chains, now)
	}
	if now := n.named(t); !slices.Equal(now, sets) {
		t.Errorf("sets were %v and are %v", sets, now)
	}
}

// An agent with a wrong prefix does not open the pods of one with the right prefix: chains that it wrote would let all of their packets pass.
func TestAnotherPrefixLeavesEnforcedPodsAsTheyAre(t *testing.T) {
	n := newFakeNode(t)
	n.mustApply(t, narrow.updates()...)
	n.prefix = "eni"
	n.present = []string{"calia"}
	n.open(t)
	n.wantRefused(t, "calia")
	n.prefix = ""
	n.open(t)
	if n.mustApply(t, narrow.updates()...); !n.state.world.inForce {
		t.Error("the agent with the right prefix does not go on")
	}
	n.prefix, n.present = "eni", nil // the pods have gone
	n.open(t)
	if n.mustApply(t, narrow.updates()...); !n.state.world.inForce {
		t.Error("pods that have gone keep an agent with another prefix from going on")
	}
}

// What was only closed under a wrong prefix is open under the right one.
func TestAnotherPrefixGoesOnWithoutOpenEndpoints(t *testing.T) {
	n := newFakeNode(t)
	n.prefix = "eni"
	n.open(t)
	n.mustApply(t, model.InSync{})
	n.prefix = ""
	n.present = []string{"calia"}
	n.open(t)
	if n.mustApply(t, narrow.updates()...); !n.state.world.inForce {
		t.Error("the agent does not go on")
	}
}

// The dataplane before this one may be another one.
func TestAnotherPrefixLeavesPodsOfTheFormerDataplaneAsTheyAre(t *testing.T) {
	n := newFakeNode(t)
	n.prefix = "eni"
	n.former = map[netip.Addr]string{netip.MustParseAddr("10.0.0.10"): "calia", netip.MustParseAddr("10.0.0.11"): "calib"}
	n.present = []string{"calia"}
	n.open(t)
	n.wantRefused(t, "calia")
}
