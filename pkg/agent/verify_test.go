package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/margay-project/margay/pkg/config"
	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/metrics"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/verify"
)

// emptyKernel is a kernel without endpoints, with what somebody has altered in it. A test that looks at it or changes it beside
// Repeat does so between verifications, by between.
type emptyKernel struct {
	mu           sync.Mutex
	begun, ended int
	faults       []string
	skipped      []string // why the first part could not be compared, by round
	rounds       int
	err          error // of all reads
}

// between calls do while no verification is under way.
func (k *emptyKernel) between(do func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	do()
}

// verifications is how many have begun.
func (k *emptyKernel) verifications() (n int) {
	k.between(func() { n = k.begun })
	return n
}

func (k *emptyKernel) Begin(func() error) error { k.between(func() { k.begun++ }); return nil }
func (k *emptyKernel) Round() error             { k.rounds++; return nil }
func (k *emptyKernel) HasMarks() bool           { return true }
func (k *emptyKernel) End() error               { k.between(func() { k.ended++ }); return nil }
func (k *emptyKernel) Entries() ([]verify.Entry, error) {
	return []verify.Entry{{Prefix: netip.MustParsePrefix("0.0.0.0/0")}, {Prefix: netip.MustParsePrefix("::/0"), Class: 1}}, k.err
}
func (k *emptyKernel) ClassSets() (map[uint32][]uint32, error) { return nil, k.err }
func (k *emptyKernel) Policy(verify.PolicyID, model.Direction) (verify.Policy, error) {
	return nil, k.err
}
func (k *emptyKernel) InForce(model.EndpointID) (p [2]verify.PolicyID, ok bool, err error) {
	return p, false, k.err
}
func (k *emptyKernel) Entry(netip.Addr) (verify.Entry, error) { return verify.Entry{}, k.err }
func (k *emptyKernel) Staged(model.EndpointID) (p [2]verify.PolicyID, err error) {
	return p, k.err
}
func (k *emptyKernel) HostAddrs() []netip.Addr                      { return nil }
func (k *emptyKernel) Sets() []verify.Set                           { return nil }
func (k *emptyKernel) SetsOf(uint32) ([]uint32, error)              { return nil, k.err }
func (k *emptyKernel) SetFault(verify.Set) (string, error)          { return "", k.err }
func (k *emptyKernel) Faults(model.EndpointID) (verify.Part, error) { return verify.Part{}, k.err }
func (k *emptyKernel) NodeFaults() ([]verify.Part, error) {
	first := verify.Part{Name: "first"}
	if k.rounds <= len(k.skipped) {
		first.Skipped = k.skipped[k.rounds-1]
	}
	return []verify.Part{first, {Name: "second", Faults: k.faults}}, k.err
}

