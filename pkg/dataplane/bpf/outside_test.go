package bpf

import (
	"strings"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
)

// The maps of another layout are not read, so each interface outside of the prefix with its programs may be an enforced pod's. They would be
// detached with these maps.
func TestNothingIsTakenOverFromAnotherLayoutUnderAnotherPrefix(t *testing.T) {
	testutil.Privileged(t)
	n := openNode(t, testutil.BPFFS(t), nil)
	n.host.Past.OutsideOthers = map[uint32]string{7: "eni7", 3: "eni3"}
	err := n.apply(restartStages[0].updates()...)
	if err == nil || !strings.Contains(err.Error(), "may enforce policy on interfaces of pods (eni3, eni7)") {
		t.Errorf("error %v", err)
	}
	if n.host.Guarded || n.host.Ensured != 0 {
		t.Errorf("the guard is attached %t, interfaces were ensured %d times", n.host.Guarded, n.host.Ensured)
	}
	n.host.Past.OutsideOthers = nil // these pods have gone
	if n.mustApply(t); !n.host.Guarded || n.host.Ensured == 0 {
		t.Errorf("without them the guard is attached %t, interfaces were ensured %d times", n.host.Guarded, n.host.Ensured)
	}
	mustClose(t, n.BPF)
}
