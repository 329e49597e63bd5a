package bpf

import (
	"errors"
	"fmt"
	"maps"
)

// interfaces are the workload interfaces, and on which of them programs are.
//
// Attaching a program takes the kernel a grace period of RCU, 5 to 20 ms on a busy machine, and it attaches one at a
// time; an interface has two. When many pods come at once, that is nearly all there is to wait for. A pod's interface is
// there before its address is known, so it gets its programs then: they let nothing pass before the endpoint is
// programmed, and neither does the guard (D-18).
type interfaces struct {
	kernel   *kernel
	outside  *outside
	byName   map[string]uint32 // as last observed
	leaving  map[uint32]bool   // that are no endpoint's any more, until detach
	prepared map[uint32]bool   // that are no ready endpoint's, once attaching was tried: whether they have programs
	ready    bool              // the first plan has got as far as the guard
	guarded  bool
	early    bool // guard is attached before conntrack; known if guarded
	counted  bool // the counts of drops were compared with byName
}

func newInterfaces(k *kernel, prefix string) *interfaces {
	return &interfaces{kernel: k, outside: &outside{kernel: k, prefix: prefix}, byName: k.host.Interfaces(), leaving: map[uint32]bool{}, prepared: map[uint32]bool{}}
}

// enforced are those there are; nil before anything is enforced. The map is the caller's.
func (i *interfaces) enforced() map[string]uint32 {
	if !i.ready {
		return nil
	}
	return maps.Clone(i.byName)
}

// begin notes that the first plan has got as far as the guard, or has failed: interfaces that could not be programmed are closed.
func (i *interfaces) begin() { i.ready = true }

// recheck puts programs on prepared interfaces again that others have detached or unpinned, and has the same done with the guard. It has
// detach compare counts of drops again, too.
func (i *interfaces) recheck() {
	i.guarded, i.counted = false, false
	for name, ifindex := range i.byName {
		if _, tried := i.prepared[ifindex]; tried {
			i.prepared[ifindex] = i.kernel.host.Ensure(name, ifindex) == nil
		}
	}
}

// observe records which there are. It returns those that something has happened to, which may be others by now,
// without programs. The links of prepared ones that have vanished are to be removed.
func (i *interfaces) observe() (touched []uint32) {
	i.byName = i.kernel.host.Interfaces()
	touched = i.kernel.host.Touched()
	if len(i.prepared) == 0 {
		return touched
	}
	there := make(map[uint32]bool, len(i.byName))
	for _, ifindex := range i.byName {
		there[ifindex] = true
	}
	for ifindex := range i.prepared {
		if !there[ifindex] {
			delete(i.prepared, ifindex)
			i.leaving[ifindex] = true
		}
	}
	for _, ifindex := range touched {
		delete(i.prepared, ifindex)
	}
	return touched
}

// ensure attaches programs to the interface of an endpoint, which may have been another endpoint's so far.
func (i *interfaces) ensure(name string, ifindex uint32) error {
	if i.leaving[ifindex] {
		if err := i.kernel.maps.Drops.Forget(ifindex); err != nil {
			return err
		}
		delete(i.leaving, ifindex)
	}
	if err := i.kernel.host.Ensure(name, ifindex); err != nil {
		return err
	}
	delete(i.prepared, ifindex)
	return nil
}

// leave is called for the interface of an endpoint that is withdrawn.
func (i *interfaces) leave(ifindex uint32) { i.leaving[ifindex] = true }

// detach forgets interfaces that were left. One that is there still keeps its programs: its pod may be running, and only
// they limit its ARP.
func (i *interfaces) detach() error {
	if len(i.leaving) == 0 && i.counted {
		return nil
	}
	names := make(map[uint32]string, len(i.byName))
	for name, ifindex := range i.byName {
		names[ifindex] = name
	}
	errs := []error{i.forgetCounts(names)}
	for ifindex := range i.leaving {
		err := i.kernel.maps.Drops.Forget(ifindex)
		if name, there := names[ifindex]; there {
			i.prepared[ifindex] = i.kernel.host.Ensure(name, ifindex) == nil
		} else {
			err = errors.Join(err, i.kernel.host.Detach(ifindex))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("leave interface %d: %w", ifindex, err))
			continue
		}
		delete(i.leaving, ifindex)
	}
	return errors.Join(errs...)
}

// forgetCounts removes the counts of drops at interfaces that are not there. The programs of the guard count drops also at an interface that
// comes and goes before this agent attaches programs, or while no agent runs.
func (i *interfaces) forgetCounts(names map[uint32]string) error {
	if i.counted {
		return nil
	}
	there := make(map[uint32]bool, len(names))
	for ifindex := range names {
		there[ifindex] = true
	}
	err := i.kernel.maps.Drops.Keep(there)
	i.counted = err == nil
	return err
}

// guard closes workload interfaces that are no endpoint, once those that are have been opened.
func (i *interfaces) guard() error {
	early := i.kernel.early.due()
	if !i.ready || i.guarded && i.early == early {
		return nil
	}
	err := i.kernel.host.Guard(early)
	if err == nil {
		err = i.outside.open()
	}
	i.guarded, i.early = err == nil, early
	return err
}

// resign guards the node for the time without this process, if it is guarded.
func (i *interfaces) resign() error {
	if !i.guarded {
		return nil
	}
	return i.kernel.host.Guard(true)
}

// attachAhead attaches programs to one interface that has none yet, and wakes the loop if there may be more: changes wait
// for one interface at most. A failure is reported by the endpoint, if one appears. open are the interfaces of endpoints
// that are programmed. Those of closed endpoints get programs, too: ARP passes by the guard.
func (i *interfaces) attachAhead(open map[uint32]bool) {
	if !i.guarded || len(i.kernel.older) > 0 {
		return // the guard and a change of layout come first
	}
	next := ""
	for name, ifindex := range i.byName {
		_, done := i.prepared[ifindex]
		if !done && !open[ifindex] && !i.leaving[ifindex] && (next == "" || name < next) {
			next = name
		}
	}
	if next == "" {
		return
	}
	ifindex := i.byName[next]
	i.prepared[ifindex] = i.kernel.host.Ensure(next, ifindex) == nil
	i.kernel.host.Nudge(0)
}