// runVerifier calls do with a loop in sync and a Verifier of a kernel without endpoints, verified as often as configured.
func runVerifier(t *testing.T, every string, do func(t *testing.T, r *rig, v *Verifier, k *emptyKernel)) {
	t.Helper()
	settings, _, err := config.New(config.Local{Host: "n", Flags: []config.Flag{{Name: "verify-every", Value: every}}})
	if err != nil {
		t.Fatal(err)
	}
	var counts *metrics.Metrics
	runPrepared(t, itself, func(o *Options) { o.Settings, counts = settings, o.Metrics }, func(t *testing.T, r *rig) {
		r.store.Sync()
		synctest.Wait()
		k := &emptyKernel{}
		v := NewVerifier(r.Loop, k, counts, slog.New(slog.NewTextHandler(&r.log, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan bool)
		go func() {
			v.Repeat(ctx)
			close(ended)
		}()
		do(t, r, v, k)
		cancel()
		<-ended
		if k.begun != k.ended {
			t.Errorf("%d verifications began and %d ended", k.begun, k.ended)
		}
	})
}

func TestTheAgentVerifiesAsOftenAsConfigured(t *testing.T) {
	runVerifier(t, "1h", func(t *testing.T, r *rig, v *Verifier, k *emptyKernel) {
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		if n := k.verifications(); n != 0 {
			t.Errorf("%d verifications before an hour was over", n)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := k.verifications(); n != 1 || !strings.Contains(r.log.String(), "verified what is enforced") {
			t.Errorf("%d verifications in an hour, log:\n%s", n, r.log.String())
		}
		r.log.Reset()
		k.between(func() { k.faults = []string{"slot 7 is altered"} })
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := k.verifications(); n != 2 || !strings.Contains(r.log.String(), "slot 7 is altered") {
			t.Errorf("%d verifications in two hours, log:\n%s", n, r.log.String())
		}
		r.log.Reset()
		k.between(func() { k.faults, k.err = nil, errors.New("no maps") })
		time.Sleep(time.Hour)
		if synctest.Wait(); !strings.Contains(r.log.String(), "could not verify") || !strings.Contains(r.log.String(), "no maps") {
			t.Errorf("log of a failure:\n%s", r.log.String())
		}
	})
}

func TestTheAgentDoesNotVerifyUnlessAsked(t *testing.T) {
	runVerifier(t, "0s", func(t *testing.T, _ *rig, v *Verifier, k *emptyKernel) {
		time.Sleep(24 * time.Hour)
		if synctest.Wait(); k.begun != 0 {
			t.Errorf("%d verifications", k.begun)
		}
		if report, err := v.Run(t.Context(), model.EndpointID{}); err != nil || !report.Proven || k.begun != 1 {
			t.Errorf("%+v, %v", report, err)
		}
	})
}

func TestVerificationsThatCannotBe(t *testing.T) {
	runVerifier(t, "0s", func(t *testing.T, _ *rig, v *Verifier, k *emptyKernel) {
		if _, err := v.Run(t.Context(), model.WorkloadID("shop", "none")); err == nil || !strings.Contains(err.Error(), "no local endpoint shop/none") {
			t.Errorf("of a pod that is not here: %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := v.Run(ended, model.EndpointID{}); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}
		v.busy.Lock()
		if _, err := v.Run(t.Context(), model.EndpointID{}); !errors.Is(err, ErrVerifying) {
			t.Errorf("while another one is under way: %v", err)
		}
		v.busy.Unlock()
		var none *Verifier
		if _, err := none.Run(t.Context(), model.EndpointID{}); err == nil {
			t.Error("a dataplane without anything to verify is verified")
		}
	})
}

// niceKernel knows the priority of the thread that reads it.
type niceKernel struct {
	*emptyKernel
	nice int
}

func (k *niceKernel) Entries() ([]verify.Entry, error) {
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, unix.Gettid())
	k.nice = 20 - raw // as the kernel returns it
	return nil, errors.Join(err, k.err)
}

// TestAVerificationHasTheLowestPriority: that of its thread alone.
func TestAVerificationHasTheLowestPriority(t *testing.T) {
	runVerifier(t, "0s", func(t *testing.T, r *rig, v *Verifier, _ *emptyKernel) {
		before, err := unix.Getpriority(unix.PRIO_PROCESS, unix.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		k := &niceKernel{emptyKernel: &emptyKernel{}}
		if _, err := NewVerifier(r.Loop, k, v.metrics, v.log).Run(t.Context(), model.EndpointID{}); err != nil {
			t.Fatal(err)
		}
		if after, err := unix.Getpriority(unix.PRIO_PROCESS, unix.Getpid()); k.nice != lowestPriority || err != nil || after != before {
			t.Errorf("nice is %d, and that of the process %d, before %d: %v", k.nice, 20-after, 20-before, err)
		}
	})
}

// TestAnEndpointThatIsNotInTheKernelIsADifference: the dataplane believes that it enforces the pod.
func TestAnEndpointThatIsNotInTheKernelIsADifference(t *testing.T) {
	runVerifier(t, "0s", func(t *testing.T, r *rig, v *Verifier, k *emptyKernel) {
		r.put(pod(1))
		report, err := v.Run(t.Context(), model.EndpointID{})
		if err != nil || len(report.Differences) == 0 || !strings.Contains(report.Differences[len(report.Differences)-1].Text, "t/p1: the kernel has no endpoint") {
			t.Errorf("%+v, %v", report, err)
		}
	})
}

// TestAPartThatNoRoundComparesIsNotProven: one round that compares it is enough, and further rounds are made for it.
func TestAPartThatNoRoundComparesIsNotProven(t *testing.T) {
	runVerifier(t, "0s", func(t *testing.T, _ *rig, v *Verifier, k *emptyKernel) {
		for _, test := range []struct {
			skipped []string
			rounds  int
			proven  bool
		}{
			{nil, 1, true}, {[]string{"written"}, 2, true}, {[]string{"", "written"}, 1, true},
			{[]string{"a", "b", "c", "d"}, mostRounds, false},
		} {
			k.skipped, k.rounds = test.skipped, 0
			report, err := v.Run(t.Context(), model.EndpointID{})
			if err != nil || report.Proven != test.proven || report.Took.Rounds != test.rounds {
				t.Errorf("skipped %q: %+v, %v", test.skipped, report, err)
			}
			if want := (inspect.NotProvenRow{Part: "first", Reason: "d"}); !test.proven && (len(report.NotProven) != 1 || report.NotProven[0] != want) {
				t.Errorf("skipped %q: not proven are %+v, want %+v", test.skipped, report.NotProven, want)
			}
		}
	})
}
