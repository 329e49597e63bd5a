package bpf

import (
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/dataplane/plans"
)

// pins keeps what is in the kernel pinned: without that the kernel frees it when this process ends. Links are pinned by the host.
type pins struct {
	kernel *kernel
	retry  *plans.Backoff
	err    error          // why maps cannot be pinned; nil: they are
	seen   bpfmaps.PinDir // in which all maps were pinned
}

// keep pins maps again whose pins somebody has removed, and returns how many those are. If it has to, everything else that is pinned is to be
// looked at, too. It looks for single pins if look is set, and otherwise only if some are missing.
func (p *pins) keep(look bool) (repaired uint64) {
	if !look && p.err == nil && p.allThere() || !p.retry.Due() {
		return 0
	}
	p.seen = bpfmaps.PinDir{}
	n, err := p.kernel.maps.Repin()
	if p.err = err; err != nil {
		p.retry.Failed() // everything else goes on: the maps are in use all the same
	} else {
		p.retry.Reset()
	}
	if n > 0 {
		p.kernel.log.Warn("the pins of maps had been removed by somebody else, pinned again", "maps", n)
	}
	return uint64(n)
}

// allThere reports whether all maps are pinned. Every change of policy asks, so a directory in which they were all is not searched again
// until it changes.
func (p *pins) allThere() bool {
	now := p.kernel.maps.PinDir()
	if now == p.seen && now != (bpfmaps.PinDir{}) {
		return true
	}
	if !p.kernel.maps.Pinned() {
		return false
	}
	p.seen = now
	return true
}
