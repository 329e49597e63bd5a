package corpus

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/model"
)

// Stager is an Engine that also evaluates staged policies.
type Stager interface {
	// StagedDiffers reports whether the packet of the last Judge would have had the other verdict if all staged policies were
	// enforced.
	StagedDiffers() bool
}

// stagedDiff says how the verdict as if staged policies were enforced, of an engine that has just given its verdict on the probe,
// differs from the oracle's, or "". An engine that is no Stager has none.
func (o *Oracle) stagedDiff(e Engine, p Probe, allowed bool) string {
	s, ok := e.(Stager)
	if !ok {
		return ""
	}
	want, _ := judge(&Oracle{o.cluster.AsStaged()}, p) // the oracle always answers
	if got := allowed != s.StagedDiffers(); got != want.Allow {
		return fmt.Sprintf("if staged policies were enforced: allowed %t, by the oracle %t (%s)", got, want.Allow, want.By)
	}
	return ""
}

// kernelStaged is what the programs found when they evaluated staged policies.
type kernelStaged struct {
	last      bool   // the last packet would have had the other verdict
	wouldDeny uint64 // packets so far
	wouldPass uint64
}

// StagedDiffers implements Stager.
func (k *Kernel) StagedDiffers() bool { return k.staged.last }

// StagedDifferences are the packets so far that staged policies would have denied, and those that they would have allowed.
func (k *Kernel) StagedDifferences() (denied, allowed uint64) {
	return k.staged.wouldDeny, k.staged.wouldPass
}

// stage gives the interface of test-runs the staged policies of another one.
func (k *Kernel) stage(of uint32) error {
	k.staged.last = false
	m := k.dp.Maps().Map(bpf.MargayMapStaged)
	var entry bpf.Staged
	err := m.Lookup(of, &entry)
	switch {
	case errors.Is(err, ebpf.ErrKeyNotExist):
		if err = m.Delete(uint32(testIfindex)); errors.Is(err, ebpf.ErrKeyNotExist) {
			err = nil
		}
	case err == nil:
		err = m.Put(uint32(testIfindex), entry)
	}
	return err
}

// noteStaged remembers what the event says of staged policies. The rule to which it credits a difference must be known, be one
// of the direction, and give the other verdict.
func (k *Kernel) noteStaged(dir model.Direction, event *bpf.Event) error {
	if event.Flags&uint8(bpf.MargayEventFlagsEVENT_STAGED) == 0 {
		return nil
	}
	k.staged.last = true
	would := event.Reason != 0
	if would {
		k.staged.wouldPass++
	} else {
		k.staged.wouldDeny++
	}
	for _, c := range k.dp.Inspector().Staged(inspect.Counts{event.StagedId: {Packets: 1}}) {
		if c.Packets == 1 {
			if c.Rule.Direction != dir || c.Allow != would {
				return fmt.Errorf("the difference in %s is credited to %s, which allows: %t", dir, c.Rule, c.Allow)
			}
			return nil
		}
	}
	return fmt.Errorf("the difference is credited to rule %d, which is no staged policy's", event.StagedId)
}
