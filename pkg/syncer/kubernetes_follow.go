package syncer

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/margay-project/margay/pkg/kube"
)

// follower is the server as the Reflector of one kind sees it: one that is never away and never in trouble, only slow.
// Requests that fail for a while are repeated here, as they were, so that no outage costs a new list. The Reflector
// gets to see only errors that make it ask for something else: that history is gone, or that lists cannot be streamed.
type follower struct {
	kind   *kubeKind
	api    api
	cancel context.CancelCauseFunc // ends the Reflector
	pause  backoff
	stuck  bool // the last watch ended with an error before anything came
}

const (
	// requestTimeout is for requests that have an end. The server gives up sooner.
	requestTimeout = 90 * time.Second
	// streamPatience is how long the initial events of a streamed list may pause, before a list is asked for as of old:
	// some servers do not know streamed lists and take them for watches.
	streamPatience = 10 * time.Second
	// shortWatch is what a watch must last to count as one that works, however little came.
	shortWatch = time.Second
)

// IsWatchListSemanticsUnSupported is asked by the Reflector whether it must not stream lists.
func (f *follower) IsWatchListSemanticsUnSupported() bool { return !f.api.streams() }

// List implements cache.ListerWatcher; ListWithContext is what the Reflector calls.
func (f *follower) List(o metav1.ListOptions) (runtime.Object, error) {
	return f.ListWithContext(context.Background(), o)
}

// Watch implements cache.ListerWatcher; WatchWithContext is what the Reflector calls.
func (f *follower) Watch(o metav1.ListOptions) (apiwatch.Interface, error) {
	return f.WatchWithContext(context.Background(), o)
}

// ListWithContext implements cache.ListerWithContext. The objects of the list are converted.
func (f *follower) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	var list *internalversion.List
	err := f.persist(ctx, o, func() error {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		answer, err := f.api.List(ctx, o)
		if err == nil {
			list, err = f.convertList(answer)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

func (f *follower) convertList(answer runtime.Object) (*internalversion.List, error) {
	m, err := meta.ListAccessor(answer)
	if err != nil {
		return nil, err
	}
	list := &internalversion.List{Items: make([]runtime.Object, 0, meta.LenList(answer))}
	list.ResourceVersion, list.Continue, list.RemainingItemCount = m.GetResourceVersion(), m.GetContinue(), m.GetRemainingItemCount()
	err = meta.EachListItem(answer, func(item runtime.Object) error {
		o, err := f.kind.converted(item)
		if err == nil {
			list.Items = append(list.Items, o)
		}
		return err
	})
	return list, err
}

// WatchWithContext implements cache.WatcherWithContext. The objects of the events are converted.
func (f *follower) WatchWithContext(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	var conversion *conversion
	err := f.persist(ctx, o, func() error {
		w, err := f.api.Watch(ctx, o)
		if err != nil {
			return err
		}
		conversion, err = f.newConversion(ctx, w, o)
		return err
	})
	if err != nil {
		return nil, err
	}
	if !conversion.initial {
		f.kind.works()
	}
	go conversion.run()
	return conversion, nil
}

// errCut is a watch that ended before anything came: client-go hides why.
var errCut = errors.New("the connection to the API server broke or could not be made")

// persist repeats a request until it succeeds, or fails in a way that the Reflector must know of, or ctx ends.
func (f *follower) persist(ctx context.Context, o metav1.ListOptions, request func() error) error {
	for {
		err := request()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case expired(err), o.SendInitialEvents != nil && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)):
			return err
		case f.kind.optional && apierrors.IsNotFound(err):
			f.cancel(errGone)
			return err
		}
		if !f.ready(ctx, err) {
			return ctx.Err()
		}
	}
}

// ready notes a failure and waits until it is time for another attempt. It reports false if ctx ended.
func (f *follower) ready(ctx context.Context, err error) bool {
	f.kind.failed(err)
	if kube.Unreachable(err) && f.kind.source.gate.wait(ctx, err) {
		f.pause.reset()
		return ctx.Err() == nil
	}
	f.kind.complain()
	return f.kind.source.gate.sleep(ctx, f.pause.next(err))
}

