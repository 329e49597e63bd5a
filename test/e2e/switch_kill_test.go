package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
)

// TestConnectionsOutliveAnAgentThatEndsWhileProgramsAreDetached: it has put chains in their place by then. The next one has either dataplane.
func TestConnectionsOutliveAnAgentThatEndsWhileProgramsAreDetached(t *testing.T) {
	s := newPathScene(t)
	var idle []pair
	for _, p := range s.paths {
		idle = append(idle, s.open(p))
	}
	a := s.Agent(0)
	for _, mode := range modes[:2] {
		s.switchTo(modes[1])
		s.next(modes[0])
		a.Launch()
		testutil.WaitFor(t, soon, "programs of interfaces to be detached", func() bool { return links(t, a) < 3 })
		left := links(t, a)
		when := s.switchTo(mode)
		t.Logf("%s, after one that has left %d links", when, left)
		s.allHear(idle, when)
	}
}

// TestConnectionsOutliveAnAgentThatEndsBeforeProgramsAreAttached: its maps have addresses, but not all endpoints by then.
func TestConnectionsOutliveAnAgentThatEndsBeforeProgramsAreAttached(t *testing.T) {
	s := newPathScene(t, modes[0]...)
	var idle []pair
	for _, p := range s.paths {
		idle = append(idle, s.open(p))
	}
	s.next(modes[1])
	a := s.Agent(0)
	a.Launch()
	testutil.WaitFor(t, soon, "flows to be carried over", func() bool {
		log, err := os.ReadFile(a.Log)
		return err == nil && strings.Contains(string(log), "flows of the iptables dataplane are known")
	})
	when := s.switchTo(modes[1])
	s.allHear(idle, when)
}

// TestConnectionsOutliveAFirstAgentThatIsKilled: it has programs on some of the interfaces by then. The next one has either dataplane.
func TestConnectionsOutliveAFirstAgentThatIsKilled(t *testing.T) {
	s := newPathScene(t, modes[1]...)
	s.flags = s.flags[:len(s.flags)-len(modes[1])]
	a := s.Agent(0)
	cleanup := func() {
		if a.Cmd != nil {
			a.Terminate()
		}
		if out, err := s.Node(0).Run(t.Context(), "", testcluster.Build(t), "cleanup", "--bpffs", a.BPFFS, "--socket", a.Socket); err != nil {
			t.Fatalf("cleanup: %v: %s", err, out)
		}
	}
	for _, mode := range modes[:2] {
		cleanup()
		var idle []pair
		for _, p := range s.paths {
			idle = append(idle, s.open(p))
		}
		a.Flags = slices.Concat(s.flags, modes[1])
		a.Launch()
		testutil.WaitFor(t, soon, "programs to be attached", func() bool { return links(t, a) > 0 })
		a.Kill()
		left := links(t, a)
		when := s.switchTo(mode)
		t.Logf("%s, after one that has left %d links", when, left)
		s.allHear(idle, when)
	}
}

// links returns the number of programs that an agent has attached.
func links(t *testing.T, a *testcluster.Process) int {
	t.Helper()
	pins, err := filepath.Glob(filepath.Join(a.BPFFS, "margay", "*", "links", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(pins)
}

// allHear demands that what the ends that were asked send comes to the others.
func (s *pathScene) allHear(list []pair, when string) {
	s.T.Helper()
	var group sync.WaitGroup
	for _, c := range list {
		group.Go(func() { s.hears(c.what+" "+when, c.responder, c.opener) })
	}
	group.Wait()
}
