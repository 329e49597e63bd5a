package directory

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// namespace is a manifest whose version shows in the labels of its profile.
func namespace(name, version string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Namespace\nmetadata: {name: %s, labels: {v: %q}}\n", name, version)
}

const brokenYAML = "---\nmetadata: {name: [\n"

func TestDirectoryDeliversSnapshotThenInSync(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "a.yaml"), namespace("one", "1")+namespace("two", "1"))
	writeFile(t, filepath.Join(dir, "sub", "deep", "b.yml"), namespace("three", "1"))
	writeFile(t, filepath.Join(dir, "c.json"), `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"four","labels":{"v":"1"}}}`)
	for _, ignored := range []string{"d.txt", ".hidden.yaml", ".git/e.yaml", "f.yaml~", "..2026/g.yaml"} {
		writeFile(t, filepath.Join(dir, ignored), namespace("ignored", "1"))
	}
	w := watch(t, dir)
	us := <-w.updates
	if _, ok := us[len(us)-1].(model.InSync); !ok || len(us) != 5 {
		t.Errorf("first delivery %v, want four objects and InSync", us)
	}
	w.apply(us)
	w.expect("one", "1", "two", "1", "three", "1", "four", "1")
	w.expectNoProblems()
}

func TestDirectoryFollowsChanges(t *testing.T) {
	w := watch(t, t.TempDir())
	w.expect()
	w.write("a.yaml", namespace("one", "1"))
	w.expect("one", "1")
	w.write("a.yaml", namespace("one", "2"), namespace("two", "1"))
	w.expect("one", "2", "two", "1")
	writeFile(t, w.path("a.yaml"), namespace("one", "3")) // in place
	w.expect("one", "3")
	w.must(os.Rename(w.path("a.yaml"), w.path("b.yaml")))
	w.stays("one", "3")
	w.write("c.yaml", namespace("two", "2"))
	w.expect("one", "3", "two", "2")
	w.must(os.Remove(w.path("b.yaml")))
	w.expect("two", "2")
	w.must(os.Rename(w.path("c.yaml"), w.path("c.bak")))
	w.expect()
	w.expectNoProblems()
}

func TestDirectoryKeepsLastGoodOfABrokenFile(t *testing.T) {
	w := watch(t, t.TempDir())
	w.write("a.yaml", namespace("one", "1"), namespace("two", "1"))
	w.expect("one", "1", "two", "1")

	w.write("a.yaml", brokenYAML)
	w.stays("one", "1", "two", "1")
	w.expectLog("problem in the directory", "a.yaml", "rejected", "stay in force (objects: 2)")

	w.write("a.yaml", namespace("one", "2"))
	w.expectLog("resolved", "a.yaml")
	w.expect("one", "2")
	w.expectNoProblems()
}

func TestDirectoryKeepsLastGoodOfAnInvalidObject(t *testing.T) {
	w := watch(t, t.TempDir())
	w.write("a.yaml", namespace("one", "1"), namespace("two", "1"))
	w.expect("one", "1", "two", "1")

	w.write("a.yaml", namespace("one", "not a label value"), namespace("two", "2"))
	w.expect("one", "1", "two", "2")
	w.expectLog("problem", "a.yaml:4: Namespace one", "rejected", "last good version stays in force")
	if p := w.problems(1); len(p) != 1 || p[0].Ref.Name != "one" {
		t.Errorf("problems %v, want one, about namespace one", p)
	}

	// The same problem a few lines further down is not news.
	w.write("a.yaml", "\n\n\n", namespace("one", "not a label value"), namespace("two", "3"))
	w.expect("one", "1", "two", "3")
	w.write("a.yaml", namespace("one", "4"))
	w.expect("one", "4")
	if line := <-w.lines; !strings.Contains(line, "resolved") {
		t.Errorf("the log goes on with %q, want the problem resolved", line)
	}
}

