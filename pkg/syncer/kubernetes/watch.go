package kubernetes

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

const (
	// streamPatience is how long the initial events of a streamed list may pause, before a list is asked for as of old:
	// some servers do not know streamed lists and take them for watches.
	streamPatience = 10 * time.Second
	// watchGrace is by how much a watch may outlast the time it was asked for, which its server keeps to, before it is left:
	// a proxy may keep a connection alive whose server is gone.
	watchGrace = time.Minute
	// shortWatch is what a watch must last to count as one that works, however little came.
	shortWatch = time.Second
)

// conversion is a watch whose objects are converted.
type conversion struct {
	f       *follower
	ctx     context.Context
	source  apiwatch.Interface
	first   *apiwatch.Event // received already
	at      string          // the version it has come to
	initial bool            // initial events come first
	limit   time.Duration   // after which the watch is left; 0: never
	result  chan apiwatch.Event
	stop    sync.Once
	stopped chan struct{}
}

func (f *follower) newConversion(ctx context.Context, w apiwatch.Interface, o metav1.ListOptions) (*conversion, error) {
	c := &conversion{
		f: f, ctx: ctx, source: w, at: o.ResourceVersion, initial: o.SendInitialEvents != nil && *o.SendInitialEvents,
		result: make(chan apiwatch.Event), stopped: make(chan struct{}),
	}
	if o.TimeoutSeconds != nil {
		c.limit = time.Duration(*o.TimeoutSeconds)*time.Second + watchGrace
	}
	select {
	case e, open := <-w.ResultChan():
		if !open {
			w.Stop()
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
	var over <-chan time.Time
	if c.limit > 0 {
		over = time.After(c.limit)
	}
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
			case <-over:
				open = false
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
	err, failed := errCut, false
	if e.Type == apiwatch.Error {
		if said := apierrors.FromObject(e.Object); !broken(said) { // client-go makes an answer of the server of either
			err, failed = said, true
		}
	}
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
		// Without this word, which says nothing new, the Reflector would list again after a short watch.
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
