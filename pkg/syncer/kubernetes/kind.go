package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
)

// kind follows one kind of object of an API server.
type kind struct {
	kinds.Kind
	places []schema.GroupVersionResource // where it may be served, in order of preference
	source *Source
	shared *sharing
	store  *store
	log    *slog.Logger
	heard  syncer.ProblemLog
	pause  backoff // of the goroutine of run

	mu           sync.Mutex
	status       syncer.KindStatus
	failingSince time.Time // zero: it does not fail
	forbidden    bool      // that is why
	cut          bool      // the last failure was errCut
	logged       bool      // the log knows that it fails
}

func newKind(spec kinds.Kind, source *Source, shared *sharing) *kind {
	k := &kind{
		Kind: spec, places: spec.GroupVersionResources(), source: source, shared: shared,
		log:    source.log.With("kind", spec.Ref),
		status: syncer.KindStatus{Kind: spec.Ref, State: syncer.KindListing, Required: spec.Required, Since: time.Now()},
	}
	k.heard.Log = k.log
	k.store = newStore(shared, spec.Absent, source.deliver, k.noted)
	if spec.Name == "Tier" {
		k.store.came = source.groups.relisting.noteTier
	}
	return k
}

// Reasons why following a resource ends other than with its context.

// errBetter: the kind is served in a better place.
var errBetter = errors.New("the kind is served in a better place")

// goneError is an answer that the server does not know the resource.
type goneError struct{ answer error }

// Error implements error.
func (e *goneError) Error() string { return e.answer.Error() }

// missed is a place where the resource is not found although discovery names it: one of several servers lacks it, or a server
// behind the cluster's works in part.
type missed struct {
	place  int
	times  int // in a row; 0: none
	answer error
}

// note records how following the resource at a place has ended.
func (m *missed) note(place int, cause error, listed bool) {
	gone := (*goneError)(nil)
	switch {
	case !errors.As(cause, &gone):
		m.times = 0
		return
	case listed || place != m.place:
		m.times = 0
	}
	m.place, m.times, m.answer = place, m.times+1, gone.answer
}

// run follows the kind, wherever it is served, until ctx ends. apis belong to the candidates, by their positions.
func (k *kind) run(ctx context.Context, apis []api) {
	var missed missed
	place := 0
	for ctx.Err() == nil {
		i, found := 0, true
		if k.Optional {
			i, found = k.locate(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		if !found {
			missed.times = 0
			k.store.forget()
			k.heard.Write(k.store.drainTurns(), time.Now())
			k.absentNow()
			sleep(ctx, k.source.discovery.pause(k.source.ProbeEvery))
			continue
		}
		if missed.times > 0 && missed.place == i {
			k.failed(missed.answer)
			if missed.times > 1 { // once is usual: servers learn of a new CRD one after the other
				k.complain()
			}
		}
		if i != place {
			place = i
			k.store.moved()
		}
		lists := k.snapshot().Lists
		cause := k.follow(ctx, apis, i)
		listed := k.snapshot().Lists > lists
		if listed {
			k.pause.reset()
		}
		missed.note(i, cause, listed)
		sleep(ctx, k.pause.next(nil))
	}
}

// follow lists and watches at one place until ctx ends, or the kind is to be looked for again. It returns why.
func (k *kind) follow(ctx context.Context, apis []api, candidate int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var looking sync.WaitGroup
	defer looking.Wait()
	if candidate > 0 {
		looking.Go(func() { k.lookForBetter(ctx, cancel) })
	} else {
		defer k.source.groups.relisting.follows(k, cancel)()
	}
	f := &follower{kind: k, api: apis[candidate], cancel: cancel, outage: k.source.gate.past()}
	// The follower waits where waiting helps. This is for new lists after the server has forgotten
	// where we were.
	pauses := &wait.Backoff{Duration: 25 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 12, Cap: lastPause}
	cache.NewReflectorWithOptions(f, nil, k.store, cache.ReflectorOptions{
		Name: "margay", TypeDescription: k.Ref, Backoff: pauses,
	}).RunWithContext(ctx)
	return context.Cause(ctx)
}

// converted returns the parts that are kept of an object that the server sent.
func (k *kind) converted(obj runtime.Object) (*object, error) {
	o, err := named(obj)
	if err != nil {
		return nil, err
	}
	o.updates, o.problems, o.ok = k.Convert(obj)
	for i, u := range o.updates {
		var sh *shape
		if o.updates[i], sh = k.shared.update(model.Pack(u)); sh != nil {
			o.shape = sh
		}
	}
	return o, nil
}

// failed notes that the kind could not be listed or followed.
func (k *kind) failed(err error) {
	text := k.source.client.Explain(err)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status.Failures++
	k.status.Error = text
	k.forbidden, k.cut = statusCode(err) == http.StatusForbidden, errors.Is(err, errCut)
	if k.failingSince.IsZero() {
		k.failingSince = time.Now()
	}
	if k.status.Listed || !k.Required {
		k.enter(syncer.KindFailing)
	}
	k.source.noteChange()
}

// complain logs why the kind fails, once until it works again.
func (k *kind) complain() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.logged {
		return
	}
	k.logged = true
	meanwhile := "its last known objects stay in force"
	switch {
	case !k.status.Listed && k.Required:
		meanwhile = "nothing new is enforced before it has been listed"
	case !k.status.Listed:
		meanwhile = "policy is enforced without it"
	}
	k.log.Warn("a kind of object cannot be followed, will try again; "+meanwhile, "err", k.status.Error)
}

// works notes that the kind, which has been listed, is followed again.
func (k *kind) works() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.recovered()
}

