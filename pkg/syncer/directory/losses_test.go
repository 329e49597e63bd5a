package directory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/margay-project/margay/pkg/syncer"
	"github.com/margay-project/margay/pkg/validate"
)

// unwatched runs do with a Source that sees changes by looking every 10 ms, in a bubble where time is not the world's.
func unwatched(t *testing.T, do func(t *testing.T, w *watched)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &watched{t: t, dir: dir, reports: syncer.NewReports(), lines: make(chan string, 100), state: map[string]string{}}
		w.source = New(dir, validate.Pods{}, slog.New(lineLog{slog.DiscardHandler, w.lines}))
		w.source.backstop = 10 * time.Millisecond
		w.source.newWatcher = func() (*fsnotify.Watcher, error) { return nil, errors.New("none in a bubble") }
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- w.source.Run(ctx, func(b syncer.Batch) {
				w.reports.Note(b)
				w.apply(b.Updates)
			})
		}()
		synctest.Wait()
		do(t, w)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// after lets time pass, and asserts what is in force then and whether the file has a problem.
func (w *watched) after(d time.Duration, when string, problem string, want ...string) {
	w.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	wanted := map[string]string{}
	for i := 0; i < len(want); i += 2 {
		wanted[want[i]] = want[i+1]
	}
	if state, _ := w.now(); !maps.Equal(state, wanted) {
		w.t.Errorf("%s: %v, want %v", when, state, wanted)
	}
	said := ""
	for _, p := range w.watchedProblems() {
		if strings.HasPrefix(p, w.path("a.yaml")) {
			said += p
		}
	}
	if problem == "" && said != "" || !strings.Contains(said, problem) {
		w.t.Errorf("%s: problems %q, want %q", when, said, problem)
	}
}

// watchedProblems are the problems, but for those of a Source that nothing is watched for.
func (w *watched) watchedProblems() []string {
	var all []string
	for _, p := range w.reports.Problems() {
		if !strings.Contains(p.Reason, "not watched") {
			all = append(all, p.String())
		}
	}
	return all
}

const moment = 50 * time.Millisecond

func TestAnEmptiedFileIsNeverBelieved(t *testing.T) {
	unwatched(t, func(t *testing.T, w *watched) {
		a := w.path("a.yaml")
		writeFile(t, a, namespace("one", "1")+namespace("two", "1"))
		w.after(moment, "written", "", "one", "1", "two", "1")
		const empty = "the file is empty; remove it, or put a comment in it, to delete its objects; the last valid objects of the file stay in force (objects: 2)"
		writeFile(t, a, "")
		w.after(moment, "emptied", empty, "one", "1", "two", "1")
		writeFile(t, a, " \n\n")
		w.after(30*time.Second, "half a minute later, with nothing but space", empty, "one", "1", "two", "1")
		writeFile(t, w.path("b.yaml"), namespace("two", "2"))
		w.after(moment, "another file says more", empty, "one", "1", "two", "2")
		writeFile(t, a, namespace("one", "3"))
		w.after(moment, "filled again", "", "one", "3", "two", "2")
		if gone := w.takeDeleted(); len(gone) > 0 {
			t.Errorf("%v went away for a while", gone)
		}
		writeFile(t, a, "")
		w.after(moment, "emptied again", "the file is empty", "one", "3", "two", "2")
		writeFile(t, a, "# nothing any more\n")
		w.after(believedAfter+moment, "meant", "", "two", "2")
	})
}

func TestAnEmptiedFileThatIsRemovedIsMeant(t *testing.T) {
	unwatched(t, func(t *testing.T, w *watched) {
		a := w.path("a.yaml")
		writeFile(t, a, namespace("one", "1"))
		w.after(moment, "written", "", "one", "1")
		writeFile(t, a, "")
		w.after(10*time.Second, "emptied", "objects: 1", "one", "1")
		w.must(os.Remove(a))
		w.after(believedAfter-moment, "just removed", "", "one", "1")
		w.after(2*moment, "removed", "")
	})
}

// Somebody removes the line "---" between two objects. The text is one object then, of which it is not known which, and the last of its values
// would count: another object of the file, or one of a kind that is not read.
func TestDirectoryKeepsObjectsThatAreNotSeparatedAnyMore(t *testing.T) {
	others := map[string]string{
		"another object":                   strings.TrimPrefix(namespace("two", "2"), "---\n"),
		"an object of a kind not read":     "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: two}\n",
		"a policy of a kind not read":      "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: two}\n",
		"a list":                           "apiVersion: v1\nkind: List\nitems: []\n",
		"another name for the same object": "metadata: {name: two}\n",
	}
	for name, text := range others {
		t.Run(name, func(t *testing.T) {
			unwatched(t, func(t *testing.T, w *watched) {
				a := w.path("a.yaml")
				writeFile(t, a, namespace("one", "1")+namespace("two", "1"))
				w.after(moment, "written", "", "one", "1", "two", "1")
				writeFile(t, a, namespace("one", "2")+text)
				w.after(2*believedAfter, "joined", "field is written twice", "one", "1", "two", "1")
				writeFile(t, a, namespace("one", "3")+namespace("two", "3"))
				w.after(moment, "mended", "", "one", "3", "two", "3")
			})
		})
	}
}

