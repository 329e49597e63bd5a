// Package testutil is what privileged tests share: the probe that lets them skip, network namespaces and BPF file
// systems that clean up after themselves, packets for program test-runs, and a bounded wait.
package testutil

import (
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/margay-project/margay/pkg/lab/ns"
)

// RequireEnv set to 1 makes a privileged test fail where it would skip.
const RequireEnv = "MARGAY_REQUIRE_PRIVILEGED"

var probe = sync.OnceValue(func() error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type:         ebpf.SchedCLS,
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		License:      "GPL",
	})
	if err != nil {
		return fmt.Errorf("load a BPF program: %w", err)
	}
	space, err := ns.Create(ns.Prefix + ns.NewID())
	if err != nil {
		return errors.Join(err, prog.Close())
	}
	return errors.Join(space.Close(), prog.Close())
})

// Privileged skips the test unless BPF programs can be loaded and network namespaces made. With
// MARGAY_REQUIRE_PRIVILEGED=1 the test fails instead.
func Privileged(t testing.TB) {
	t.Helper()
	if err := probe(); err != nil {
		Missing(t, fmt.Sprintf("needs privileges: %v", err))
	}
}

// RequireCommand skips, or with MARGAY_REQUIRE_PRIVILEGED=1 fails, a test that needs a command this machine has not got.
func RequireCommand(t testing.TB, name string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		Missing(t, fmt.Sprintf("needs the command %s: %v", name, err))
	}
}

// RequireKernelEnv set to 1 makes a test fail that needs what this kernel has not got, where it would skip.
const RequireKernelEnv = "MARGAY_REQUIRE_KERNEL"

// RequireKernel skips a test that needs a part of the kernel which the machine of tests need not have; err is why it is not
// there, nil: it is. `make kernels` runs such tests on kernels that have it, with MARGAY_REQUIRE_KERNEL=1, and so they
// fail there instead.
func RequireKernel(t testing.TB, what string, err error) {
	t.Helper()
	switch {
	case err == nil:
	case Getenv(RequireKernelEnv) == "1":
		t.Fatalf("needs %s: %v, and %s=1 forbids skipping", what, err, RequireKernelEnv)
	default:
		t.Skipf("needs %s: %v; make kernels runs it where that is", what, err)
	}
}

// Missing skips, or with MARGAY_REQUIRE_PRIVILEGED=1 fails, a test that cannot do its work here, for the reason given.
func Missing(t testing.TB, reason string) {
	t.Helper()
	if Getenv(RequireEnv) == "1" {
		t.Fatalf("%s, and %s=1 forbids skipping", reason, RequireEnv)
	}
	t.Skip(reason)
}
