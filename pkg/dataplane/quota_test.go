package dataplane

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/bpf"
)

// TestRefusedFlowsAreToldOnce, by endpoint; and the counts of interfaces that are gone go when their last flow has.
func TestRefusedFlowsAreToldOnce(t *testing.T) {
	n := startNode(t, restartStages[0])
	var log bytes.Buffer
	n.log = slog.New(slog.NewTextHandler(&log, nil))
	count := func(ifindex uint32, c bpf.OpenCount) {
		t.Helper()
		if err := n.maps.Map(bpf.MargayMapOpenFlows).Update(&ifindex, &c, ebpf.UpdateAny); err != nil {
			t.Fatal(err)
		}
	}
	resync := func(told int) {
		t.Helper()
		n.Resync()
		n.mustApply(t)
		if got := strings.Count(log.String(), "endpoint=t/a "); got != told {
			t.Errorf("told %d times, want %d:\n%s", got, told, &log)
		}
	}
	count(1000, bpf.OpenCount{Open: 5})
	resync(0)
	count(1000, bpf.OpenCount{Open: 5, Refused: 7})
	count(4711, bpf.OpenCount{Open: 1})
	count(4712, bpf.OpenCount{Refused: 3})
	resync(1)
	resync(1)
	count(1000, bpf.OpenCount{Open: 5, Refused: 8})
	count(4711, bpf.OpenCount{})
	resync(2)
	counts, err := n.maps.OpenFlows()
	if diff := cmp.Diff(map[uint32]bpf.OpenCount{1000: {Open: 5, Refused: 8}}, counts); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
}
