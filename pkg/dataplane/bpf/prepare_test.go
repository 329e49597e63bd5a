package bpf

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/attach"
)

// prepare does what a loop does as long as it is woken, and returns how often that was.
func (n *node) prepare(t *testing.T) (woken int) {
	t.Helper()
	for {
		n.Prepare()
		select {
		case <-n.Wake():
			woken++
			n.mustApply(t)
		default:
			return woken
		}
	}
}

func (n *node) wantAttached(t *testing.T, what string, want ...uint32) {
	t.Helper()
	if got := slices.Sorted(maps.Keys(n.host.Attached)); !slices.Equal(got, want) {
		t.Errorf("%s: programs on interfaces %v, want %v", what, got, want)
	}
}

func TestInterfacesGetProgramsBeforeTheyAreAnEndpoints(t *testing.T) {
	n := startNode(t, stage{})
	n.host.Ifaces = map[string]uint32{"calia": 1000, "cali1": 1001, "cali2": 1002}
	n.mustApply(t)
	n.wantAttached(t, "before there is time", 1000)
	if woken := n.prepare(t); woken != 2 {
		t.Errorf("the loop was woken %d times, want once for each interface", woken)
	}
	n.wantAttached(t, "then", 1000, 1001, 1002)
	if got := len(n.kernel.endpoints.List()); got != 1 {
		t.Errorf("%d endpoints are in the kernel, want 1", got)
	}

	n.mustApply(t, endpoint4("b", "cali1", "10.0.0.11", nil))
	if e, ok := n.kernel.endpoints.Get(1001); !ok || e.Addr4 != [4]byte{10, 0, 0, 11} {
		t.Errorf("the endpoint of interface 1001 is not in the kernel: %+v", e)
	}
	delete(n.host.Ifaces, "cali2")
	n.mustApply(t)
	n.wantAttached(t, "without an interface that came to nothing", 1000, 1001)
	n.prepare(t)
	n.wantAttached(t, "in the end", 1000, 1001)
}

// The pod's object is gone and its processes run on: without programs its ARP would be unlimited.
func TestAnInterfaceThatHasLostItsEndpointKeepsItsPrograms(t *testing.T) {
	n := startNode(t, stage{})
	n.host.Ifaces = map[string]uint32{"calia": 1000, "cali1": 1001}
	b := endpoint4("b", "cali1", "10.0.0.11", nil)
	n.mustApply(t, b)
	b.Endpoint = nil
	n.mustApply(t, b)
	n.wantAttached(t, "without its endpoint", 1000, 1001)
	if _, ok := n.kernel.endpoints.Get(1001); ok {
		t.Error("the endpoint is in the kernel still")
	}
	n.host.News = []uint32{1001} // it is set down
	n.mustApply(t)
	n.prepare(t)
	n.wantAttached(t, "set down", 1000, 1001)
	delete(n.host.Ifaces, "cali1")
	n.mustApply(t)
	n.wantAttached(t, "gone", 1000)
}

func TestTheInterfaceOfAClosedEndpointHasPrograms(t *testing.T) {
	testutil.Privileged(t)
	n := openNode(t, testutil.BPFFS(t), smallMaps)
	defer mustClose(t, n.BPF)
	n.host.Ifaces = map[string]uint32{"calia": 1000, "cali1": 1001, "cali2": 1002}
	n.graph.Apply(tenant(300)) // the policy is over a limit, so its endpoint on cali2 is closed
	b := endpoint4("b", "cali1", "10.0.0.11", nil)
	held(t, n.apply(append(stage{}.updates(), b)...), "evil/m")
	n.Prepare()
	n.wantAttached(t, "closed from the beginning", 1000, 1001, 1002)

	s := n.state
	if err := s.endpoints.shut(s.endpoints.roster.bound[b.ID], errors.New("its table is lost")); err != nil {
		t.Fatal(err)
	}
	if err := s.interfaces.detach(); err != nil {
		t.Fatal(err)
	}
	n.wantAttached(t, "closed later", 1000, 1001, 1002)
}

func TestAPreparedInterfaceThatMayBeAnotherGetsProgramsAgain(t *testing.T) {
	n := startNode(t, stage{})
	n.host.Ifaces = map[string]uint32{"calia": 1000, "cali1": 1001}
	n.mustApply(t)
	n.prepare(t)
	delete(n.host.Attached, 1001)
	n.host.News = []uint32{1001}
	n.mustApply(t)
	n.prepare(t)
	n.wantAttached(t, "after it came again", 1000, 1001)
}

func TestNothingIsAttachedAheadWhileTheGuardIsNotThere(t *testing.T) {
	n := startNode(t, stage{})
	n.host.Ifaces = map[string]uint32{"calia": 1000, "cali1": 1001}
	n.host.Fail[0] = attach.ErrGone
	n.Resync()
	if err := n.apply(); err == nil {
		t.Fatal("the guard did not fail")
	}
	n.Prepare()
	n.wantAttached(t, "without the guard", 1000)
}

func TestAnEndpointIsProgrammedBeforeItsPeerIsKnown(t *testing.T) {
	n := startNode(t, stage{})
	n.host.Ifaces = map[string]uint32{"calia": 1000, "cali1": 1001}
	n.host.Peers[1001] = Peer{Ifindex: 2, MAC: [6]byte{2, 0, 0, 0, 0, 1}, MTU: 1450}
	n.mustApply(t, endpoint4("b", "cali1", "10.0.0.11", nil))
	if e, ok := n.kernel.endpoints.Get(1001); !ok || e.PeerIfindex != 0 {
		t.Errorf("endpoint in the kernel: %v, its peer is interface %d, want none yet", ok, e.PeerIfindex)
	}
	n.Prepare()
	if e, _ := n.kernel.endpoints.Get(1001); e.PeerIfindex != 2 || e.Mtu != 1450 || e.Mac != n.host.Peers[1001].MAC {
		t.Errorf("the kernel does not know the peer: %+v", e)
	}
	n.host.News = []uint32{1001}
	n.mustApply(t)
	if e, _ := n.kernel.endpoints.Get(1001); e.PeerIfindex != 2 {
		t.Error("the peer of an endpoint in force is forgotten for a moment")
	}
}
