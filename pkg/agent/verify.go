package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/metrics"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/verify"
)

// Verifier compares the kernel's state with the demands of the objects. It runs beside the loop and blocks it for short moments only,
// at the lowest priority, and uses at most half of a CPU. Safe for concurrent use.
type Verifier struct {
	loop    *Loop
	kernel  verify.Kernel
	metrics *metrics.Metrics
	log     *slog.Logger
	busy    sync.Mutex
}

// NewVerifier returns the Verifier of a loop and its dataplane; nil for a dataplane that cannot be verified.
func NewVerifier(l *Loop, k verify.Kernel, m *metrics.Metrics, log *slog.Logger) *Verifier {
	if k == nil {
		return nil
	}
	return &Verifier{loop: l, kernel: k, metrics: m, log: log}
}

// dueEvery is the interval at which Repeat checks whether a verification is due. The setting verify-every takes no shorter one.
const dueEvery = 10 * time.Second

// Repeat verifies all endpoints at the configured interval, until ctx ends. A nil Verifier does nothing.
func (v *Verifier) Repeat(ctx context.Context) {
	if v == nil {
		return
	}
	due := time.NewTicker(dueEvery)
	defer due.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-due.C:
		}
		every := time.Duration(0)
		if v.loop.Query(ctx, func(view View) { every = view.Settings.Config().VerifyEvery }) != nil {
			return
		}
		v.metrics.VerifyEvery(every)
		if every == 0 || time.Since(last) < every || !v.loop.Status().InSync {
			continue
		}
		last = time.Now()
		if _, err := v.Run(ctx, model.EndpointID{}); err != nil && ctx.Err() == nil {
			v.log.Warn("could not verify what is enforced", "err", err)
		}
	}
}

// note reports a verification of all endpoints in metrics and the log.
func (v *Verifier) note(r *inspect.Verification) {
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	v.metrics.Verified(metrics.Verification{Differences: len(r.Differences), NotProven: len(r.NotProven), Took: seconds(r.Took.Seconds),
		CPU: seconds(r.Took.CPUSeconds), Ended: r.Started.Add(seconds(r.Took.Seconds))})
	log := v.log.With("endpoints", r.Endpoints, "packets", r.Questions, "notProven", len(r.NotProven), "took", seconds(r.Took.Seconds),
		"cpu", seconds(r.Took.CPUSeconds))
	if len(r.Differences) > 0 {
		log.Error("the kernel differs from what is desired; see margay verify", "differences", len(r.Differences), "first", r.Differences[0].Text)
		return
	}
	log.Info("verified what is enforced")
}

// ErrVerifying is the error of Run while another verification is under way.
var ErrVerifying = errors.New("another verification is under way")

// errNothing is the error of a dataplane without a Verifier.
var errNothing = errors.New("this dataplane cannot be verified")

// Run verifies an endpoint, or all endpoints of this node if id is zero. With an error there is no result.
func (v *Verifier) Run(ctx context.Context, id model.EndpointID) (*inspect.Verification, error) {
	if v == nil {
		return nil, errNothing
	}
	if !v.busy.TryLock() {
		return nil, ErrVerifying
	}
	defer v.busy.Unlock()
	var report *inspect.Verification
	err := errors.New("verification has ended early")
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with its priority
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, syscall.Gettid(), lowestPriority)
		report, err = newVerification(ctx, v, id).run()
	}()
	<-done
	if err == nil && id == (model.EndpointID{}) {
		v.note(report)
	}
	return report, err
}

const (
	lowestPriority = 19
	// working is the time that a verification works before it pauses for the same time.
	working = 4 * time.Millisecond
	// mostRounds bounds the rounds of one verification.
	mostRounds = 4
)

// pause is called between parts of the work, and waits if the work has lasted long enough. The error is that of the context.
func (v *verification) pause() error {
	if now := time.Now(); now.Sub(v.since) >= working {
		select {
		case <-v.ctx.Done():
		case <-time.After(working):
		}
		v.since = time.Now()
	}
	return v.ctx.Err()
}

// cpu returns the CPU time that this thread has used.
func cpu() time.Duration {
	const thisThread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	if syscall.Getrusage(thisThread, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// verify answers with a verification of one endpoint or all.
func (a *API) verify(r *http.Request) (inspect.Answer, error) {
	var id model.EndpointID
	if text := r.FormValue("endpoint"); text != "" {
		id = ParseEndpoint(text)
	}
	report, err := a.Verifier.Run(r.Context(), id)
	return inspect.Answer{Verification: report}, err
}
