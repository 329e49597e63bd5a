package kubernetes

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// follower is the server as the Reflector of one kind sees it: one that is never away and never in trouble, only slow.
// Requests that fail for a while are repeated here, as they were, so that no outage costs a new list. The Reflector
// gets to see only errors that make it ask for something else: that history is gone, or that lists cannot be streamed.
type follower struct {
	kind   *kind
	api    api
	cancel context.CancelCauseFunc // ends the Reflector
	pause  backoff
	stuck  bool // the last watch ended with an error before anything came
	outage int  // after which the server had the version that a watch had come to, see history
}

const (
	// requestTimeout is for requests that have an end. The server gives up sooner.
	requestTimeout = 90 * time.Second
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
		list = &internalversion.List{}
		of, err := f.api.List(ctx, o, func(item runtime.Object) error {
			converted, err := f.kind.converted(item)
			if err == nil {
				list.Items = append(list.Items, converted)
			}
			return err
		})
		list.ListMeta = of
		return err
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// WatchWithContext implements cache.WatcherWithContext. The objects of the events are converted.
func (f *follower) WatchWithContext(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	var conversion *conversion
	err := f.persist(ctx, o, func() error {
		if err := f.checkHistory(ctx, o); err != nil {
			return err
		}
		w, err := f.begin(ctx, o)
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
	f.kind.source.gate.running.Go(conversion.run) // it may use the gate, which must not be after Run has ended
	return conversion, nil
}

// errSilent is a watch that is not answered, by a proxy most likely: the connection lives.
var errSilent = errors.New("a watch was not answered in time")

// begin asks for a watch. That has no end of its own, but its beginning must come in time.
func (f *follower) begin(ctx context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
	asking, cancel := context.WithCancel(ctx)
	patience := time.AfterFunc(requestTimeout, cancel)
	w, err := f.api.Watch(asking, o)
	inTime := patience.Stop()
	switch {
	case inTime && err == nil:
		return endedWatch{w, cancel}, nil
	case err == nil:
		w.Stop()
	}
	cancel()
	if !inTime && ctx.Err() == nil {
		err = errSilent
	}
	return nil, err
}

// endedWatch ends its request when it is stopped.
type endedWatch struct {
	apiwatch.Interface
	cancel context.CancelFunc
}

// Stop implements watch.Interface.
func (w endedWatch) Stop() {
	w.Interface.Stop()
	w.cancel()
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
		case f.kind.Optional && apierrors.IsNotFound(err):
			f.cancel(&goneError{err})
			return err
		}
		if !f.ready(ctx, err) {
			return ctx.Err()
		}
	}
}

// ready notes a failure and waits until it is time for another attempt. It reports false if ctx ended.
func (f *follower) ready(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false // that is what ended it
	}
	f.kind.failed(err)
	if concernsAll(err) && f.kind.source.gate.wait(ctx, err) {
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
