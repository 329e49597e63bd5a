package attach

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// netfilterLinks are the part of Links at netfilter hooks. It has what that at interfaces needs as well: pins, and ids of programs.
type netfilterLinks struct {
	pins         pins
	judge, guard *ebpf.Program                    // nil: not attached
	ids          map[*ebpf.Program]ebpf.ProgramID // of all programs of Links
	hooks        map[string]link.Link             // by pin name
	early        bool                             // EnsureEarly was called, and SuspendEarly was not called since
}

// hook is one netfilter hook we attach to.
type hook struct {
	name    string // begins the pin's name
	family  link.NetfilterProtocolFamily
	hook    link.NetfilterInetHook
	first   int // priority, or another of the places behind it
	program *ebpf.Program
}

// The filter table of iptables and nftables is at priority 0, and ours are just before it, but at LOCAL_IN: there they are
// behind ip_vs, which takes packets to Service addresses away at 98 and 99, and source NAT at 100. The remaining packets are for
// the node itself. At PRE_ROUTING ours is before reassembly at -400, table raw (-450, if it is before that) and conntrack.
//
// The kernel refuses two BPF programs of one priority at one hook and cannot update such a link, so a successor takes
// another of places many, each further from 0 than the one before, and only then its predecessor goes: for a moment a
// packet is judged twice, but none is not.
const (
	firstPriority   = -1
	firstLocalIn    = 101
	firstPreRouting = -500 // see early.go
	places          = 8
)

// families are those that each program is attached for, by the word that ends the name of its pin.
var families = []struct {
	name   string
	family link.NetfilterProtocolFamily
}{{"ip4", link.NetfilterProtoIPv4}, {"ip6", link.NetfilterProtoIPv6}}

// wanted are the hooks that judge is attached to.
func (l *netfilterLinks) wanted() []hook {
	if l.judge == nil {
		return nil
	}
	var hooks []hook
	for _, f := range families {
		hooks = append(hooks,
			hook{"judge-forward-" + f.name, f.family, link.NetfilterInetForward, firstPriority, l.judge},
			hook{"judge-local_in-" + f.name, f.family, link.NetfilterInetLocalIn, firstLocalIn, l.judge},
			// Named for a program of its own, which was there before and is succeeded.
			hook{"guard-local_out-" + f.name, f.family, link.NetfilterInetLocalOut, firstPriority, l.judge})
	}
	return hooks
}

// Hooked reports whether a link at a netfilter hook is pinned in dir.
func Hooked(dir string) (bool, error) {
	names, err := pinNames(dir)
	return slices.ContainsFunc(names, func(name string) bool {
		_, isTCX := parsePin(name)
		return !isTCX
	}), err
}

// pin is the name of the pin at a priority: its sign is left out.
func (h hook) pin(priority int) string { return h.name + "-" + strconv.Itoa(max(priority, -priority)) }

// priorityOf is the priority in the name of one of h's pins; false: not one of them. Earlier agents were before the filter
// table at every hook.
func (h hook) priorityOf(name string) (int, bool) {
	number, ok := strings.CutPrefix(name, h.name+"-")
	n, err := strconv.Atoi(number)
	if h.first < 0 || n < firstLocalIn {
		n = -n
	}
	return n, ok && err == nil
}

// EnsureHooks implements Attacher.
func (l *netfilterLinks) EnsureHooks() (Change, error) {
	change := Unchanged
	var errs []error
	for _, h := range l.wanted() {
		did, err := l.ensureHook(h)
		change = max(change, did)
		errs = append(errs, err)
	}
	return change, errors.Join(errs...)
}