func (k *kind) recovered() {
	if k.logged {
		k.log.Info("a kind of object is followed again", "objects", k.status.Objects)
	}
	k.logged, k.failingSince, k.forbidden, k.cut, k.status.Error = false, time.Time{}, false, false, ""
	k.enter(syncer.KindSynced)
}

// noted is called by the store.
func (k *kind) noted(event storeEvent, objects int) {
	k.heard.Write(k.store.drainTurns(), time.Now())
	k.mu.Lock()
	defer k.mu.Unlock()
	defer k.source.noteReport()
	k.status.Objects = objects
	switch event {
	case changeSeen:
		k.status.Events++
	case listSeen:
		k.status.Lists++
		k.status.Listed = true
		k.recovered()
		k.source.noteChange()
	}
}

// absentNow notes that no server serves the kind.
func (k *kind) absentNow() {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.status.State == syncer.KindAbsent:
	case k.status.Objects > 0:
		k.log.Info("a kind of object is not served by the cluster any more; it will be looked for again")
	default: // most clusters lack most of the kinds that may be absent, and show status says which
		k.log.Debug("the cluster does not serve a kind of object; the agent looks for it again later")
	}
	k.logged, k.failingSince, k.forbidden, k.cut = false, time.Time{}, false, false
	k.status.Error = "the API server does not serve " + placesText(k.places)
	k.status.Objects, k.status.Listed = 0, true
	k.enter(syncer.KindAbsent)
	k.source.noteChange()
}

func (k *kind) enter(state syncer.KindState) {
	k.source.noteReport()
	if k.status.State != state {
		k.status.State, k.status.Since = state, time.Now()
	}
}

func (k *kind) snapshot() syncer.KindStatus {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.status
}

// during is snapshot during an outage. The gate's description of the outage replaces the error of a watch that was cut;
// empty: there is no outage.
func (k *kind) during(outage string) syncer.KindStatus {
	k.mu.Lock()
	defer k.mu.Unlock()
	status := k.status
	if outage != "" && k.cut {
		status.Error = outage
	}
	return status
}

// holdsUp is for how long the kind may still hold up InSync, if the required kinds are complete since then.
func (k *kind) holdsUp(since time.Time, patience, slowPatience time.Duration) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.status.Listed, k.forbidden:
		return 0
	case k.failingSince.After(since):
		since = k.failingSince
	}
	if !k.failingSince.IsZero() {
		return max(0, patience-time.Since(since))
	}
	return max(0, slowPatience-time.Since(since))
}

// placesText names where a kind may be served.
func placesText(candidates []schema.GroupVersionResource) string {
	text := ""
	for i, c := range candidates {
		if i > 0 {
			text += " nor "
		}
		text += c.Resource + " of " + c.GroupVersion().String()
	}
	return text
}
