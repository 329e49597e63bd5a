package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
)

const (
	// requestTimeout is for one answer, of a slow server, too.
	requestTimeout = 30 * time.Second
	// pageLimit is how many objects are asked for at once.
	pageLimit = 1000
	// maxSilence is how long a watch may send nothing before it is left. Servers report their progress every ten minutes, unless they
	// are configured otherwise; then leaving it costs a connection and, if nothing has changed since the last list, another list.
	maxSilence = 25 * time.Minute
)

// errSilent: a watch sends nothing, although the connection answers. A proxy may have lost it, or a server neglects it.
var errSilent = errors.New("a watch has been silent for too long")

// errAgain: the datastore is ready again, so it is to be listed.
var errAgain = errors.New("the datastore is ready again")

// session follows the datastore over one connection until that fails or ctx ends.
func (s *Source) session(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	silence := time.AfterFunc(s.maxSilence, func() { cancel(errSilent) })
	defer silence.Stop()
	for {
		silence.Stop() // requests have limits of their own
		w, err := s.begin(ctx, c)
		if err != nil {
			return err
		}
		for err == nil {
			var a answer
			silence.Reset(s.maxSilence)
			a, err = w.next()
			silence.Stop() // the consumer may be slow
			if err == nil {
				err = s.follow(a)
			}
		}
		switch {
		case context.Cause(ctx) == errSilent:
			return errSilent
		case !errors.Is(err, errAgain):
			return err
		}
	}
}

// begin returns a watch of the changes after the known state. It resumes where an earlier watch ended, or lists.
func (s *Source) begin(ctx context.Context, c connection) (stream, error) {
	asked := time.Now()
	ready, at, err := s.ask(ctx, c)
	if err != nil {
		return nil, err
	}
	took := time.Since(asked)
	other := s.at.cluster != 0 && (at.cluster != s.at.cluster || at.revision < s.at.revision)
	if other {
		s.log.Warn("etcd has another history of writes than before, as when it is restored from a snapshot; listing it again",
			"revision", at.revision, "revisionBefore", s.at.revision)
		s.complete = false
		s.objects.moved()
	}
	s.at = at
	if s.noteReady(ready); !s.ready {
		s.mark, s.complete = mark{}, false
		s.deliver(nil)
		return c.watch(ctx, at.revision+1)
	}
	if s.complete && s.mark.revision > 0 {
		if w, err := s.resume(ctx, c, max(s.patience, 4*took)); w != nil || err != nil {
			return w, err
		}
	}
	if err := s.list(ctx, c, at.revision); err != nil {
		return nil, err
	}
	return c.watch(ctx, at.revision+1)
}

// ask returns what the datastore says of whether it is ready, and its newest revision.
func (s *Source) ask(ctx context.Context, c connection) (ready *entry, at position, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	p, err := c.list(ctx, readyKey, 1, 0, false)
	if err != nil {
		return nil, position{}, err
	}
	if len(p.entries) > 0 && p.entries[0].key == readyKey {
		ready = &p.entries[0]
	}
	return ready, p.at, nil
}

// resume watches from mark on, if the server sends the same events for it as before. No stream and no error: it does
// not.
func (s *Source) resume(ctx context.Context, c connection, patience time.Duration) (stream, error) {
	watching, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(patience, cancel)
	w, err := c.watch(watching, s.mark.revision)
	var a answer
	for err == nil && len(a.events) == 0 {
		a, err = w.next()
	}
	intime := late.Stop()
	if err != nil {
		cancel()
		if ctx.Err() == nil && (!intime || errors.Is(err, errCompacted) || errors.Is(err, errTooLarge)) {
			return nil, nil
		}
		return nil, err
	}
	var again mark
	n := 0
	for ; n < len(a.events) && a.events[n].modified == s.mark.revision; n++ {
		again.note(s.objects.seed, a.events[n])
	}
	if again != s.mark || !intime {
		cancel()
		if intime {
			s.objects.moved()
		}
		s.log.Warn("etcd does not have the last change that was seen; listing it again", "revision", s.mark.revision)
		return nil, nil
	}
	s.status.works()
	a.events = a.events[n:]
	if err := s.follow(a); err != nil {
		cancel()
		return nil, err
	}
	context.AfterFunc(ctx, cancel)
	return w, nil
}

