package bpf

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
)

// watchedHost notes, whenever programs are attached, whether the endpoint is in the maps already.
type watchedHost struct {
	*FakeHost
	of      *BPF
	ready   map[uint32]bool
	guarded bool // the guard was attached after all endpoints were ready
}

func (h *watchedHost) Ensure(name string, ifindex uint32) error {
	_, h.ready[ifindex] = h.of.kernel.endpoints.Get(ifindex)
	return h.FakeHost.Ensure(name, ifindex)
}

func (h *watchedHost) Guard(early bool) error {
	h.guarded = len(h.ready) > 0
	return h.FakeHost.Guard(early)
}

// Beside maps of another layout, whose programs judge at the interfaces still, an endpoint is complete before its
// interface is given the new programs; without, it must not be, or it would be open unjudged (D-18).
func TestAnEndpointIsCompleteBeforeItsProgramsOnlyWhenOthersJudge(t *testing.T) {
	testutil.Privileged(t)
	for _, beside := range []bool{true, false} {
		dir := testutil.BPFFS(t)
		other := filepath.Join(bpfmaps.InstanceDir(dir, ""), "v99")
		if beside {
			if err := os.MkdirAll(filepath.Join(other, bpfmaps.LinksName), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		n := openNode(t, dir, nil)
		h := &watchedHost{FakeHost: n.host, of: n.BPF, ready: map[uint32]bool{}}
		n.BPF.kernel.host = h
		n.mustApply(t, restartStages[0].updates()...)
		if len(h.ready) == 0 || !h.guarded {
			t.Errorf("beside another layout %t: %d interfaces got programs, guarded after them %t", beside, len(h.ready), h.guarded)
		}
		for ifindex, ready := range h.ready {
			if ready != beside {
				t.Errorf("beside another layout %t: endpoint of interface %d complete %t", beside, ifindex, ready)
			}
		}
		if _, err := os.Stat(other); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the other layout is left: %v", err)
		}
		mustClose(t, n.BPF)
	}
}