func TestDirectoryKeepsLastGoodOfAnObjectWhoseKindIsMisspelt(t *testing.T) {
	w := watch(t, t.TempDir())
	w.write("a.yaml", namespace("one", "1"), namespace("two", "1"))
	w.expect("one", "1", "two", "1")

	w.write("a.yaml", strings.Replace(namespace("one", "2"), "kind: Namespace", "kind: Namespce", 1), namespace("two", "2"))
	w.expect("one", "1", "two", "2")
	w.expectLog("problem", "Namespce one", "rejected", "did you mean v1 Namespace?", "last good version stays in force")

	w.write("a.yaml", namespace("one", "3"), namespace("two", "2"))
	w.expect("one", "3", "two", "2")
	w.expectNoProblems()
}

func TestDirectoryReportsDuplicates(t *testing.T) {
	w := watch(t, t.TempDir())
	w.write("b.yaml", namespace("one", "b"))
	w.expect("one", "b")
	w.write("a.yaml", namespace("one", "a"))
	w.expect("one", "a")
	w.expectLog("problem", "b.yaml:2: Namespace one", "duplicate; the object at "+w.path("a.yaml")+":2 is used")
	w.must(os.Remove(w.path("a.yaml")))
	w.expectLog("resolved", "b.yaml")
	w.expect("one", "b")
	w.expectNoProblems()
}

func TestDirectoryWatchesNewSubdirectories(t *testing.T) {
	w := watch(t, t.TempDir())
	w.expect()
	writeFile(t, w.path("x/y/z/a.yaml"), namespace("one", "1"))
	w.expect("one", "1")
	w.write("x/y/z/a.yaml", namespace("one", "2"))
	w.expect("one", "2")
	w.must(os.Rename(w.path("x"), w.path("q")))
	w.stays("one", "2")
	w.write("q/y/b.yaml", namespace("two", "1"))
	w.expect("one", "2", "two", "1")
	w.must(os.RemoveAll(w.path("q/y")))
	w.expect()
	writeFile(t, w.path("q/y/c.yaml"), namespace("three", "1"))
	w.expect("three", "1")
	w.expectNoProblems()
}

// Kubernetes mounts a ConfigMap as links into ..data, itself a link, and publishes a new version by renaming a new
// ..data over the old one.
func TestDirectoryFollowsConfigMapVolume(t *testing.T) {
	dir := t.TempDir()
	publish := func(version string) {
		target := filepath.Join(dir, "..v"+version)
		writeFile(t, filepath.Join(target, "a.yaml"), namespace("one", version))
		writeFile(t, filepath.Join(target, "sub", "b.yaml"), namespace("two", version))
		tmp := filepath.Join(dir, "..data_tmp")
		if err := os.Symlink("..v"+version, tmp); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	publish("1")
	for _, name := range []string{"a.yaml", "sub"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	w := watch(t, dir)
	w.expect("one", "1", "two", "1")
	for _, version := range []string{"2", "3"} {
		publish(version)
		w.expect("one", version, "two", version)
	}
	w.must(os.RemoveAll(w.path("..v1")))
	publish("4")
	w.expect("one", "4", "two", "4")
	w.expectNoProblems()
}

func TestDirectoryKeepsLastGoodOfAnUnreadableFile(t *testing.T) {
	w := watch(t, t.TempDir())
	w.write("a.yaml", namespace("one", "1"))
	w.expect("one", "1")

	w.must(os.Symlink("nowhere", w.path(".link")))
	w.must(os.Rename(w.path(".link"), w.path("a.yaml")))
	w.stays("one", "1")
	w.expectLog("problem", "a.yaml", "link to nowhere: no such file", "stay in force (objects: 1)")
	w.write("b.yaml", namespace("two", "1"))
	w.expect("one", "1", "two", "1")

	w.must(syscall.Mkfifo(w.path(".pipe"), 0o644)) // opening it would block
	w.must(os.Rename(w.path(".pipe"), w.path("b.yaml")))
	w.stays("one", "1", "two", "1")
	w.expectLog("problem", "b.yaml", "not a regular file")

	w.write("a.yaml", namespace("one", "1")) // the same text again
	w.expectLog("resolved", "a.yaml")
	w.must(os.Remove(w.path("b.yaml")))
	w.expect("one", "1")
	w.expectLog("resolved", "b.yaml")
	w.expectNoProblems()
}

func TestDirectoryFollowsLinksOnce(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(dir, "a", "a.yaml"), namespace("one", "1"))
	writeFile(t, filepath.Join(outside, "b.yaml"), namespace("two", "1"))
	for link, target := range map[string]string{
		"a/up": dir, "b": "a", "self": "self", "out": outside, "file.yaml": filepath.Join(outside, "c.txt"),
	} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, filepath.Join(outside, "c.txt"), namespace("three", "1"))
	w := watch(t, dir)
	w.expect("one", "1", "two", "1", "three", "1")
	w.expectLog("problem", w.path("self"), "link to self: too many levels")
	if p := w.problems(1); len(p) != 1 {
		t.Errorf("problems %v, want only the link to itself", p)
	}
	writeFile(t, filepath.Join(outside, "b.yaml"), namespace("two", "2"))
	w.expect("one", "1", "two", "2", "three", "1")
}

