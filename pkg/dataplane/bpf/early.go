package bpf

import "time"

// earlyFor is how long this process runs before it suspends the program guard. The kubelet starts a container that has run for ten minutes
// again at once when it ends, and others up to five minutes later.
const earlyFor = 10 * time.Minute

// early says when guard is attached before conntrack. It is needed for pods that come while no agent attaches programs to their interfaces, and
// each packet through the host's stack pays for it. So a process that has attached the programs, and has run for a while, suspends it. It
// attaches it again when it ends. One that is killed cannot; the next one does that first.
type early struct {
	now   func() time.Time
	began time.Time
}

func newEarly(now func() time.Time) early { return early{now, now()} }

// due reports whether guard is to be attached while this process runs.
func (e early) due() bool { return e.now().Sub(e.began) < earlyFor }
