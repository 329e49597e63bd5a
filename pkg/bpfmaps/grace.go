package bpfmaps

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/bpfroom"
)

// grace keeps slots back until no packet can be in them any more. A program that has read an endpoint's policy word
// goes on to use that slot until it ends, and programs run inside RCU read sections; so one RCU grace period after the
// word was changed, all of them have ended. Periods run in the background, one at a time.
type grace struct {
	wait    func() error // lasts an RCU grace period
	next    []uint32     // released since the running period began
	running []uint32
	done    chan error // of the running period; nil: none runs
}

// add keeps slots, which no endpoint refers to any more.
func (g *grace) add(slots ...uint32) {
	g.next = append(g.next, slots...)
	g.begin()
}

func (g *grace) begin() {
	if g.done != nil || len(g.next) == 0 {
		return
	}
	done := make(chan error, 1)
	g.running, g.next, g.done = g.next, nil, done
	go func() { done <- g.wait() }()
}

// len is the number of slots kept.
func (g *grace) len() int { return len(g.next) + len(g.running) }

// passed returns the slots that may be used again, without waiting. After a failure they stay kept, and the next call
// tries again.
func (g *grace) passed() ([]uint32, error) {
	if g.done == nil {
		g.begin()
	}
	select {
	case err := <-g.done:
		return g.end(err)
	default:
		return nil, nil
	}
}

// awaitPassed waits until the running period ends and returns the slots that may be used again.
func (g *grace) awaitPassed() ([]uint32, error) {
	if g.begin(); g.done == nil {
		return nil, nil
	}
	return g.end(<-g.done)
}

func (g *grace) end(err error) ([]uint32, error) {
	slots := g.running
	g.running, g.done = nil, nil
	if err != nil {
		g.next = append(slots, g.next...)
		return nil, fmt.Errorf("wait for packets to leave released slots: %w", err)
	}
	g.begin()
	return slots, nil
}

// close waits for the running period, which may be using maps.
func (g *grace) close() {
	if g.done != nil {
		<-g.done
		g.done = nil
	}
}

// Quiesce returns a channel that gets one value once every packet that is in a program now has left it: nil, or why
// that cannot be known. Safe to call while slots are in use; the channel need not be read.
func (s *Slots) Quiesce() <-chan error {
	done := make(chan error, 1)
	go func() { done <- s.pool.grace.wait() }()
	return done
}

// AwaitPackets returns once every packet that is in a program now has left it. It is for maps without open Slots.
func (m *Maps) AwaitPackets() error {
	a := newArrays(m)
	if err := rcuWait(a.outer[partRules], a.template[partRules]); err != nil {
		return fmt.Errorf("wait for packets to leave programs: %w", err)
	}
	return nil
}

// rcuWait lasts at least one RCU grace period: membarrier's MEMBARRIER_CMD_GLOBAL is synchronize_rcu by another name,
// but does nothing on a single CPU (where a reader may be preempted) and is refused on kernels with nohz_full CPUs.
// There, changing an entry of an array of maps is the way, since the kernel ends that with synchronize_rcu too.
func rcuWait(outer *ebpf.Map, template *ebpf.MapSpec) error {
	const global = 1
	if runtime.NumCPU() > 1 {
		if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); errno == 0 {
			return nil
		}
	}
	inner, err := ebpf.NewMap(template)
	if err != nil {
		return fmt.Errorf("create map to wait for a grace period: %w", bpfroom.Explain(err))
	}
	// Slot 0 is never a policy, so whatever is in it is not read.
	return errors.Join(outer.Update(uint32(0), uint32(inner.FD()), ebpf.UpdateAny), inner.Close())
}