// list reads everything as of a revision and delivers the differences from the known state, deletions last.
func (s *Source) list(ctx context.Context, c connection, revision int64) (err error) {
	var changed []model.Update
	defer func() {
		if err != nil {
			s.deliver(changed) // it is known by now, and would not be delivered later
		}
	}()
	seen := make(map[objectKey]struct{}, s.objects.known.Len())
	from, limit := root, int64(pageLimit)
	for more := true; more; {
		p, err := s.page(ctx, c, from, &limit, revision)
		if err != nil {
			return err
		}
		for _, e := range p.entries {
			var k objectKey
			var ours bool
			if changed, k, ours = s.objects.put(changed, e); ours {
				seen[k] = struct{}{}
			}
			from = e.key + "\x00"
		}
		if !s.inSync { // nothing is enforced yet, so nothing needs to be held together
			s.deliver(changed)
			changed = nil
		}
		more = p.more && len(p.entries) > 0
	}
	var gone []model.Update
	for k := range s.objects.known.All() {
		if _, ok := seen[k]; !ok {
			gone = s.objects.remove(gone, k)
		}
	}
	s.objects.known.Shrink()
	updates := syncer.DeletionsLast(changed, gone)
	changed = nil
	if !s.inSync {
		s.inSync = true
		updates = append(updates, model.InSync{})
	}
	s.mark, s.complete = mark{}, true
	s.status.listed()
	s.deliver(updates)
	return nil
}

// page reads the entries after from, at most limit of them; fewer, and limit is less, if they are too large together.
func (s *Source) page(ctx context.Context, c connection, from string, limit *int64, revision int64) (page, error) {
	for keysOnly := false; ; {
		p, err := func() (page, error) {
			ctx, cancel := context.WithTimeout(ctx, requestTimeout)
			defer cancel()
			return c.list(ctx, from, *limit, revision, keysOnly)
		}()
		switch {
		case !errors.Is(err, errTooLarge):
			*limit = min(2**limit, pageLimit)
			return p, err
		case *limit > 1:
			*limit = max(*limit/4, 1)
		case !keysOnly:
			keysOnly = true
		default:
			return p, err
		}
	}
}

// follow takes in what a watch has sent. Events of one revision are one change: whether the datastore is ready is looked
// at first.
func (s *Source) follow(a answer) error {
	if a.at.cluster != s.at.cluster {
		s.complete = false
		return errHistory
	}
	var us []model.Update
	for i, j := 0, 0; i < len(a.events); i = j {
		for ; j < len(a.events) && a.events[j].modified == a.events[i].modified; j++ {
			e := a.events[j]
			s.mark.note(s.objects.seed, e)
			switch {
			case e.key == readyKey && e.deleted:
				s.noteReady(nil)
			case e.key == readyKey:
				s.noteReady(&e.entry)
			}
		}
		if s.complete = s.complete && s.ready; !s.complete {
			continue
		}
		for _, e := range a.events[i:j] {
			us = s.change(us, e)
		}
	}
	if len(a.events) > 0 {
		s.at.revision = max(s.at.revision, s.mark.revision)
	}
	s.deliver(us)
	if s.ready && !s.complete {
		return errAgain
	}
	return nil
}

// change reads one event, and appends the updates to send.
func (s *Source) change(us []model.Update, e event) []model.Update {
	k, ours, _ := s.objects.layout.object(e.key)
	if !ours {
		return us
	}
	s.status.saw(k.kind)
	if e.deleted {
		return s.objects.remove(us, k)
	}
	us, _, _ = s.objects.put(us, e.entry)
	return us
}

// noteReady notes what the datastore says of whether it is ready; nil: nothing. A value that cannot be read changes nothing.
func (s *Source) noteReady(e *entry) {
	var info struct {
		Spec struct {
			DatastoreReady *bool `json:"datastoreReady"`
		} `json:"spec"`
	}
	why := ""
	switch {
	case e == nil:
		why = "there is no ClusterInformation default that says that the datastore is ready"
	case len(e.value) > maxValue || json.Unmarshal(e.value, &info) != nil:
		if s.ready {
			return
		}
		why = "ClusterInformation default cannot be read"
	case info.Spec.DatastoreReady == nil || !*info.Spec.DatastoreReady:
		why = fmt.Sprintf("ClusterInformation default says that the datastore is not ready (datastoreReady: %t)", false)
	}
	s.ready = why == ""
	s.status.notReady(why)
}
