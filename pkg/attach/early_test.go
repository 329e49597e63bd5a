package attach

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// mustBeAttached checks that guard is attached before conntrack for both families, or for none. An attached program keeps others from its place.
func mustBeAttached(t *testing.T, dir string, want bool) {
	t.Helper()
	for _, h := range earlyHooks(program(t, ebpf.Netfilter, 1)) {
		attached := false
		for name := range hookPrograms(t, dir) {
			priority, ok := h.priorityOf(name)
			if !ok {
				continue
			}
			other, err := h.attach(priority)
			if err == nil {
				other.Close()
			} else if attached = errors.Is(err, unix.EBUSY); !attached {
				t.Fatal(err)
			}
		}
		if attached != want {
			t.Errorf("%s is attached %t, want %t", h.name, attached, want)
		}
	}
}

func guards(t *testing.T, dir string) map[string]uint32 {
	t.Helper()
	at := hookPrograms(t, dir)
	maps.DeleteFunc(at, func(name string, _ uint32) bool { return !strings.HasPrefix(name, "guard-pre_routing") })
	return at
}

// mustGuard checks that there is one pin for each family, and that its link has the guard of these programs.
func mustGuard(t *testing.T, dir string, of Programs) {
	t.Helper()
	at := guards(t, dir)
	for name, runs := range at {
		if runs != id(t, of.Guard) {
			t.Errorf("%s runs %d, want %d", name, runs, id(t, of.Guard))
		}
	}
	if len(at) != 2 {
		t.Errorf("pins %v, want one for each family", at)
	}
}

func TestASuspendedGuardIsResumedByTheNextProcess(t *testing.T) {
	_, dir := room(t)
	first, second := programs(t), programs(t)
	l := newLinks(t, dir, first)
	if _, err := ensureAll(l); err != nil {
		t.Fatal(err)
	}
	mustBeAttached(t, dir, true)
	for range 2 { // the second finds nothing to do
		if err := l.SuspendEarly(); err != nil {
			t.Fatal(err)
		}
		mustBeAttached(t, dir, false)
		if faults := l.HookFaults(); len(faults) != 0 {
			t.Errorf("suspended, with faults %q", faults)
		}
	}
	if got, err := l.EnsureEarly(); err != nil || got != Attached {
		t.Errorf("attached again: %v (%v), want %v: others had not detached it", got, err, Attached)
	}
	mustBeAttached(t, dir, true)
	if err := l.SuspendEarly(); err != nil {
		t.Fatal(err)
	}
	l.Close() // the process is killed
	mustBeAttached(t, dir, false)

	next := newLinks(t, dir, second)
	for range 2 {
		if err := next.ResumeEarly(); err != nil {
			t.Fatal(err)
		}
		mustBeAttached(t, dir, true)
		mustGuard(t, dir, first)
	}
	if got, err := ensureAll(next); err != nil || got != Updated {
		t.Errorf("%v (%v), want %v", got, err, Updated)
	}
	mustGuard(t, dir, second)
}

func TestASuspendedGuardIsPinnedAndOfThePresentProgram(t *testing.T) {
	_, dir := room(t)
	l := newLinks(t, dir, programs(t))
	if _, err := ensureAll(l); err != nil {
		t.Fatal(err)
	}
	if err := l.SuspendEarly(); err != nil {
		t.Fatal(err)
	}
	for name := range guards(t, dir) {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.SuspendEarly(); err != nil || len(guards(t, dir)) != 2 {
		t.Errorf("pins %v, want both again (%v)", guards(t, dir), err)
	}
	p := programs(t) // there is a new configuration
	if err := l.SetPrograms(p); err != nil {
		t.Fatal(err)
	}
	if err := l.SuspendEarly(); err != nil {
		t.Fatal(err)
	}
	mustBeAttached(t, dir, false)
	mustGuard(t, dir, p)
}

func TestAGuardDetachedByOthersIsAFaultUnlessItIsSuspended(t *testing.T) {
	_, dir := room(t)
	l := newLinks(t, dir, programs(t))
	if _, err := ensureAll(l); err != nil {
		t.Fatal(err)
	}
	for name, held := range l.hooks {
		if strings.HasPrefix(name, "guard-pre_routing") {
			if err := detach(held, name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if faults := l.HookFaults(); len(faults) != 2 || !strings.Contains(strings.Join(faults, ";"), "guard-pre_routing-ip6: the program is not attached") {
		t.Errorf("faults %q", faults)
	}
	if got, err := l.EnsureEarly(); err != nil || got != Repaired {
		t.Errorf("%v (%v), want %v", got, err, Repaired)
	}
	mustBeAttached(t, dir, true)
}

func TestNothingIsResumedWhereNothingWasSuspended(t *testing.T) {
	_, dir := room(t)
	l := newLinks(t, dir, programs(t))
	if err := l.ResumeEarly(); err != nil {
		t.Fatal(err)
	}
	if at := hookPrograms(t, dir); len(at) != 0 {
		t.Errorf("attached %v", at)
	}
}
