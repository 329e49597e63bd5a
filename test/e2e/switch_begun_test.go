package e2e

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
)

// allHeard demands that what the ends that were asked send on all connections comes to the others.
func (s *pathScene) allHeard(list []pair) {
	s.T.Helper()
	s.allHear(list, "at the end")
	s.T.Logf("%d connections", len(list))
}

// newLonePath is a node without Services, so that the kernel tracks no connections beside the BPF dataplane. The path is one between pods.
func newLonePath(t *testing.T, flags ...string) (*pathScene, path) {
	t.Helper()
	c := newCluster(t, oneNode, append(flags, "--dataplane", "iptables")...)
	s := &pathScene{cluster: c, client: c.Pod(c.Node(0), "client"), server: c.Pod(c.Node(0), "server"), flags: c.Agent(0).Flags}
	c.Policy("client", mayOnlyAsk)
	c.Policy("server", mayOnlyAnswer)
	c.AwaitPolicies(s.client, 1, 1)
	c.AwaitPolicies(s.server, 1, 1)
	return s, path{"pod to pod", s.client.Host, netip.AddrPortFrom(s.server.Addr4(), 80), s.server.Host, 80}
}

// TestConnectionsThatBeginInASwitchLive: they are open and idle for longer than half-open ones live, and then the end that was asked sends.
func TestConnectionsThatBeginInASwitchLive(t *testing.T) {
	s, p := newLonePath(t, "--timeout-tcp-syn", "1s")
	for i := range 5 { // the more interfaces, the longer a switch
		s.Pod(s.Node(0), fmt.Sprintf("other%d", i))
	}
	l := s.listen(p)
	defer l.Close()
	var list []pair
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
			}
			c, err := s.connect(p, l)
			if err != nil {
				t.Error(err)
				return
			}
			list = append(list, c)
		}
	}()
	s.switchTo(modes[1])
	close(done)
	<-ended
	flows := s.Agent(0).Maps().Flows
	walks := func() uint64 {
		open, _, err := flows.Swept()
		if err != nil {
			t.Fatal(err)
		}
		return open.Runs
	}
	before := walks()
	testutil.WaitFor(t, soon, "half-open flows to expire", func() bool { return walks() >= before+4 }) // two rounds over two tables
	s.allHeard(list)
}

// TestNoConnectionIsLostByAnAgentThatEndsInASwitch: the agent that comes first ends when it has made maps. In maps of this size a pod has
// room for 64 half-open flows.
func TestNoConnectionIsLostByAnAgentThatEndsInASwitch(t *testing.T) {
	s, p := newLonePath(t, "--map-size", "ct4=65536,ct6=65536")
	l := s.listen(p)
	defer l.Close()
	var list []pair
	for range 200 {
		c, err := s.connect(p, l)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, c)
	}
	s.next(modes[1])
	a := s.Agent(0)
	a.Launch()
	testutil.WaitFor(t, soon, "maps to be there", func() bool {
		last, err := filepath.Glob(filepath.Join(a.BPFFS, "margay", "*", "walk6"))
		return err == nil && len(last) > 0
	})
	s.switchTo(modes[1])
	s.allHeard(list)
}
