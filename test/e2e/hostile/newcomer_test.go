package hostile

import (
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf/link"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
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

// An agent that has run for ten minutes has guard suspended (pkg/dataplane/bpf). One that ends attaches it.
func TestAnAgentThatEndsLeavesTheKernelAloneOfNewPods(t *testing.T) {
	testcluster.NeedsBPF(t, "the chains of iptables are always there")
	s := newScene(t)
	a := s.Agent(0)
	pins, err := filepath.Glob(filepath.Join(bpfmaps.InstanceDir(a.BPFFS, ""), "*", bpfmaps.LinksName, "guard-pre_routing-*"))
	if err != nil || len(pins) != 2 {
		t.Fatalf("pins of guard: %v (%v), want two", pins, err)
	}
	for _, pin := range pins {
		detach(t, pin)
	}
	a.Terminate()
	newcomer, err := s.n1.AddPod("evil", "newcomer")
	if err != nil {
		t.Fatal(err)
	}
	s.m = newcomer
	at := []*witness{s.watch(s.b.Host), s.watch(s.c.Host), s.watch(s.ext.Host)}
	families(t, func(t *testing.T, v6 bool) { s.play(t, s.reflections(v6), at...) })
}

// detach detaches a pinned link and leaves the pin.
func detach(t *testing.T, pin string) {
	t.Helper()
	pinned, err := link.LoadPinnedLink(pin, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer pinned.Close()
	if err := pinned.(interface{ Detach() error }).Detach(); err != nil {
		t.Fatal(err)
	}
}
