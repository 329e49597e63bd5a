package bpfroom

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
)

// What the library says of the kernel after a map could not be made is replaced by what was missing; every other error stays.
func TestWantOfRoomIsNotTakenForAKernelWithoutTheFeature(t *testing.T) {
	testutil.Privileged(t)
	unsupported, other := fmt.Errorf("map create: %w", ebpf.ErrNotSupported), errors.New("other")
	if err := Lacks(); err != nil {
		t.Errorf("with room: %v", err)
	}
	if err := Explain(unsupported); !strings.Contains(err.Error(), "a moment ago") || !strings.Contains(err.Error(), unsupported.Error()) {
		t.Errorf("with room again: %v", err)
	}
	withDescriptors(t, descriptors)
	if err := Lacks(); !errors.Is(err, unix.EMFILE) || !Short(err) {
		t.Errorf("without file descriptors: %v", err)
	}
	if err := Explain(unsupported); !errors.Is(err, unix.EMFILE) || errors.Is(err, ebpf.ErrNotSupported) {
		t.Errorf("without file descriptors: %v", err)
	}
	if err := Explain(other); err != other {
		t.Errorf("another error became %v", err)
	}
	withDescriptors(t, 0)
	if err := Lacks(); !Short(err) {
		t.Errorf("without any: %v", err)
	}
}

// withDescriptors lowers how many file descriptors this process may have, those that it has included, until the test ends.
func withDescriptors(t *testing.T, n uint64) {
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	})
}
