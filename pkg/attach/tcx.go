package attach

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Ensure implements Attacher. to_pod comes first: what reaches the pod is judged before the pod can ask for it.
func (l *Links) Ensure(ifindex uint32) (Change, error) {
	out, err := l.ensure(tcxKey{ifindex, egress}, l.programs.ToPod)
	if err != nil {
		return Unchanged, err
	}
	in, err := l.ensure(tcxKey{ifindex, ingress}, l.programs.FromPod)
	if err != nil {
		return out, err
	}
	return max(in, out), nil
}

func (l *Links) ensure(key tcxKey, program *ebpf.Program) (Change, error) {
	opened := l.tcx[key]
	if opened == nil {
		var err error
		if opened, err = l.pins.load(key.pin()); err != nil {
			return Unchanged, err
		}
	}
	runs, alive, err := state(opened, key)
	if err != nil {
		return Unchanged, fmt.Errorf("link %s: %w", key.pin(), err)
	}
	change := Unchanged
	switch {
	case !alive:
		if opened, err = l.attach(opened, key, program); err != nil {
			return Unchanged, err
		}
		if change = Attached; l.ours[key] {
			change = Repaired
		}
	case runs != l.ids[program]:
		if err := opened.Update(program); err != nil {
			return Unchanged, errors.Join(fmt.Errorf("update link %s: %w", key.pin(), err), l.keep(key, opened))
		}
		change = Updated
	}
	if err := l.keep(key, opened); err != nil {
		return change, err
	}
	pinned, err := l.pins.ensure(opened, key.pin())
	if pinned && change < Attached {
		change = Repaired
	}
	l.ours[key] = err == nil
	return change, err
}

// keep holds the link open: should somebody remove its pin, it stays attached until the next Ensure pins it again.
func (l *Links) keep(key tcxKey, opened link.Link) error {
	before := l.tcx[key]
	l.tcx[key] = opened
	if before == nil || before == opened {
		return nil
	}
	return before.Close()
}

// state says which program a link runs and whether it is attached where it should be. nil is not.
func state(opened link.Link, key tcxKey) (runs ebpf.ProgramID, alive bool, err error) {
	if opened == nil {
		return 0, false, nil
	}
	info, err := opened.Info()
	if err != nil {
		return 0, false, err
	}
	tcx := info.TCX()
	return info.Program, tcx != nil && tcx.Ifindex == key.ifindex, nil
}

// attach attaches before all other programs: those that follow an accepting one (TCX_PASS) never run, so anywhere else
// another program could let packets past us. Ours end with TCX_NEXT when they allow, so the others still run. dead is
// an earlier link that does not work any more; it is removed.
func (l *Links) attach(dead link.Link, key tcxKey, program *ebpf.Program) (link.Link, error) {
	if dead != nil {
		delete(l.tcx, key)
		if err := l.pins.drop(dead, key.pin()); err != nil {
			return nil, err
		}
	}
	opened, err := link.AttachTCX(link.TCXOptions{
		Interface: int(key.ifindex), Program: program, Attach: key.attachType(), Anchor: link.Head(),
	})
	if errors.Is(err, unix.ENODEV) {
		return nil, fmt.Errorf("attach to interface %d %s: %w", key.ifindex, key.side, ErrGone)
	}
	if err != nil {
		return nil, fmt.Errorf("attach to interface %d %s: %w", key.ifindex, key.side, err)
	}
	return opened, nil
}

// Detach implements Attacher.
func (l *Links) Detach(ifindex uint32) error {
	var errs []error
	for _, key := range []tcxKey{{ifindex, ingress}, {ifindex, egress}} {
		opened := l.tcx[key]
		if opened == nil {
			var err error
			if opened, err = l.pins.load(key.pin()); err != nil {
				errs = append(errs, err)
			}
		}
		errs = append(errs, l.pins.unpin(key.pin()), end(opened))
		delete(l.tcx, key)
		delete(l.ours, key)
	}
	return errors.Join(errs...)
}

// end detaches the program of a link at once, and closes it: the kernel detaches one that no process and no pin has any more a while later. The pin is gone by
// then, since one of a link that is attached nowhere says that its interface has gone.
func end(opened link.Link) error {
	if opened == nil {
		return nil
	}
	err := opened.Detach()
	if errors.Is(err, unix.ENOLINK) { // with its interface
		err = nil
	}
	return errors.Join(err, opened.Close())
}

// RemoveStale implements Attacher.
func (l *Links) RemoveStale() ([]uint32, error) {
	var gone []uint32
	var errs []error
	for _, dir := range l.pins.dirs() {
		names, err := pinNames(dir)
		errs = append(errs, err)
		for _, name := range names {
			key, ok := parsePin(name)
			if !ok {
				continue
			}
			if opened := l.tcx[key]; opened != nil {
				if _, alive, err := state(opened, key); alive || err != nil {
					continue
				}
			}
			_, dead, err := l.pins.isDead(key)
			if errs = append(errs, err); !dead {
				continue
			}
			errs = append(errs, l.pins.drop(l.tcx[key], name))
			delete(l.tcx, key)
			delete(l.ours, key)
			gone = append(gone, key.ifindex)
		}
	}
	slices.Sort(gone)
	return slices.Compact(gone), errors.Join(errs...)
}

// IsGone reports whether the interface of a number that our programs were attached to has gone: their links are pinned, and attached nowhere. An
// interface of that number is another one. It is not known where nothing is pinned.
func (l *Links) IsGone(ifindex uint32) (bool, error) {
	gone := false
	for _, s := range []side{ingress, egress} {
		pinned, dead, err := l.pins.isDead(tcxKey{ifindex, s})
		if err != nil || pinned && !dead {
			return false, err
		}
		gone = gone || dead
	}
	return gone, nil
}
