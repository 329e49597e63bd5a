package endpointstatus

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/health"
)

const subdirectory = "endpoint-status"

const (
	webFile = "k8s shop%2Fweb eth0"
	webBody = `{"ifaceName":"cali0","ipv4Nets":["10.0.0.1/32"],"ipv6Nets":["fd00::1/128"]}`
	dbFile  = "k8s shop%2Fdb eth0"
)

// bench is a writer that runs in a bubble, and its directory.
type bench struct {
	*Writer
	t      *testing.T
	prefix string
	log    *lines
	health *health.Aggregate
}

// lines is a log that may be read while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// run makes a writer in a bubble with a directory that has the files given, and calls do while it runs.
func run(t *testing.T, files map[string]string, do func(b *bench)) {
	t.Helper()
	prefix := t.TempDir()
	b := &bench{t: t, prefix: prefix, log: &lines{}, health: health.New(time.Now)}
	for name, text := range files {
		b.put(name, text)
	}
	synctest.Test(t, func(t *testing.T) {
		b.Writer = New(filepath.Join(prefix, subdirectory), b.health.Add("cni-files", 0), slog.New(slog.NewTextHandler(b.log, nil)))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		do(b)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

func (b *bench) path(name string) string { return filepath.Join(b.prefix, subdirectory, name) }

func (b *bench) put(name, text string) {
	b.t.Helper()
	if err := os.MkdirAll(filepath.Join(b.prefix, subdirectory), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(b.path(name), []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// want demands that the directory has these files, after the time given.
func (b *bench) want(after time.Duration, what string, files map[string]string) {
	b.t.Helper()
	time.Sleep(after) // of the bubble
	synctest.Wait()
	entries, err := os.ReadDir(filepath.Join(b.prefix, subdirectory))
	if err != nil && !os.IsNotExist(err) {
		b.t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range entries {
		if text, err := os.ReadFile(b.path(e.Name())); err == nil {
			got[e.Name()] = string(text)
		}
	}
	if diff := cmp.Diff(files, got); diff != "" {
		b.t.Errorf("%s: %s", what, diff)
	}
}

// wantDetail demands that the component is ready all the same, and whether it has a failure as its detail.
func (b *bench) wantDetail(failure bool) {
	b.t.Helper()
	if c := b.health.Components()[0]; !c.Ready || !c.Live || strings.Contains(c.Detail, "cannot be written") != failure {
		b.t.Errorf("%+v, want a failure: %v", c, failure)
	}
}

// wantLines demands that so many lines of the log have the text.
func (b *bench) wantLines(text string, n int) {
	b.t.Helper()
	if got := strings.Count(b.log.String(), text); got != n {
		b.t.Errorf("%d lines of the log with %q, want %d:\n%s", got, text, n, b.log)
	}
}

func TestAFileComesAndGoesWithItsEndpoint(t *testing.T) {
	run(t, nil, func(b *bench) {
		b.Want([]Endpoint{web})
		b.want(0, "an endpoint", map[string]string{webFile: webBody})
		db := Endpoint{ID: id("shop", "db"), Iface: "cali1"}
		b.Want([]Endpoint{web, db})
		b.want(0, "another", map[string]string{webFile: webBody, dbFile: `{"ifaceName":"cali1"}`})
		db.Iface = "cali2"
		b.Want([]Endpoint{db})
		b.want(0, "one gone, one changed", map[string]string{dbFile: `{"ifaceName":"cali2"}`})
		b.Want(nil)
		b.want(0, "none", map[string]string{})
		if diff := cmp.Diff(Status{Writes: 3}, b.Status()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestFilesOfAnEarlierAgentStayUntilItIsKnownWhatIsEnforced(t *testing.T) {
	old := map[string]string{dbFile: "{}", webFile: webBody, "README": "not ours", "other pod eth0": "{}"}
	run(t, old, func(b *bench) {
		before, err := os.Stat(b.path(webFile))
		if err != nil {
			t.Fatal(err)
		}
		b.want(time.Minute, "before the first snapshot", old)
		b.Want([]Endpoint{web})
		b.want(0, "after it", map[string]string{webFile: webBody, "README": "not ours", "other pod eth0": "{}"})
		after, err := os.Stat(b.path(webFile))
		if err != nil {
			t.Fatal(err)
		}
		if !os.SameFile(before, after) {
			t.Error("a file that was right was written again")
		}
	})
}

// TestFilesOfInterfacesThatAreNotReadyGo: an agent that waits for the datastore keeps those of the others.
func TestFilesOfInterfacesThatAreNotReadyGo(t *testing.T) {
	const other, noPod = "other pod eth0", `{"ifaceName":"cali9"}`
	old := map[string]string{webFile: webBody, dbFile: `{"ifaceName":"cali1"}`, "k8s shop%2Fbroken eth0": "{", other: noPod}
	run(t, old, func(b *bench) {
		b.want(time.Minute, "not known which are ready", old)
		b.Keep(map[string]bool{"cali0": true, "cali1": true})
		b.want(0, "one that names no interface", map[string]string{webFile: webBody, dbFile: `{"ifaceName":"cali1"}`, other: noPod})
		b.Keep(map[string]bool{"cali0": true})
		b.want(0, "an interface that has gone", map[string]string{webFile: webBody, other: noPod})
		b.put(dbFile, `{"ifaceName":"cali1"}`)
		b.want(lookEvery, "put back by another program", map[string]string{webFile: webBody, other: noPod})
		b.Keep(map[string]bool{})
		b.want(0, "none is ready", map[string]string{other: noPod})
		b.Want([]Endpoint{web})
		b.want(0, "after the first snapshot", map[string]string{webFile: webBody, other: noPod})
		b.Keep(map[string]bool{})
		b.want(time.Minute, "a late call", map[string]string{webFile: webBody, other: noPod})
		b.wantLines("level=ERROR", 0)
	})
	run(t, nil, func(b *bench) {
		b.Keep(map[string]bool{})
		b.want(0, "no directory", map[string]string{})
		b.wantLines("level=ERROR", 0)
		if _, err := os.Stat(b.path("")); !os.IsNotExist(err) {
			t.Errorf("the directory was made before there is anything to put into it (%v)", err)
		}
	})
}

func TestWhatAnAgentLeftHalfWrittenIsNoObstacle(t *testing.T) {
	run(t, map[string]string{temporary: "{\"ifa", webFile: ""}, func(b *bench) {
		b.Want([]Endpoint{web})
		b.want(0, "a part of a file", map[string]string{webFile: webBody})
	})
}

func TestWhatSomebodyElseRemovedOrChangedIsRepaired(t *testing.T) {
	run(t, nil, func(b *bench) {
		b.Want([]Endpoint{web})
		b.want(0, "at first", map[string]string{webFile: webBody})
		b.put(webFile, "spoilt")
		b.put(dbFile, "stale")
		b.want(lookEvery, "spoilt", map[string]string{webFile: webBody})
		if err := os.RemoveAll(filepath.Join(b.prefix, subdirectory)); err != nil {
			t.Fatal(err)
		}
		b.want(lookEvery, "removed with its directory", map[string]string{webFile: webBody})
	})
}

func TestAFailureIsLoggedOnceHoldsNobodyUpAndIsTriedAgain(t *testing.T) {
	run(t, nil, func(b *bench) {
		long := Endpoint{ID: id("shop", strings.Repeat("x", 250))} // longer than a name may be
		b.Want([]Endpoint{long, web})
		b.want(time.Minute, "beside one that fails", map[string]string{webFile: webBody})
		b.wantLines("put endpoint status file", 1)
		b.wantDetail(true)
		if s := b.Status(); s.Error == "" || s.Files != 1 || s.Failed != 1 {
			t.Errorf("status %+v, want one file, one that failed and an error", s)
		}
		b.Want([]Endpoint{web})
		b.want(0, "without it", map[string]string{webFile: webBody})
		b.wantLines("up to date again", 1)
		b.wantDetail(false)
		if s := b.Status(); s.Error != "" || s.Failed != 0 {
			t.Errorf("status %+v, want no error", s)
		}
	})
}

// TestAFileThatCannotBeRemovedIsReportedAtOnce, also before the first snapshot: a plugin does not wait where an old file lies.
func TestAFileThatCannotBeRemovedIsReportedAtOnce(t *testing.T) {
	run(t, nil, func(b *bench) {
		if err := os.MkdirAll(filepath.Join(b.path(dbFile), "in the way"), 0o755); err != nil {
			t.Fatal(err)
		}
		b.Keep(map[string]bool{})
		b.want(0, "before the first snapshot", map[string]string{})
		b.wantDetail(true)
		if s := b.Status(); s.Failed != 1 {
			t.Errorf("status %+v, want one that failed", s)
		}
		if err := os.RemoveAll(b.path(dbFile)); err != nil {
			t.Fatal(err)
		}
		b.want(lastRetry, "once it is gone", map[string]string{})
		b.wantDetail(false)
	})
}

func TestADirectoryThatCannotBeMadeIsMadeLater(t *testing.T) {
	run(t, nil, func(b *bench) {
		inTheWay := filepath.Join(b.prefix, subdirectory)
		if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		b.Want([]Endpoint{web})
		time.Sleep(time.Minute)
		synctest.Wait()
		b.wantLines("make the directory", 1)
		if s := b.Status(); s.Failed != 1 {
			t.Errorf("status %+v, want the one that is wanted to have failed", s)
		}
		if err := os.Remove(inTheWay); err != nil {
			t.Fatal(err)
		}
		b.want(lastRetry, "once it can", map[string]string{webFile: webBody})
	})
}

// As Calico's plugin does: look for the file, and watch the directory for its creation.
func TestAWaitingPluginSeesOnlyWholeFiles(t *testing.T) {
	prefix := t.TempDir()
	dir := filepath.Join(prefix, subdirectory)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	if err := watcher.Add(dir); err != nil {
		t.Fatal(err)
	}
	w := New(filepath.Join(prefix, subdirectory), health.New(time.Now).Add("cni-files", 0), slog.New(slog.DiscardHandler))
	go w.Run(t.Context())
	w.Want([]Endpoint{web})
	for {
		select {
		case e := <-watcher.Events:
			if e.Name != filepath.Join(dir, webFile) {
				continue
			}
			if e.Op != fsnotify.Create {
				t.Fatalf("the file came by %s, want it created whole", e.Op)
			}
			if text, err := os.ReadFile(e.Name); err != nil || string(text) != webBody {
				t.Errorf("read %q (%v), want %q", text, err, webBody)
			}
			return
		case <-time.After(20 * time.Second):
			t.Fatal("no file came")
		}
	}
}
