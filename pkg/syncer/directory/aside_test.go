package directory

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/validate"
)

// asideSource is a Source that parses files of 1,000 bytes aside, once release lets it.
func asideSource(t *testing.T) (d *Source, w *watched, release chan struct{}) {
	t.Helper()
	d = New(t.TempDir(), validate.Pods{}, slog.New(slog.DiscardHandler))
	d.tree.watch = func(string) error { return nil }
	d.large = 1000
	release = make(chan struct{}, 10)
	d.aside.parse = func(path string, text []byte) []validate.Document {
		<-release
		return d.parse(path, text)
	}
	return d, &watched{t: t, dir: d.tree.root, state: map[string]string{}}, release
}

func long(docs ...string) string {
	return "# " + strings.Repeat("x", 2000) + "\n" + strings.Join(docs, "")
}

// want scans and asserts what has been delivered since the start.
func (w *watched) want(d *Source, when string, want ...string) {
	w.t.Helper()
	w.apply(d.scan(nil, nil, false).Updates)
	state, _ := w.now()
	for i := 0; i < len(want); i += 2 {
		if state[want[i]] != want[i+1] {
			w.t.Errorf("%s: %s is %q, want %q", when, want[i], state[want[i]], want[i+1])
		}
	}
}

// A large file is parsed while others are delivered.
func TestALargeFileHoldsUpNoOther(t *testing.T) {
	d, w, release := asideSource(t)
	w.write("a.yaml", long(namespace("large", "1")))
	w.write("b.yaml", namespace("small", "1"))
	w.want(d, "the large file is being parsed", "large", "", "small", "1")
	w.write("b.yaml", namespace("small", "2"))
	w.write("a.yaml", long(namespace("large", "2")))
	w.want(d, "it still is", "large", "", "small", "2")
	release <- struct{}{}
	d.parsed(<-d.aside.done)
	w.want(d, "it is parsed once", "large", "1", "small", "2")
	release <- struct{}{}
	d.parsed(<-d.aside.done)
	w.want(d, "and again, as it is now", "large", "2", "small", "2")
	if d.aside.now != nil {
		t.Error("something is being parsed still")
	}
}

// What became of a file meanwhile counts, not what it said.
func TestALargeFileThatIsGoneOrSmallBeforeItIsParsed(t *testing.T) {
	d, w, release := asideSource(t)
	w.write("a.yaml", long(namespace("one", "1")))
	w.write("b.yaml", long(namespace("two", "1")))
	w.want(d, "at first", "one", "", "two", "")
	w.write("a.yaml", namespace("one", "2"))
	w.must(os.Remove(w.path("b.yaml")))
	w.want(d, "small", "one", "2", "two", "")
	release <- struct{}{}
	d.parsed(<-d.aside.done)
	w.want(d, "afterwards", "one", "2", "two", "")
	if d.aside.now != nil || len(d.catalog.files) != 1 {
		t.Errorf("%d files are known", len(d.catalog.files))
	}
}

// An object that moves into a large file is not gone while that is parsed.
func TestAnObjectThatMovesIntoALargeFileIsNeverGone(t *testing.T) {
	d, w, release := asideSource(t)
	w.write("b.yaml", namespace("one", "1"), namespace("other", "1"))
	w.want(d, "at first", "one", "1")
	w.write("a.yaml", long(namespace("one", "2")))
	w.write("b.yaml", namespace("other", "1"))
	w.want(d, "moved", "one", "1")
	old := d.losses.byPath[w.path("b.yaml")]
	old.since = old.since.Add(-2 * believedAfter)
	d.losses.byPath[w.path("b.yaml")] = old
	w.want(d, "much later", "one", "1")
	if _, ok := d.losses.next(time.Now(), d.aside.past); ok {
		t.Error("the loss is to be believed before the large file is parsed")
	}
	release <- struct{}{}
	d.parsed(<-d.aside.done)
	w.want(d, "parsed", "one", "2")
}

// A file that is written all the time keeps no other from being read.
func TestAFileIsReadOnceItsOwnEventsPause(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	b := burst{quiet: 50 * time.Millisecond, patience: time.Second}
	busy, calm := filepath.Join("d", "busy.yaml"), filepath.Join("d", "calm.yaml")
	b.add(busy, at(0))
	b.add(calm, at(10))
	for ms := 20; ms <= 60; ms += 20 {
		b.add(busy, at(ms))
	}
	if wait, ok := b.next(at(60)); !ok || wait != 0 {
		t.Errorf("the next look is in %v, %v", wait, ok)
	}
	touched, unquiet, _ := b.drain(at(60))
	if !touched[calm] || touched[busy] || !unquiet[busy] {
		t.Errorf("read %v, left alone %v", touched, unquiet)
	}
	for ms := 80; ms < 1000; ms += 20 {
		b.add(busy, at(ms))
	}
	if wait, ok := b.next(at(990)); !ok || wait != 10*time.Millisecond {
		t.Errorf("patience ends in %v, %v", wait, ok)
	}
	b.drain(at(1000))
	if _, ok := b.next(at(1000)); ok {
		t.Error("there is something to read still")
	}
}
