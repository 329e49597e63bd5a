package hostile

import (
	"testing"

	"github.com/margay-project/margay/internal/testutil"
)

// While no agent runs, the number of an interface that has gone may come back with that of a new pod (D-18). What the maps still say about
// the number is the former pod's: nothing gets to the new one until an agent has attached its programs.
func TestANewPodWithAFormerNumberIsClosed(t *testing.T) {
	s := newScene(t)
	s.Agent(0).Kill()
	s.Remove("pod-a")
	heir, err := s.n1.ReplacePod(s.a, "shop", "heir")
	if err != nil {
		t.Fatal(err)
	}
	if heir.IfIndex() != s.a.IfIndex() {
		t.Fatalf("its interface has number %d, want %d of the pod that has gone", heir.IfIndex(), s.a.IfIndex())
	}
	at := s.watch(heir.Host)
	to := func(v6 bool, l4 testutil.Layer4) (attacks []attack) {
		return []attack{
			{what: "from its node", from: s.b, frames: bearing(s.b, s.from(s.b, heir, v6, l4))},
			{what: "from another node", from: s.c, frames: bearing(s.c, s.from(s.c, heir, v6, l4))},
		}
	}
	for i, l4 := range []testutil.Layer4{testutil.UDP{SrcPort: 1000, DstPort: 53}, testutil.TCP{SrcPort: 1000, DstPort: 80, Flags: testutil.SYN}} {
		for _, v6 := range []bool{false, true} {
			s.play(t, to(v6, l4), at)
			if t.Failed() {
				t.Fatalf("transport %d, IPv6: %v", i, v6)
			}
		}
	}
	s.Agent(0).Start()
	s.Declare(heir)
	s.AwaitEndpoint(heir)
	s.AwaitKnown(heir)
	for _, v6 := range []bool{false, true} {
		attacks := to(v6, testutil.UDP{SrcPort: 1001, DstPort: 53})
		for i := range attacks {
			attacks[i].want = true
		}
		s.play(t, attacks, at)
	}
}
