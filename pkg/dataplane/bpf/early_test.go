package bpf

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
)

func TestGuardIsSuspendedWhileAnAgentHasRunForAWhile(t *testing.T) {
	testutil.Privileged(t)
	n := openNode(t, testutil.BPFFS(t), nil)
	clock := time.Unix(0, 0)
	n.kernel.early = newEarly(func() time.Time { return clock })
	refused := errors.New("refused")
	n.host.Fail[0] = refused
	if err := n.apply(restartStages[0].updates()...); !errors.Is(err, refused) {
		t.Fatal(err)
	}
	delete(n.host.Fail, 0)
	step := func(what string, after time.Duration, want bool) {
		t.Helper()
		clock = time.Unix(0, 0).Add(after)
		if n.mustApply(t); n.host.Early != want {
			t.Errorf("%s: guard is attached %t, want %t", what, n.host.Early, want)
		}
	}
	step("at first", 0, true)
	step("a moment before", earlyFor-1, true)
	step("after ten minutes", earlyFor, false)
	n.Resync()
	step("after a look at all", earlyFor, false)
	if mustClose(t, n.BPF); !n.host.Early {
		t.Error("guard is not attached when the agent has ended")
	}
}

func TestAnAgentThatEndsBeforePolicyIsEnforcedAttachesNothing(t *testing.T) {
	testutil.Privileged(t)
	n := openNode(t, testutil.BPFFS(t), nil)
	if mustClose(t, n.BPF); n.host.Early {
		t.Error("guard is attached, and cuts off all pods")
	}
}

// TestGuardIsResumedByTheNextAgentBeforeItHasAnyPolicy: on real hooks. The first agent is killed after more than ten minutes.
func TestGuardIsResumedByTheNextAgentBeforeItHasAnyPolicy(t *testing.T) {
	testutil.Privileged(t)
	testutil.NetNS(t).Enter(t)
	c := dataplane.Defaults()
	c.BPFFS = testutil.BPFFS(t)
	open := func() *BPF {
		host, err := OpenLinux("cali", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		dp, err := OpenBPF(c, host, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return dp
	}
	want := func(when string, want bool) {
		t.Helper()
		if got := isGuarded(t); got != want {
			t.Errorf("%s: guard is attached %t, want %t", when, got, want)
		}
	}
	apply := func(dp *BPF, updates ...model.Update) {
		t.Helper()
		graph := calc.New("n")
		graph.Apply(updates)
		if err := dp.Apply(t.Context(), graph.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	first := open()
	want("before any plan", false)
	apply(first, restartStages[0].updates()...)
	want("when policy is enforced", true)
	first.kernel.early.began = first.kernel.early.began.Add(-earlyFor)
	apply(first)
	want("after ten minutes", false)
	first.state.interfaces.guarded = false // so that Close does as little as SIGKILL lets it
	mustClose(t, first)
	want("once the first agent is killed", false)

	second := open()
	want("once the second one has started", true)
	apply(second, restartStages[0].updates()...)
	want("when it enforces policy", true)
	mustClose(t, second)
	want("once it has ended", true)
}

// isGuarded reports whether a program of BPF is at the first place before conntrack, or the second.
func isGuarded(t *testing.T) bool {
	t.Helper()
	accept, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Netfilter, AttachType: ebpf.AttachNetfilter, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer accept.Close()
	for _, priority := range []int32{-500, -501} {
		other, err := link.AttachNetfilter(link.NetfilterOptions{Program: accept, ProtocolFamily: link.NetfilterProtoIPv4,
			Hook: link.NetfilterInetPreRouting, Priority: priority})
		if errors.Is(err, unix.EBUSY) {
			return true
		}
		if err != nil {
			t.Fatal(err)
		}
		other.Close()
	}
	return false
}
