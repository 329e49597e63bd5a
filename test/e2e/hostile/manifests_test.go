package hostile

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/inspect"
)

// TestManifestsUnderWayOpenNothing writes the manifest of a policy as editors, scripts and full disks do, while a pod that
// the policy denies sends all the time. Every packet is counted. What is missing for a second is believed to be gone, so a round in which
// this test was kept from a CPU for that long proves nothing: it is played again.
func TestManifestsUnderWayOpenNothing(t *testing.T) {
	const (
		away     = 300 * time.Millisecond // how long a file is not what it is to be: much longer than a burst of events
		believed = time.Second
	)
	for name, rewrite := range map[string]func(t *testing.T, s *scene, path, text string) (missing time.Duration){
		"emptied and filled": func(t *testing.T, s *scene, path, text string) (missing time.Duration) {
			write(t, path, "")
			s.awaitProblem("the file is empty")
			write(t, path, text)
			return 0
		},
		"removed and written again": func(t *testing.T, s *scene, path, text string) (missing time.Duration) {
			since := time.Now()
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			time.Sleep(away)
			write(t, path, text)
			return time.Since(since)
		},
		"moved to a backup, empty for a while, filled": func(t *testing.T, s *scene, path, text string) (missing time.Duration) {
			since := time.Now()
			if err := os.Rename(path, path+"~"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(away)
			write(t, path, "")
			missing = time.Since(since)
			s.awaitProblem("the file is empty")
			write(t, path, text)
			return missing
		},
		"half of it, then all": func(t *testing.T, s *scene, path, text string) (missing time.Duration) {
			since := time.Now()
			write(t, path, text[:strings.LastIndex(text, "---")])
			time.Sleep(away)
			write(t, path, text)
			return time.Since(since)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			text := policyOf("c") + policyOf("b") // half of it lacks the policy of b
			s.Write("policies", text)
			s.AwaitPolicies(s.b, 1, 0)
			_, udp := s.Serve(s.b.Host, 80)
			flow, err := traffic.StartUDPFlow(s.m.Host, netip.AddrPortFrom(s.b.Addr4(), 80), traffic.UDPFlowOptions{Interval: time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(s.Dir, "policies.yaml")
			forgiven := uint64(0) // in rounds that prove nothing
			for rounds, tries := 0, 0; rounds < 3; tries++ {
				if tries == 10 {
					t.Fatal("the machine does not let the test write a file within a second")
				}
				before, arrived := flow.Result().Sent, udp.Received()
				missing := rewrite(t, s, path, text)
				if missing >= believed {
					pause(2 * believed) // the policy may be gone, and comes again
				}
				s.awaitNoProblem()
				s.AwaitPolicies(s.b, 1, 0)
				testutil.WaitFor(t, soon, "more to be sent", func() bool { return flow.Result().Sent > before+200 })
				if missing < believed {
					rounds++
				} else {
					forgiven += udp.Received() - arrived
				}
			}
			sent := flow.StopCut().Sent
			if n := udp.Received() - forgiven; n != 0 {
				t.Errorf("%d of %d packets that policy denies arrived", n, sent)
			}
			s.AwaitPolicies(s.b, 1, 0)
		})
	}
}

func policyOf(pod string) string {
	return "---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: " + pod + ", namespace: shop}\n" +
		"spec: {podSelector: {matchLabels: {app: " + pod + "}}, policyTypes: [Ingress]}\n"
}

// write writes a file in place, as most programs do.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (s *scene) problems() []inspect.ProblemRow {
	s.T.Helper()
	answer, err := s.Agent(0).Ask("problems")
	if err != nil {
		s.T.Fatal(err)
	}
	return answer.Problems
}

func (s *scene) awaitProblem(words string) {
	s.T.Helper()
	testutil.WaitFor(s.T, soon, "a problem with "+words, func() bool {
		return slices.ContainsFunc(s.problems(), func(p inspect.ProblemRow) bool { return strings.Contains(p.Reason, words) })
	})
}

func (s *scene) awaitNoProblem() {
	s.T.Helper()
	testutil.WaitFor(s.T, soon, "no problem", func() bool { return len(s.problems()) == 0 })
}
