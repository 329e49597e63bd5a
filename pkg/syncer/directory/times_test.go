package directory

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/margay-project/margay/pkg/validate"
)

// Times of files are coarse: what was written just before it was read may have been written again under the same time. So it
// is read once more when that is long enough ago, and not at every look until then.
func TestDirectoryDistrustsRecentTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(t.TempDir(), validate.Pods{}, slog.New(slog.DiscardHandler))
		d.tree.watch = func(string) error { return nil }
		path := filepath.Join(d.tree.root, "a.yaml")
		moment := time.Now()
		for _, step := range []struct {
			version string
			after   time.Duration
			read    bool
		}{{"1", 0, true}, {"2", coarseTime / 2, false}, {"3", coarseTime, true}, {"4", 2 * coarseTime, false}} {
			time.Sleep(time.Until(moment.Add(step.after)))
			writeFile(t, path, namespace("one", step.version))
			if err := os.Chtimes(path, moment, moment); err != nil {
				t.Fatal(err)
			}
			if us := d.scan(nil, nil, false).Updates; (len(us) == 1) != step.read {
				t.Errorf("version %s after %v gives %v, want that it is read: %t", step.version, step.after, us, step.read)
			}
		}
	})
}

// A file from the future, by its time, is read at every look: the clock was wrong when it was written, or is now.
func TestDirectoryDistrustsTimesInTheFuture(t *testing.T) {
	d := New(t.TempDir(), validate.Pods{}, slog.New(slog.DiscardHandler))
	d.tree.watch = func(string) error { return nil }
	path := filepath.Join(d.tree.root, "a.yaml")
	moment := time.Now().Add(time.Hour)
	for _, version := range []string{"1", "2", "3"} {
		writeFile(t, path, namespace("one", version))
		if err := os.Chtimes(path, moment, moment); err != nil {
			t.Fatal(err)
		}
		if us := d.scan(nil, nil, false).Updates; len(us) != 1 {
			t.Errorf("version %s gives %v", version, us)
		}
	}
}
