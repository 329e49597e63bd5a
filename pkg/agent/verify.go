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

// Verifier compares what the kernel has with what the objects demand, beside the loop: it asks the loop for short moments
// only, at the lowest priority, and for at most half of a CPU. Safe for concurrent use.
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

// dueEvery is how often Repeat looks whether a verification is due.
const dueEvery = 10 * time.Second

// Repeat verifies all endpoints as often as it is configured, until ctx ends. A nil Verifier does nothing.
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
		if every == 0 || time.Since(last) < every || !v.loop.Status().InSync {
			continue
		}
		last = time.Now()
		if _, err := v.Run(ctx, model.EndpointID{}); err != nil && ctx.Err() == nil {
			v.log.Warn("could not verify what is enforced", "err", err)
		}
	}
}

// note has metrics and log report a verification of all endpoints.
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

// ErrVerifying says that another verification is under way.
var ErrVerifying = errors.New("another verification is under way")

// errNothing says that there is nothing to verify.
var errNothing = errors.New("this dataplane cannot be verified")

// Run verifies an endpoint, or all of this node if id is zero. The error says why it could not.
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
	// working is how long a verification works without a pause of the same length.
	working = 4 * time.Millisecond
	// mostRounds is how often what has changed meanwhile is verified again.
	mostRounds = 4
)

// pause is called between parts of the work.
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

// cpu is the time that this thread has used.
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