func TestDirectoryNeedsADirectoryAtTheStart(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, "")
	for path, why := range map[string]string{missing: "no such file or directory", file: "not a directory"} {
		want := "read the directory of manifests " + path + ": " + why + "; --dir (the setting dir) must name a directory that exists"
		err := New(path, validate.Pods{}, slog.New(slog.DiscardHandler)).Run(t.Context(), func(b syncer.Batch) {
			t.Errorf("delivered %v", b)
		})
		if err == nil || err.Error() != want {
			t.Errorf("Run = %v, want %q", err, want)
		}
	}
}

func TestDirectorySurvivesTheLossOfTheDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	writeFile(t, filepath.Join(dir, "a.yaml"), namespace("one", "1"))
	w := watch(t, dir, frequentBackstop)
	w.expect("one", "1")
	w.must(os.Rename(dir, dir+".away"))
	w.expectLog("problem", dir, "no such file", "the objects last read from it stay in force")
	w.must(os.Rename(dir+".away", dir))
	w.expectLog("resolved", dir)
	w.stays("one", "1")
	w.expectNoProblems()
}

// frequentBackstop lets a test see what happens without events.
func frequentBackstop(d *Source) { d.backstop = 20 * time.Millisecond }

func TestDirectoryNoticesChangesWithoutEvents(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "a.txt")
	writeFile(t, outside, namespace("one", "1"))
	if err := os.Symlink(outside, filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	w := watch(t, dir, frequentBackstop)
	w.expect("one", "1")
	writeFile(t, outside, namespace("one", "2")) // as long as before, and within the same moment
	w.expect("one", "2")
}

func TestDirectoryReadsOnlyWhatChanged(t *testing.T) {
	d := New(t.TempDir(), validate.Pods{}, slog.New(slog.DiscardHandler))
	d.tree.watch = func(string) error { return nil }
	path := filepath.Join(d.tree.root, "a.yaml")
	longAgo := time.Now().Add(-time.Hour)
	write := func(version string) {
		writeFile(t, path, namespace("one", version))
		if err := os.Chtimes(path, longAgo, longAgo); err != nil {
			t.Fatal(err)
		}
	}
	write("1")
	if us := d.scan(nil, nil, false).Updates; len(us) != 1 {
		t.Fatalf("first scan gives %v", us)
	}
	write("2") // nothing but the content tells it from the first version
	if us := d.scan(nil, nil, false).Updates; len(us) != 0 {
		t.Errorf("an unchanged file was read: %v", us)
	}
	if us := d.scan(map[string]bool{path: true}, nil, false).Updates; len(us) != 1 {
		t.Errorf("a file named by an event was not read: %v", us)
	}
	write("3")
	if us := d.scan(nil, nil, true).Updates; len(us) != 1 {
		t.Errorf("a file was not read after events were lost: %v", us)
	}
	if us := d.scan(nil, nil, true).Updates; len(us) != 0 {
		t.Errorf("the same text gives %v", us)
	}
}

