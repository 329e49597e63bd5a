package bpf

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/calc"
)

// TestAGracePeriodFollowsTheLossOfFlows: it is open until policy is in force and then has an end, and neither an agent that
// finds flows begins one, nor a later plan.
func TestAGracePeriodFollowsTheLossOfFlows(t *testing.T) {
	testutil.Privileged(t)
	dir, s := testutil.BPFFS(t), stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80}}
	n := openNode(t, dir, nil)
	until := func() uint64 {
		t.Helper()
		end, err := n.kernel.maps.Flows.MidFlowGrace()
		if err != nil {
			t.Fatal(err)
		}
		return end
	}
	if until() != bpfmaps.OpenEnded {
		t.Errorf("with new tables and no policy yet the period ends at %d", until())
	}
	n.mustApply(t, s.updates()...)
	latest, err := bpfmaps.KernelTime(n.config.MidFlowGrace)
	if err != nil {
		t.Fatal(err)
	}
	end := until()
	if end > latest || end < latest-uint64(time.Minute) {
		t.Errorf("the period ends at %d, want it shortly before %d", end, latest)
	}
	s.ports = []uint16{81}
	n.mustApply(t, s.updates()...)
	if until() != end {
		t.Errorf("a later plan moved the end from %d to %d", end, until())
	}
	mustClose(t, n.BPF)
	n = openNode(t, dir, nil)
	t.Cleanup(func() { mustClose(t, n.BPF) })
	n.mustApply(t, s.updates()...)
	if until() != end {
		t.Errorf("an agent that found flows moved the end from %d to %d", end, until())
	}
}

// TestAGracePeriodThatSomebodyProlongsIsCutShort: by the next resync, which reports it, and by the first plan of the next agent. A
// configuration with a shorter period cuts it short as well, which is not reported as a change by others.
func TestAGracePeriodThatSomebodyProlongsIsCutShort(t *testing.T) {
	testutil.Privileged(t)
	dir, s := testutil.BPFFS(t), stage{role: "friend", allow: []string{"friend"}, ports: []uint16{80}}
	var log bytes.Buffer
	n := openNode(t, dir, nil)
	n.kernel.log = slog.New(slog.NewTextHandler(&log, nil))
	n.mustApply(t, s.updates()...)
	left := func() time.Duration {
		t.Helper()
		end, err := n.kernel.maps.Flows.MidFlowGrace()
		now, err2 := bpfmaps.KernelTime(0)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		return time.Duration(end - now)
	}
	prolong := func() {
		t.Helper()
		must(t, n.kernel.maps.Flows.SetMidFlowGrace(bpfmaps.OpenEnded))
	}
	const blamed = "maps had been changed by somebody else, repaired"
	resync := func(when string, blames int) {
		t.Helper()
		n.Resync()
		n.mustApply(t)
		if got := strings.Count(log.String(), blamed); got != blames || left() > n.config.MidFlowGrace {
			t.Errorf("%s: the period ends in %v, want %v at most; it was said %d times that somebody had changed maps, want %d", when, left(), n.config.MidFlowGrace, got, blames)
		}
	}
	resync("at first", 0)
	prolong()
	resync("after somebody has prolonged it", 1)

	c := n.config
	c.MidFlowGrace = time.Second
	must(t, n.Configure(c))
	must(t, n.Reopen())
	n.graph = calc.New("n")
	n.mustApply(t, s.updates()...)
	resync("with a shorter one", 1)

	prolong()
	mustClose(t, n.BPF)
	n = openNode(t, dir, nil)
	t.Cleanup(func() { mustClose(t, n.BPF) })
	n.mustApply(t, s.updates()...)
	if left() > n.config.MidFlowGrace {
		t.Errorf("an agent that begins leaves a period that ends in %v, want %v at most", left(), n.config.MidFlowGrace)
	}
}
