package hostile

import (
	"testing"

	"github.com/margay-project/margay/internal/testutil"
)

// While no agent runs, a new pod has no program (D-18), and nothing of it is forwarded or reaches the node. It changes nothing of what the
// node's kernel keeps before that is decided, either: connections and datagrams of others, and it has the node send no errors to them.
func TestANewPodWithoutAnAgentLeavesTheKernelAlone(t *testing.T) {
	s := newScene(t)
	s.followed()
	for _, command := range []string{"iptables-restore", "ip6tables-restore"} { // as kube-proxy does
		if _, err := s.n1.Run(t.Context(), "*filter\n-A FORWARD -m conntrack --ctstate INVALID -j DROP\nCOMMIT\n", command, "--noflush", "--wait"); err != nil {
			t.Fatal(err)
		}
	}
	s.Agent(0).Kill()
	newcomer, err := s.n1.AddPod("evil", "newcomer")
	if err != nil {
		t.Fatal(err)
	}
	s.m = newcomer
	at := []*witness{s.watch(s.b.Host), s.watch(s.c.Host), s.watch(s.ext.Host)}
	families(t, func(t *testing.T, v6 bool) {
		t.Run("TCP", func(t *testing.T) { s.poisonsConnection(t, v6) })
		t.Run("SCTP", func(t *testing.T) { s.poisonsAssociation(t, v6) })
		t.Run("errors", func(t *testing.T) { s.play(t, s.reflections(v6), at...) })
	})
	t.Run("incomplete datagrams", func(t *testing.T) { s.halfDatagrams(t) })
	s.Agent(0).Start()
	s.Declare(newcomer)
	s.AwaitEndpoint(newcomer)
	s.AwaitKnown(newcomer)
	for _, v6 := range []bool{false, true} {
		own := s.from(newcomer, s.ext, v6, testutil.UDP{SrcPort: 1, DstPort: 9})
		s.play(t, []attack{{what: "with an agent", from: newcomer, frames: bearing(newcomer, own), want: true}}, at...)
	}
}
