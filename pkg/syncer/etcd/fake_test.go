package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// fakeServer is an etcd in memory, with all its history.
type fakeServer struct {
	mu        sync.Mutex
	changed   chan struct{} // closed at every change
	cluster   uint64
	revision  int64
	compacted int64
	history   []event
	fail      error // of every request; nil: none
	epoch     int   // connections made before it are dead
	opened    int
	lists     int  // pages served
	most      int  // bytes of one answer; 0: any
	cutAfter  int  // pages; 0: never
	mute      bool // watches send no events
	progress  int  // how often watches have reported their progress
}

func newFakeServer() *fakeServer {
	return &fakeServer{cluster: 1, revision: 1, changed: make(chan struct{})}
}

// write makes one revision: pairs of a key and a value, of which an empty one deletes.
func (f *fakeServer) write(pairs ...string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision++
	for i := 0; i+1 < len(pairs); i += 2 {
		e := event{entry: entry{key: pairs[i], value: []byte(pairs[i+1]), modified: f.revision}, deleted: pairs[i+1] == ""}
		e.created = f.revision
		for _, old := range f.history {
			if old.key == e.key {
				e.created = cmp.Or(old.created, f.revision)
			}
		}
		if e.deleted {
			e.value, e.created = nil, 0
		}
		f.history = append(f.history, e)
	}
	f.wake()
	return f.revision
}

func (f *fakeServer) wake() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// set changes the server, and cuts all connections if it is to.
func (f *fakeServer) set(cut bool, change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if change != nil {
		change()
	}
	if cut {
		f.epoch++
	}
	f.wake()
}

// restore makes the server what it was at a revision. Like etcd's own restore it keeps the cluster's id.
func (f *fakeServer) restore(revision int64) {
	f.set(true, func() {
		f.history = slices.DeleteFunc(slices.Clone(f.history), func(e event) bool { return e.modified > revision })
		f.revision = revision
	})
}

func (f *fakeServer) compact() { f.set(false, func() { f.compacted = f.revision }) }

var errCut = errors.New("connection reset")

func (f *fakeServer) open(context.Context) (connection, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened++
	return &fakeConnection{f, f.epoch}, f.fail
}

// connections is how many were made.
func (f *fakeServer) connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened
}

type fakeConnection struct {
	server *fakeServer
	epoch  int
}

func (c *fakeConnection) close() {}

func (c *fakeConnection) usable() error {
	if c.server.fail != nil {
		return c.server.fail
	}
	if c.epoch != c.server.epoch {
		return errCut
	}
	return nil
}

func (c *fakeConnection) list(_ context.Context, from string, limit, revision int64, keysOnly bool) (page, error) {
	f := c.server
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := c.usable(); err != nil {
		return page{}, err
	}
	at := revision
	switch {
	case at == 0:
		at = f.revision
	case at > f.revision:
		return page{}, errHistory
	case at < f.compacted:
		return page{}, errCompacted
	}
	now := map[string]entry{}
	for _, e := range f.history {
		if e.modified > at {
			continue
		}
		if now[e.key] = e.entry; e.deleted {
			delete(now, e.key)
		}
	}
	f.lists++
	if f.cutAfter > 0 {
		if f.cutAfter--; f.cutAfter == 0 {
			f.epoch++
		}
	}
	p := page{at: position{f.cluster, f.revision}}
	bytes := 0
	for _, key := range sortedKeys(now) {
		if key < from || !strings.HasPrefix(key, root) {
			continue
		}
		if int64(len(p.entries)) == limit {
			p.more = true
			break
		}
		e := now[key]
		if e.tooLarge = keysOnly; keysOnly {
			e.value = nil
		}
		bytes += len(e.value)
		p.entries = append(p.entries, e)
	}
	if f.most > 0 && bytes > f.most {
		return page{}, errTooLarge
	}
	return p, nil
}

func sortedKeys(m map[string]entry) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (c *fakeConnection) watch(ctx context.Context, from int64) (stream, error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return &fakeStream{c, ctx, from, false, c.server.progress}, c.usable()
}

type fakeStream struct {
	*fakeConnection
	ctx      context.Context
	from     int64 // revision
	begun    bool
	progress int // reports that were sent, or made earlier
}

// next sends everything there is, so several revisions may be in one answer.
func (w *fakeStream) next() (answer, error) {
	f := w.server
	for {
		f.mu.Lock()
		a := answer{at: position{f.cluster, f.revision}}
		err, changed := w.usable(), f.changed
		if err == nil && w.from <= f.compacted {
			err = errCompacted
		}
		if err == nil && w.begun && !f.mute {
			for _, e := range f.history {
				if e.modified >= w.from {
					a.events = append(a.events, e)
				}
			}
		}
		progressed := w.progress < f.progress
		w.progress = f.progress
		f.mu.Unlock()
		if err != nil {
			return answer{}, err
		}
		if n := len(a.events); n > 0 {
			w.from = a.events[n-1].modified + 1
		}
		if !w.begun || progressed || len(a.events) > 0 {
			w.begun = true
			return a, nil
		}
		select {
		case <-w.ctx.Done():
			return answer{}, w.ctx.Err()
		case <-changed:
		}
	}
}

// felix is the key and the value of a FelixConfiguration, with as a log level what tells versions apart.
func felix(name, level string) (key, value string) {
	key = root + "felixconfigurations/" + name
	if level == "" {
		return key, ""
	}
	return key, fmt.Sprintf(`{"apiVersion": "projectcalico.org/v3", "kind": "FelixConfiguration", "metadata": {"name": %q},
		"spec": {"nodeSelector": "all()", "logSeverityScreen": %q}}`, name, level)
}

// readiness is a pair, too.
func readiness(ready bool) (key, value string) {
	return readyKey, fmt.Sprintf(`{"kind": "ClusterInformation", "spec": {"datastoreReady": %t}}`, ready)
}
