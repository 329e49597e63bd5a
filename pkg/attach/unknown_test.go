package attach

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
)

// A newer agent has left a program at a hook that this one does not know. It is detached, and what this agent pins is not.
func TestProgramsOfANewerAgentAreDetached(t *testing.T) {
	_, dir := room(t)
	l := newLinks(t, dir, programs(t))
	if _, err := ensureAll(l); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Ensure(veth(t, "cali-a")); err != nil {
		t.Fatal(err)
	}
	attach := func() (link.Link, error) {
		return link.AttachNetfilter(link.NetfilterOptions{Program: program(t, ebpf.Netfilter, 1), ProtocolFamily: link.NetfilterProtoIPv4,
			Hook: link.NetfilterInetPostRouting, Priority: -7})
	}
	newer, err := attach()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(newer.Pin(filepath.Join(dir, "guard-post_routing-ip4-7")), newer.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := attach(); !errors.Is(err, unix.EBUSY) {
		t.Fatalf("%v: the program of the newer agent is not attached, so this tests nothing", err)
	}
	for _, want := range [][]string{{"guard-post_routing-ip4-7"}, nil} {
		if removed, err := l.RemoveUnknown(); err != nil || !slices.Equal(removed, want) {
			t.Errorf("removed %q (%v), want %q", removed, err, want)
		}
	}
	testutil.WaitFor(t, 10*time.Second, "the program of the newer agent to be detached", func() bool { // the kernel does it a moment later
		again, err := attach()
		if err == nil {
			again.Close()
		}
		return err == nil
	})
	if names, err := pinNames(dir); err != nil || len(names) != 2+allHooks {
		t.Errorf("pins %v (%v), want those of this agent", names, err)
	}
}
