package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

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
	links := func() int {
		pins, err := filepath.Glob(filepath.Join(a.BPFFS, "margay", "*", "links", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(pins)
	}
	for _, mode := range modes[:2] {
		s.switchTo(modes[1])
		s.next(modes[0])
		a.Launch()
		testutil.WaitFor(t, soon, "programs of interfaces to be detached", func() bool { return links() < 3 })
		left := links()
		when := s.switchTo(mode)
		t.Logf("%s, after one that has left %d links", when, left)
		var group sync.WaitGroup
		for _, c := range idle {
			group.Go(func() { s.hears(c.what+" "+when, c.responder, c.opener) })
		}
		group.Wait()
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
	var group sync.WaitGroup
	for _, c := range idle {
		group.Go(func() { s.hears(c.what+" "+when, c.responder, c.opener) })
	}
	group.Wait()
}
