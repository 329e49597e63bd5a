package directory

import "time"

// burst is what events have named and has not been read since. A file is read once its events pause, whatever becomes of
// others meanwhile: who writes one all the time keeps no other waiting.
type burst struct {
	quiet, patience time.Duration // see Source
	paths           map[string]*unrest
	err             error     // why events were lost; nil: none were
	lost            time.Time // when
	not             time.Time // before: looking at the files takes so long that it may not be done all the time
}

// unrest is of a path: its first and last events since it was read.
type unrest struct{ first, last time.Time }

// add records an event.
func (b *burst) add(path string, now time.Time) {
	if b.paths == nil {
		b.paths = map[string]*unrest{}
	}
	if b.paths[path] == nil {
		b.paths[path] = &unrest{first: now}
	}
	b.paths[path].last = now
}

func (b *burst) fail(err error, now time.Time) { b.err, b.lost = err, now }

// due is when a path may be read.
func (b *burst) due(u *unrest) time.Time {
	due, most := u.last.Add(b.quiet), u.first.Add(b.patience)
	if due.After(most) {
		return most
	}
	return due
}

// next is how long it is until something may be read; not ok: nothing will.
func (b *burst) next(now time.Time) (wait time.Duration, ok bool) {
	var first time.Time
	if b.err != nil {
		first, ok = b.lost.Add(b.quiet), true
	}
	for _, u := range b.paths {
		if due := b.due(u); !ok || due.Before(first) {
			first, ok = due, true
		}
	}
	if first.Before(b.not) {
		first = b.not
	}
	return max(first.Sub(now), 0), ok
}

// drain returns the paths that may be read, and why events were lost, and begins again with these. The others are to be left
// alone.
func (b *burst) drain(now time.Time) (touched, unquiet map[string]bool, err error) {
	touched, unquiet = map[string]bool{}, map[string]bool{}
	for path, u := range b.paths {
		if b.due(u).After(now) {
			unquiet[path] = true
			continue
		}
		touched[path] = true
		delete(b.paths, path)
	}
	err, b.err = b.err, nil
	return touched, unquiet, err
}

// looked records that looking at the files has taken so long.
func (b *burst) looked(took time.Duration, now time.Time) { b.not = now.Add(took) }