func TestDirectoryNoticesAnotherFileOfTheSameSizeAndTime(t *testing.T) {
	d := New(t.TempDir(), validate.Pods{}, slog.New(slog.DiscardHandler))
	d.tree.watch = func(string) error { return nil }
	path, next := filepath.Join(d.tree.root, "a.yaml"), filepath.Join(d.tree.root, ".next")
	longAgo := time.Now().Add(-time.Hour)
	for _, version := range []string{"1", "2"} {
		writeFile(t, next, namespace("one", version))
		if err := os.Chtimes(next, longAgo, longAgo); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, path); err != nil {
			t.Fatal(err)
		}
		if us := d.scan(nil, nil, false).Updates; len(us) != 1 {
			t.Errorf("version %s gives %v", version, us)
		}
	}
}

func TestDirectoryReportsWhatIsNotWatched(t *testing.T) {
	d := New(t.TempDir(), validate.Pods{}, slog.New(slog.DiscardHandler))
	d.tree.watch = func(string) error { return syscall.ENOSPC }
	writeFile(t, filepath.Join(d.tree.root, "sub", "a.yaml"), namespace("one", "1"))
	b := d.scan(nil, nil, false)
	if len(b.Updates) != 1 {
		t.Errorf("scan gives %v", b)
	}
	reports := syncer.NewReports()
	reports.Note(b)
	want := d.tree.root + ": warning: 2 of 2 directories are not watched, this is the first; changes there are noticed " +
		"within 10s: no space left on device"
	if p := reports.Problems(); len(p) != 1 || p[0].String() != want {
		t.Errorf("problems %v, want %s", p, want)
	}
}

// A file may become a FIFO after it was looked at; opening one for reading waits for a writer.
func TestAFIFOIsNeverWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := readFile(path); !errors.Is(err, errNotRegular) {
		t.Errorf("read %q, %v", text, err)
	}
}

// Some regular files of the kernel have no end: their reader waits for more.
func TestAFileWithoutAnEndIsNeverWaitedFor(t *testing.T) {
	const path = "/proc/kmsg"
	if f, err := os.Open(path); err != nil {
		testutil.Missing(t, err.Error())
	} else if f.Close() != nil {
		t.Fatal("close")
	}
	done := make(chan error)
	go func() {
		_, err := readFile(path)
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, errWaits) {
			t.Errorf("%v, want %v", err, errWaits)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it is waited for")
	}
}

// A link to very many directories is not followed to its end, and says so once. Objects of directories that are not read any more stay.
func TestVeryManyDirectoriesAreNotReadAll(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(dir, "z", "a.yaml"), namespace("one", "1"))
	w := watch(t, dir, func(s *Source) { s.tree.most = 5 })
	w.expect("one", "1")
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		writeFile(t, filepath.Join(outside, name, "x.yaml"), namespace(name, "1"))
	}
	w.must(os.Symlink(outside, w.path("link")))
	w.expect("one", "1", "a", "1", "b", "1", "c", "1") // the directory itself, the link's target and three in it
	w.expectLog("problem", dir, "more than 5 directories: "+w.path("link/d")+" and others are not read", "stay in force")
	w.write("b.yaml", namespace("two", "1"))
	w.expect("one", "1", "a", "1", "b", "1", "c", "1", "two", "1")
	w.must(os.Remove(w.path("link")))
	w.expectLog("resolved", dir)
	w.expect("one", "1", "two", "1")
	w.expectNoProblems()
}

var _ syncer.Source = (*Source)(nil)
