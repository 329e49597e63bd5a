package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// follower is what a consumer has of a source.
type follower struct {
	t       *testing.T
	reports *syncer.Reports

	mu      sync.Mutex
	objects map[string]string // FelixConfigurations: their log levels
	updates int
	batches [][]model.Update
	inSync  bool
	stop    func()
}

func follow(t *testing.T, f *fakeServer) *follower {
	t.Helper()
	w := &follower{t: t, reports: syncer.NewReports(), objects: map[string]string{}}
	s := newSource(f.open, kinds.All(validate.Pods{}), slog.New(slog.DiscardHandler))
	s.patience = 2 * time.Second // this machine may be busy
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, w.sink) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(w.stop)
	return w
}

func (w *follower) sink(b syncer.Batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reports.Note(b)
	if len(b.Updates) > 0 {
		w.batches = append(w.batches, b.Updates)
	}
	for _, u := range b.Updates {
		switch u := u.(type) {
		case model.InSync:
			w.inSync = true
		case model.ConfigurationUpdate:
			w.updates++
			if u.Configuration == nil {
				delete(w.objects, u.Name)
			} else {
				w.objects[u.Name] = u.Configuration.Values["logSeverityScreen"]
			}
		}
	}
}

// awaits waits until the objects are these: "name=level name=level".
func (w *follower) awaits(want string) {
	w.t.Helper()
	wanted := levels(want)
	w.until("objects "+want, func() bool { return w.inSync && maps.Equal(w.objects, wanted) })
}

func levels(text string) map[string]string {
	wanted := map[string]string{}
	for _, pair := range strings.Fields(text) {
		name, level, _ := strings.Cut(pair, "=")
		wanted[name] = level
	}
	return wanted
}

func (w *follower) until(what string, is func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		w.mu.Lock()
		ok := is()
		w.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("not: %s; objects %v, in sync %t, %+v", what, w.objects, w.inSync, w.row())
		}
		time.Sleep(time.Millisecond)
	}
}

// stays checks that the objects are these, and do not change for a moment.
func (w *follower) stays(want string) {
	w.t.Helper()
	wanted := levels(want)
	for range 50 {
		w.mu.Lock()
		same := maps.Equal(w.objects, wanted)
		w.mu.Unlock()
		if !same {
			w.t.Fatalf("objects %v, not %s any more", w.objects, want)
		}
		time.Sleep(time.Millisecond)
	}
}

// row is how it stands with the datastore.
func (w *follower) row() syncer.KindStatus {
	for _, k := range w.reports.Kinds() {
		if k.Kind == statusKind {
			return k
		}
	}
	return syncer.KindStatus{}
}

func (w *follower) awaitsState(state syncer.KindState, text string) {
	w.t.Helper()
	w.until(fmt.Sprintf("%v %q", state, text), func() bool {
		return w.row().State == state && strings.Contains(w.row().Error, text)
	})
}

func pairs(all ...string) []string { return all }

func putFelix(f *fakeServer, name, level string) int64 {
	key, value := felix(name, level)
	return f.write(key, value)
}

func putReady(f *fakeServer, ready bool) { f.write(pairs(readiness(ready))...) }

// newReady is a server that is ready, with the objects a and b.
func newReady() *fakeServer {
	f := newFakeServer()
	putReady(f, true)
	putFelix(f, "a", "Info")
	putFelix(f, "b", "Info")
	return f
}

func TestListThenWatch(t *testing.T) {
	f := newReady()
	f.write(root+"ippools/default", "{}", "/calico/ipam/v2/x", "y", "/other", "z") // of no concern
	w := follow(t, f)
	w.awaits("a=Info b=Info")
	putFelix(f, "a", "Debug")
	putFelix(f, "c", "Error")
	putFelix(f, "b", "")
	w.awaits("a=Debug c=Error")
	w.awaitsState(syncer.KindSynced, "")
	if r := w.row(); r.Lists != 1 || r.Events != 3 || r.Objects != 2 || r.Revision != f.revision || !r.Listed {
		t.Errorf("%+v, want revision %d", r, f.revision)
	}
}

