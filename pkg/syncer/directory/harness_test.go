package directory

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// watched is a running Source and what it delivered and logged so far.
type watched struct {
	t       *testing.T
	dir     string
	source  *Source
	reports *syncer.Reports
	updates chan []model.Update
	lines   chan string
	barrier int

	mu      sync.Mutex        // for who has the source call apply
	state   map[string]string // version by namespace
	deleted []string          // names, in order of deletion
	inSync  bool
}

// now returns what is in force: versions by namespace, and whether the first snapshot was complete.
func (w *watched) now() (state map[string]string, inSync bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.state), w.inSync
}

// takeDeleted returns the names that were deleted since the last time, in order.
func (w *watched) takeDeleted() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := w.deleted
	w.deleted = nil
	return names
}

// watch runs a Source that reads quickly until the test ends.
func watch(t *testing.T, dir string, options ...func(*Source)) *watched {
	t.Helper()
	w := &watched{t: t, reports: syncer.NewReports(), dir: dir, updates: make(chan []model.Update), lines: make(chan string, 100), state: map[string]string{}}
	w.source = New(dir, validate.Pods{}, slog.New(lineLog{slog.DiscardHandler, w.lines}))
	w.source.quiet = 10 * time.Millisecond
	for _, o := range options {
		o(w.source)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- w.source.Run(ctx, func(b syncer.Batch) {
			w.reports.Note(b)
			if len(b.Updates) == 0 {
				return
			}
			select {
			case w.updates <- b.Updates:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
	return w
}

// lineLog hands every record on as one line.
type lineLog struct {
	slog.Handler
	lines chan<- string
}

func (lineLog) Enabled(context.Context, slog.Level) bool { return true }

func (l lineLog) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l lineLog) Handle(_ context.Context, r slog.Record) error {
	parts := []string{r.Message}
	r.Attrs(func(a slog.Attr) bool {
		if v := a.Value.String(); v != "" {
			parts = append(parts, v)
		}
		return true
	})
	l.lines <- strings.Join(parts, " | ")
	return nil
}

const deadline = 10 * time.Second

// expect waits until what was delivered amounts to want, given as name, version, name, version.
func (w *watched) expect(want ...string) {
	w.t.Helper()
	wanted := map[string]string{}
	for pair := range slices.Chunk(want, 2) {
		wanted[pair[0]] = pair[1]
	}
	timeout := time.After(deadline)
	for {
		state, inSync := w.now()
		if inSync && maps.Equal(state, wanted) {
			return
		}
		select {
		case us := <-w.updates:
			w.apply(us)
		case <-timeout:
			w.t.Fatalf("not delivered in time (-want +got):\n%s", cmp.Diff(wanted, state))
		}
	}
}

// stays waits until everything done so far has been noticed, and asserts that the state is want and that none of it
// went away meanwhile, not even for a moment.
func (w *watched) stays(want ...string) {
	w.t.Helper()
	w.barrier++
	version := strconv.Itoa(w.barrier)
	w.takeDeleted()
	w.write("~barrier.yaml", namespace(barrier, version))
	w.expect(append(want, barrier, version)...)
	w.must(os.Remove(w.path("~barrier.yaml")))
	w.expect(want...)
	if gone := slices.DeleteFunc(w.takeDeleted(), func(n string) bool { return n == barrier }); len(gone) > 0 {
		w.t.Errorf("%v went away for a while", gone)
	}
}

const barrier = "barrier"

func (w *watched) apply(us []model.Update) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, u := range us {
		switch u := u.(type) {
		case model.InSync:
			w.inSync = true
		case model.ProfileUpdate:
			name := strings.TrimPrefix(u.Name, "kns.")
			if u.Profile == nil {
				delete(w.state, name)
				w.deleted = append(w.deleted, name)
			} else {
				w.state[name] = u.Profile.Labels["pcns.v"]
			}
		}
	}
}

// expectLog waits for a line that holds all the parts. By then the files have been read and the updates computed.
func (w *watched) expectLog(parts ...string) {
	w.t.Helper()
	timeout := time.After(deadline)
	var seen []string
	for {
		select {
		case line := <-w.lines:
			if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
				return
			}
			seen = append(seen, line)
		case <-timeout:
			w.t.Fatalf("no line with %q in the log:\n%s", parts, strings.Join(seen, "\n"))
		}
	}
}

func (w *watched) expectNoProblems() {
	w.t.Helper()
	if p := w.problems(0); len(p) > 0 {
		w.t.Errorf("problems: %v", p)
	}
}

// problems waits until so many problems are reported, which is just after the log has them, and returns those that are.
func (w *watched) problems(number int) []validate.Problem {
	all := w.reports.Problems()
	for end := time.Now().Add(deadline); len(all) != number && time.Now().Before(end); all = w.reports.Problems() {
		time.Sleep(time.Millisecond)
	}
	return all
}

func (w *watched) path(name string) string { return filepath.Join(w.dir, filepath.FromSlash(name)) }

// write replaces a file by renaming.
func (w *watched) write(name string, text ...string) {
	w.t.Helper()
	tmp := w.path(filepath.Join(filepath.Dir(name), ".new"))
	writeFile(w.t, tmp, strings.Join(text, ""))
	w.must(os.Rename(tmp, w.path(name)))
}

func (w *watched) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