// ensureHook keeps one link of h that runs its program, makes one if there is none, and then removes all others.
func (l *netfilterLinks) ensureHook(h hook) (Change, error) {
	names, err := l.hookPins(h)
	if err != nil {
		return Unchanged, err
	}
	current, change := "", Unchanged
	for _, name := range names {
		did, ok, err := l.check(h, name)
		if err != nil {
			return change, err
		}
		if change = max(change, did); ok {
			current = name
		}
	}
	if current == "" {
		if current, err = l.attachHook(h); err != nil {
			return change, err
		}
		if change = max(change, Updated); len(names) == 0 {
			change = Attached
		}
	}
	var errs []error
	for _, name := range names {
		if name != current {
			errs = append(errs, l.pins.drop(l.hooks[name], name))
			delete(l.hooks, name)
		}
	}
	return change, errors.Join(errs...)
}

// hookPins are the names of h's links: those pinned and those held.
func (l *netfilterLinks) hookPins(h hook) ([]string, error) {
	var names []string
	for name := range l.hooks {
		if _, ok := h.priorityOf(name); ok {
			names = append(names, name)
		}
	}
	for _, dir := range l.pins.dirs() {
		pins, err := pinNames(dir)
		if err != nil {
			return nil, err
		}
		for _, name := range pins {
			if _, ok := h.priorityOf(name); ok {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// check says whether the link of that name is one that h can keep, and mends its pin. Whether a link was detached by
// force, nothing tells; but its place is free then, so trying to take it tells.
func (l *netfilterLinks) check(h hook, name string) (Change, bool, error) {
	held := l.hooks[name] != nil
	if !held {
		opened, err := l.pins.load(name)
		if err != nil || opened == nil {
			return Unchanged, false, err
		}
		l.hooks[name] = opened
	}
	info, err := l.hooks[name].Info()
	if err != nil {
		return Unchanged, false, fmt.Errorf("link %s: %w", name, err)
	}
	if info.Program != l.ids[h.program] {
		return Unchanged, false, nil
	}
	priority, _ := h.priorityOf(name)
	change := Unchanged
	again, err := h.attach(priority)
	switch {
	case err == nil: // it was detached: this is its successor
		if err := l.pins.drop(l.hooks[name], name); err != nil {
			return Unchanged, false, errors.Join(err, again.Close())
		}
		l.hooks[name] = again
		change = Repaired
	case !errors.Is(err, unix.EBUSY):
		return Unchanged, false, err
	}
	pinned, err := l.pins.ensure(l.hooks[name], name)
	if pinned && held {
		change = Repaired
	}
	return change, err == nil, err
}

func (h hook) attach(priority int) (link.Link, error) {
	opened, err := link.AttachNetfilter(link.NetfilterOptions{
		Program: h.program, ProtocolFamily: h.family, Hook: h.hook, Priority: int32(priority),
	})
	if err != nil {
		return nil, fmt.Errorf("attach %s at priority %d: %w", h.name, priority, err)
	}
	return opened, nil
}

// attachHook attaches h at the first free priority and pins it.
func (l *netfilterLinks) attachHook(h hook) (string, error) {
	for i := range places {
		priority := h.first + i
		if h.first < 0 {
			priority = h.first - i
		}
		opened, err := h.attach(priority)
		if errors.Is(err, unix.EBUSY) {
			continue
		}
		if err != nil {
			return "", err
		}
		name := h.pin(priority)
		// Another pin there is of a dead link, or its place would not have been free.
		if err := l.pins.drop(l.hooks[name], name); err != nil {
			return "", errors.Join(err, opened.Close())
		}
		l.hooks[name] = opened
		_, err = l.pins.ensure(opened, name)
		return name, err
	}
	return "", fmt.Errorf("attach %s: priority %d and the %d after it are in use", h.name, h.first, places-1)
}

// DetachHooks implements Attacher.
func (l *netfilterLinks) DetachHooks() error {
	var errs []error
	for _, dir := range l.pins.dirs() {
		names, err := pinNames(dir)
		errs = append(errs, err)
		for _, name := range names {
			if _, isTCX := parsePin(name); !isTCX {
				errs = append(errs, l.pins.drop(l.hooks[name], name))
				delete(l.hooks, name)
			}
		}
	}
	for name, held := range l.hooks {
		errs = append(errs, held.Close())
		delete(l.hooks, name)
	}
	return errors.Join(errs...)
}
