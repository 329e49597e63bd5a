package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// wantedEarly are the hooks that guard is attached to, unless it is suspended: docs/adr/0029 says when.
func (l *netfilterLinks) wantedEarly() []hook {
	if l.guard == nil {
		return nil
	}
	return earlyHooks(l.guard)
}

func earlyHooks(guard *ebpf.Program) []hook {
	var hooks []hook
	for _, f := range families {
		hooks = append(hooks, hook{"guard-pre_routing-" + f.name, f.family, link.NetfilterInetPreRouting, firstPreRouting, guard})
	}
	return hooks
}

// EnsureEarly implements Attacher.
func (l *netfilterLinks) EnsureEarly() (Change, error) {
	change := Unchanged
	var errs []error
	for _, h := range l.wantedEarly() {
		did, err := l.ensureHook(h)
		if !l.early && did == Repaired {
			did = Attached // it was suspended
		}
		change = max(change, did)
		errs = append(errs, err)
	}
	l.early = true
	return change, errors.Join(errs...)
}

// SuspendEarly implements Attacher. A link that is detached keeps its program, and its pin keeps the link.
func (l *netfilterLinks) SuspendEarly() error {
	l.early = false
	var errs []error
	for _, h := range l.wantedEarly() {
		errs = append(errs, l.suspend(h))
	}
	return errors.Join(errs...)
}

func (l *netfilterLinks) suspend(h hook) error {
	name, err := l.pinnedOf(h)
	if err == nil && name == "" { // nothing is pinned that runs this program
		if _, err = l.ensureHook(h); err == nil {
			name, err = l.pinnedOf(h)
		}
	}
	if err != nil || name == "" {
		return err
	}
	return detach(l.hooks[name], name)
}

// pinnedOf is the name of the pinned link of h that runs its program, which is held then; empty: there is none, or there are others, too.
func (l *netfilterLinks) pinnedOf(h hook) (string, error) {
	names, err := l.hookPins(h)
	if err != nil || len(names) != 1 {
		return "", err
	}
	held := l.hooks[names[0]]
	if held == nil {
		return "", nil
	}
	info, err := held.Info()
	if err != nil {
		return "", fmt.Errorf("link %s: %w", names[0], err)
	}
	if info.Program != l.ids[h.program] {
		return "", nil
	}
	_, err = l.pins.ensure(held, names[0])
	return names[0], err
}

// detach detaches a link by force. That it is detached already is no error.
func detach(l link.Link, name string) error {
	detacher, ok := l.(interface{ Detach() error })
	if !ok {
		return fmt.Errorf("detach link %s: the library cannot", name)
	}
	if err := detacher.Detach(); err != nil {
		return fmt.Errorf("detach link %s: %w", name, err)
	}
	return nil
}

// ResumeEarly implements Attacher. It is for the time until EnsureEarly: the program has the prefix and the mark bits of the programs that are
// on interfaces now, which this process may change.
func (l *netfilterLinks) ResumeEarly() error {
	var errs []error
	for _, h := range earlyHooks(nil) {
		names, err := l.hookPins(h)
		errs = append(errs, err)
		for _, name := range names {
			errs = append(errs, l.resume(h, name))
		}
	}
	return errors.Join(errs...)
}

// resume attaches the program of a link where it was. A link that is attached has that place itself.
func (l *netfilterLinks) resume(h hook, name string) error {
	pinned, err := l.pins.load(name)
	if err != nil || pinned == nil {
		return err
	}
	defer pinned.Close()
	info, err := pinned.Info()
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	if h.program, err = ebpf.NewProgramFromID(info.Program); err != nil {
		return fmt.Errorf("program %d of link %s: %w", info.Program, name, err)
	}
	defer h.program.Close()
	priority, _ := h.priorityOf(name)
	again, err := h.attach(priority)
	if errors.Is(err, unix.EBUSY) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := l.pins.unpin(name); err != nil {
		return errors.Join(err, again.Close())
	}
	l.hooks[name] = again
	_, err = l.pins.ensure(again, name)
	return err
}