// More objects than a page, and pages that are too large together; one object that is too large alone.
func TestListsArePaged(t *testing.T) {
	f := newFakeServer()
	putReady(f, true)
	want := ""
	for i := range pageLimit + 10 {
		putFelix(f, fmt.Sprint("n", i), "Info")
		want += fmt.Sprintf(" n%d=Info", i)
	}
	key, value := felix("large", "Info")
	f.write(key, value+strings.Repeat(" ", 20<<10))
	f.most = 16 << 10
	w := follow(t, f)
	w.awaits(want)
	if p := w.reports.Problems(); len(p) != 1 || !strings.Contains(p[0].String(), "large") || f.lists < 20 {
		t.Errorf("%d pages, %v", f.lists, p)
	}
}

// Of a connection that is cut nothing is taken back. It goes on where it was, without a list.
func TestGoesOnAfterACut(t *testing.T) {
	f := newReady()
	w := follow(t, f)
	w.awaits("a=Info b=Info")
	putFelix(f, "a", "Debug")
	w.awaits("a=Debug b=Info")
	f.set(true, func() { f.fail = errors.New("no route to host") })
	w.awaitsState(syncer.KindFailing, "no route")
	putFelix(f, "b", "Error")
	w.stays("a=Debug b=Info")
	f.set(false, func() { f.fail = nil })
	w.awaits("a=Debug b=Error")
	w.awaitsState(syncer.KindSynced, "")
	if r := w.row(); r.Lists != 1 || r.Failures == 0 {
		t.Errorf("%+v", r)
	}
}

// What happened meanwhile cannot be had: a list finds what was changed and deleted, and sends nothing else.
func TestCompactedMeanwhile(t *testing.T) {
	f := newReady()
	w := follow(t, f)
	w.awaits("a=Info b=Info")
	putFelix(f, "c", "Info")
	w.awaits("a=Info b=Info c=Info")
	f.set(true, func() { f.fail = errors.New("away") })
	putFelix(f, "a", "")
	putFelix(f, "b", "Debug")
	f.compact()
	before := w.updates
	f.set(false, func() { f.fail = nil })
	w.awaits("b=Debug c=Info")
	if w.updates-before != 2 || w.row().Lists != 2 {
		t.Errorf("%d updates, %+v", w.updates-before, w.row())
	}
	if last := w.batches[len(w.batches)-1]; len(last) != 2 || last[1].(model.ConfigurationUpdate).Configuration != nil {
		t.Errorf("not one change, deletions last: %v", last)
	}
}

// A restored datastore is an older one. Its revisions are used again, for other changes; that is noticed even if it has
// come further than the one before by then.
func TestRestoredFromASnapshot(t *testing.T) {
	for _, name := range []string{"still behind", "at the same revision", "further", "further with other keys", "deletion lost", "another cluster"} {
		t.Run(name, func(t *testing.T) {
			f := newReady()
			w := follow(t, f)
			w.awaits("a=Info b=Info")
			snapshot := putFelix(f, "c", "Info")
			putFelix(f, "a", "Debug")
			putFelix(f, "b", "")
			w.awaits("a=Debug c=Info")
			f.set(true, func() { f.fail = errors.New("away") })
			f.restore(snapshot)
			want := "a=Info b=Info c=Info"
			switch name {
			case "at the same revision":
				putFelix(f, "d", "Info")
				putFelix(f, "e", "Info")
				want += " d=Info e=Info"
			case "further":
				for range 4 {
					putFelix(f, "d", "Info")
				}
				want += " d=Info"
			case "further with other keys":
				for range 4 {
					f.write("/other", "x")
				}
			case "deletion lost":
				putFelix(f, "a", "Debug") // as before, and then not b
				putFelix(f, "d", "")
				want = "a=Debug b=Info c=Info"
			case "another cluster":
				f.cluster = 2
			}
			f.set(false, func() { f.fail = nil })
			w.awaits(want)
			putFelix(f, "z", "Info")
			w.awaits(want + " z=Info")
		})
	}
}