// expired reports errors that say that the server does not have the version that was asked for.
func expired(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// conversion is a watch whose objects are converted.
type conversion struct {
	f       *follower
	ctx     context.Context
	source  apiwatch.Interface
	first   *apiwatch.Event // received already
	at      string          // the version it has come to
	initial bool            // initial events come first
	result  chan apiwatch.Event
	stop    sync.Once
	stopped chan struct{}
}

func (f *follower) newConversion(ctx context.Context, w apiwatch.Interface, o metav1.ListOptions) (*conversion, error) {
	c := &conversion{
		f: f, ctx: ctx, source: w, at: o.ResourceVersion, initial: o.SendInitialEvents != nil && *o.SendInitialEvents,
		result: make(chan apiwatch.Event), stopped: make(chan struct{}),
	}
	select {
	case e, open := <-w.ResultChan():
		if !open {
			return nil, errCut
		}
		c.first = &e
	default:
	}
	return c, nil
}

// ResultChan implements watch.Interface.
func (c *conversion) ResultChan() <-chan apiwatch.Event { return c.result }

// Stop implements watch.Interface.
func (c *conversion) Stop() {
	c.stop.Do(func() {
		close(c.stopped)
		c.source.Stop()
	})
}

func (c *conversion) run() {
	defer close(c.result)
	defer c.Stop()
	began, came := time.Now(), 0
	idle := time.NewTimer(streamPatience)
	defer idle.Stop()
	for {
		var e apiwatch.Event
		open := true
		if c.first != nil {
			e, c.first = *c.first, nil
		} else {
			select {
			case <-c.stopped:
				return
			case <-idle.C:
				if c.initial {
					c.send(failure(errNoEnd))
					return
				}
				continue
			case e, open = <-c.source.ResultChan():
			}
		}
		idle.Reset(streamPatience)
		if !open || e.Type == apiwatch.Error {
			c.end(e, came, time.Since(began))
			return
		}
		out, err := c.convert(e)
		if err != nil {
			c.send(failure(err))
			return
		}
		if !c.send(out) {
			return
		}
		came++
	}
}

var errNoEnd = errors.New("the server does not end the initial events of a streamed list")

// failure is an event after which the Reflector makes a new list.
func failure(err error) apiwatch.Event {
	status := apierrors.NewInternalError(err).Status()
	return apiwatch.Event{Type: apiwatch.Error, Object: &status}
}

func (c *conversion) convert(e apiwatch.Event) (apiwatch.Event, error) {
	var o *object
	var err error
	switch e.Type {
	case apiwatch.Added, apiwatch.Modified:
		o, err = c.f.kind.converted(e.Object)
	default: // deletions and bookmarks
		o, err = named(e.Object)
	}
	if err != nil {
		return e, err
	}
	e.Object = o
	c.initial = c.initial && !o.endOf
	if !c.initial {
		c.at = o.version
	}
	return e, nil
}

// end is called when the watch is over, with the error event that ended it, if any. The Reflector resumes where it is
// if the channel is closed after some event, and makes a new list after an error.
func (c *conversion) end(e apiwatch.Event, came int, lasted time.Duration) {
	err := errCut
	if e.Type == apiwatch.Error {
		err = apierrors.FromObject(e.Object)
	}
	failed := e.Type == apiwatch.Error && !broken(err)
	switch {
	case expired(err), failed && c.f.stuck && came == 0:
		c.f.stuck = false
		c.send(e)
		return
	case failed, c.initial, came == 0 && lasted < shortWatch:
		// If an error comes again at the same place, a list will help.
		c.f.stuck = failed
		if !c.f.ready(c.ctx, err) {
			return
		}
	default:
		c.f.pause.reset()
	}
	if !c.initial {
		// Without this word, which says nothing new, the Reflector would list anew after a short watch.
		c.send(apiwatch.Event{Type: apiwatch.Bookmark, Object: bookmark(c.at)})
	}
}

// broken reports the errors of a connection that ended in the middle of a watch.
func broken(err error) bool {
	text := err.Error()
	return strings.Contains(text, "http2: ") || strings.Contains(text, "connection")
}

func (c *conversion) send(e apiwatch.Event) bool {
	select {
	case c.result <- e:
		return true
	case <-c.stopped:
		return false
	case <-c.ctx.Done():
		return false
	}
}