// A List without items says that there is nothing, as a comment does.
func TestAnEmptyListDeletesWhatItHeld(t *testing.T) {
	unwatched(t, func(t *testing.T, w *watched) {
		a := w.path("a.yaml")
		writeFile(t, a, "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Namespace\n  metadata: {name: one, labels: {v: \"1\"}}\n")
		w.after(moment, "written", "", "one", "1")
		writeFile(t, a, "apiVersion: v1\nkind: List\nitems: []\n")
		w.after(believedAfter-moment, "emptied", "", "one", "1")
		w.after(2*moment, "a second later", "")
	})
}

func TestAFileThatNeverHeldAnythingIsSaidToBeEmpty(t *testing.T) {
	unwatched(t, func(t *testing.T, w *watched) {
		writeFile(t, w.path("a.yaml"), "")
		w.after(moment, "empty", "a.yaml: rejected: the file is empty") // the alert on rejected objects has to notice
		writeFile(t, w.path("a.yaml"), " \n\t\n")
		w.after(moment, "blank", "a.yaml: rejected: the file is empty")
		for _, meant := range []string{"# nothing\n", "---\n", "---\n# nothing\n---\n"} {
			writeFile(t, w.path("a.yaml"), meant)
			w.after(moment, fmt.Sprintf("%q", meant), "")
		}
	})
}

func TestAFileThatIsGoneAndBackLosesNothing(t *testing.T) {
	unwatched(t, func(t *testing.T, w *watched) {
		a := w.path("a.yaml")
		writeFile(t, a, namespace("one", "1")+namespace("two", "1"))
		w.after(moment, "written", "", "one", "1", "two", "1")
		for _, version := range []string{"1", "2", "3"} { // the first: as it was
			before, _ := w.now()
			w.must(os.Remove(a))
			w.after(believedAfter/2, "gone", "", "one", before["one"], "two", before["two"])
			writeFile(t, a, "")
			w.after(believedAfter/2, "there, and empty", "the file is empty", "one", before["one"], "two", before["two"])
			writeFile(t, a, namespace("one", version)) // half of it
			w.after(believedAfter/2, "half there", "", "one", version, "two", before["two"])
			writeFile(t, a, namespace("one", version)+namespace("two", version))
			w.after(2*believedAfter, "back", "", "one", version, "two", version)
		}
		if gone := w.takeDeleted(); len(gone) > 0 {
			t.Errorf("%v went away for a while", gone)
		}
		w.must(os.Remove(a))
		w.after(believedAfter-moment, "just removed", "", "one", "3", "two", "3")
		w.after(2*moment, "removed", "")
	})
}

func TestWhatAFileDoesNotSayAnyMoreIsBelievedOnceItStaysSo(t *testing.T) {
	unwatched(t, func(t *testing.T, w *watched) {
		a := w.path("a.yaml")
		writeFile(t, a, namespace("one", "1")+namespace("two", "1"))
		w.after(moment, "written", "", "one", "1", "two", "1")
		writeFile(t, a, namespace("one", "2"))
		w.after(moment, "the rest of it applies at once", "", "one", "2", "two", "1")
		w.after(believedAfter/2, "not yet", "", "one", "2", "two", "1")
		writeFile(t, a, namespace("one", "3"))
		w.after(believedAfter-moment, "written again, it has to stay so again", "", "one", "3", "two", "1")
		w.after(2*moment, "it stayed so", "", "one", "3")
	})
}

func TestAnObjectThatMovesToAnotherFileIsThatFilesAtOnce(t *testing.T) {
	unwatched(t, func(t *testing.T, w *watched) {
		writeFile(t, w.path("a.yaml"), namespace("one", "1"))
		w.after(moment, "written", "", "one", "1")
		writeFile(t, w.path("b.yaml"), namespace("one", "2")) // after a.yaml in path order
		w.must(os.Remove(w.path("a.yaml")))
		w.after(moment, "moved", "", "one", "2")
		if p := w.watchedProblems(); len(p) > 0 {
			t.Errorf("problems %q", p)
		}
		w.after(2*believedAfter, "later", "", "one", "2")
		if gone := w.takeDeleted(); len(gone) > 0 {
			t.Errorf("%v went away for a while", gone)
		}
	})
}

func TestAVolumeThatIsUnmountedLosesNothing(t *testing.T) {
	unwatched(t, func(t *testing.T, w *watched) {
		writeFile(t, w.path("a.yaml"), namespace("one", "1"))
		w.after(moment, "written", "", "one", "1")
		w.must(os.Rename(w.dir, w.dir+".away"))
		w.must(os.Mkdir(w.dir, 0o755)) // what was below the mount
		w.after(10*time.Second, "another directory", "", "one", "1")
		if p := w.watchedProblems(); len(p) != 1 || !strings.Contains(p[0], "was a volume unmounted") {
			t.Errorf("problems %q", p)
		}
		writeFile(t, w.path("b.yaml"), namespace("two", "1"))
		w.after(2*believedAfter, "it has manifests of its own", "", "two", "1")
		w.must(os.RemoveAll(filepath.Join(w.dir, "b.yaml")))
		w.after(2*believedAfter, "all of them removed", "")
	})
}