// The cluster behind the connection becomes another one while it is watched.
func TestAnotherClusterAnswers(t *testing.T) {
	f := newReady()
	w := follow(t, f)
	w.awaits("a=Info b=Info")
	f.set(false, func() { f.cluster, f.history = 2, f.history[:2] })
	putFelix(f, "c", "Info")
	w.awaits("a=Info c=Info")
}

// Not ready, or wiped: nothing is believed until the datastore is ready, and then the difference is sent.
func TestNothingIsBelievedUnlessReady(t *testing.T) {
	f := newReady()
	w := follow(t, f)
	w.awaits("a=Info b=Info")
	putReady(f, false)
	w.awaitsState(syncer.KindFailing, "not ready")
	putFelix(f, "a", "Debug")
	putFelix(f, "b", "")
	w.stays("a=Info b=Info")
	f.set(true, nil)
	w.stays("a=Info b=Info")
	putReady(f, true)
	w.awaits("a=Debug")
	w.awaitsState(syncer.KindSynced, "")

	wipe := []string{readyKey, ""}
	for _, name := range []string{"a", "b"} {
		key, _ := felix(name, "")
		wipe = append(wipe, key, "")
	}
	f.write(wipe[2], wipe[3], wipe[0], wipe[1]) // the objects first, in one revision
	w.awaitsState(syncer.KindFailing, "there is no ClusterInformation")
	w.stays("a=Debug")
	putFelix(f, "c", "Info")
	putReady(f, true)
	w.awaits("c=Info")
}

// At the start nothing is in sync before the datastore is ready.
func TestWaitsForADatastoreThatIsReady(t *testing.T) {
	f := newFakeServer()
	putFelix(f, "a", "Info")
	w := follow(t, f)
	w.awaitsState(syncer.KindListing, "there is no ClusterInformation")
	f.write(readyKey, "not JSON")
	w.awaitsState(syncer.KindListing, "cannot be read")
	putReady(f, false)
	w.awaitsState(syncer.KindListing, "not ready")
	if w.inSync || len(w.objects) > 0 {
		t.Error("believed before it was ready")
	}
	putReady(f, true)
	w.awaits("a=Info")
	f.write(readyKey, "not JSON") // changes nothing
	putFelix(f, "b", "Info")
	w.awaits("a=Info b=Info")
}

// Flapping: an old connection sees it all, and the end is what counts.
func TestReadinessFlaps(t *testing.T) {
	f := newReady()
	w := follow(t, f)
	w.awaits("a=Info b=Info")
	for range 20 {
		putReady(f, false)
		putFelix(f, "a", "Debug")
		putReady(f, true)
		putFelix(f, "a", "Error")
	}
	w.awaits("a=Error b=Info")
}

// A connection that fails in the middle of a list: what was read counts, deletions wait for a complete one.
func TestAListThatIsCutShort(t *testing.T) {
	f := newReady()
	w := follow(t, f)
	w.awaits("a=Info b=Info")
	for i := range pageLimit {
		putFelix(f, fmt.Sprint("n", i), "Info")
	}
	w.until("all", func() bool { return len(w.objects) == pageLimit+2 })
	f.set(true, func() { f.fail = errors.New("away") })
	putFelix(f, "a", "Debug")
	putFelix(f, "b", "")
	putFelix(f, "zz", "Info")
	f.compact()
	f.set(false, func() { f.fail, f.cutAfter = nil, 2 })
	w.until("first page", func() bool { return w.objects["a"] == "Debug" })
	w.until("all", func() bool { return len(w.objects) == pageLimit+2 && w.objects["zz"] == "Info" && w.objects["b"] == "" })
	for _, us := range w.batches {
		if u, ok := us[0].(model.ConfigurationUpdate); ok && u.Name == "b" && u.Configuration == nil && w.row().Failures < 2 {
			t.Errorf("deleted by a list that was not complete: %+v", w.row())
		}
	}
}
