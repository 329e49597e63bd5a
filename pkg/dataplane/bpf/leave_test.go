package bpf

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/model"
)

// TestFlowsAreLearnedBeforeTheShortcutEnds: when learn is called, programs are in place with which no flow begins that takes the shortcut,
// and those that take it still do. If learn fails, they go on.
func TestFlowsAreLearnedBeforeTheShortcutEnds(t *testing.T) {
	testutil.Privileged(t)
	n := openNode(t, testutil.BPFFS(t), nil)
	n.host.Ifaces = map[string]uint32{"cali1": 1001}
	n.host.Peers[1001] = Peer{Ifindex: 2, MAC: [6]byte{2, 0, 0, 0, 0, 1}, MTU: 1450}
	n.mustApply(t, endpoint4("b", "cali1", "10.0.0.11", nil), model.InSync{})
	n.Prepare()
	config := n.config
	mustClose(t, n.BPF)
	p, err := OpenPredecessor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	peer := func() uint32 {
		e, ok := p.endpoints.Get(1001)
		if !ok {
			t.Fatal("there is no endpoint")
		}
		return e.PeerIfindex
	}
	for _, want := range []error{errors.New("no"), nil} {
		learned := false
		err := p.EndShortcut(func() error {
			if learned = true; p.links == nil || peer() != 2 {
				t.Errorf("programs are replaced: %v; the pod's side is interface %d, want 2", p.links != nil, peer())
			}
			return want
		})
		if !errors.Is(err, want) || !learned || (peer() == 0) != (want == nil) {
			t.Errorf("%v, learned %v, the pod's side is interface %d", err, learned, peer())
		}
	}
}

// TestOwnersBesideAnotherDataplaneNeedNoProgram: an interface without a program has gone, unless an agent may have ended in a switch.
func TestOwnersBesideAnotherDataplaneNeedNoProgram(t *testing.T) {
	testutil.Privileged(t)
	n := openNode(t, testutil.BPFFS(t), nil)
	n.host.Ifaces = map[string]uint32{"cali1": 1001}
	n.mustApply(t, endpoint4("b", "cali1", "10.0.0.11", nil), model.InSync{})
	config := n.config
	mustClose(t, n.BPF)
	p, err := OpenPredecessor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	if owners, err := p.Owners(); owners != nil || err != nil {
		t.Errorf("of an agent that has not programmed all endpoints owners are known: %v, %v", owners, err)
	}
	if err := os.MkdirAll(filepath.Join(p.maps.LinkDir(), "judge-forward-ip4-1"), 0o700); err != nil { // as if it were pinned there
		t.Fatal(err)
	}
	owner := func(want uint32) {
		t.Helper()
		owners, err := p.Owners()
		if got, ok := owners[netip.MustParseAddr("10.0.0.11")]; err != nil || !ok || got != want {
			t.Errorf("the owner is interface %d (known: %v), want %d; %v", got, ok, want, err)
		}
	}
	owner(0)
	if err := p.StepAside(); err != nil {
		t.Fatal(err)
	}
	owner(1001)
}
