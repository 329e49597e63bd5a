package directory

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Where links lead through: the link, what it names on the way, and the end, also if that is not there.
func TestWhatLinksLeadThrough(t *testing.T) {
	root := t.TempDir()
	writeFile(t, filepath.Join(root, "..1", "a.yaml"), namespace("one", "1"))
	writeFile(t, filepath.Join(root, "d", "b.yaml"), namespace("two", "1"))
	v := volume{t: t, root: root}
	for link, target := range map[string]string{
		"..data": "..1", "a.yaml": "..data/a.yaml", "d/up.yaml": "../..data/./a.yaml", "d/abs.yaml": filepath.Join(root, "d", "b.yaml"),
		"loop": "loop/x", "gone": "away/../d/c.yaml",
	} {
		v.link(target, filepath.Join(root, link))
	}
	above := newWays()
	above.follow("/", root)
	for link, want := range map[string][]string{
		"a.yaml":     {"..1", "..1/a.yaml", "..data", "a.yaml"},
		"d/up.yaml":  {"..1", "..1/a.yaml", "..data", "d", "d/up.yaml"},
		"d/abs.yaml": {"d", "d/abs.yaml", "d/b.yaml"},
		"loop":       {"loop"},
		"gone":       {"away", "d", "d/c.yaml", "gone"},
	} {
		w := newWays()
		w.follow(root, link)
		var got []string
		for path := range w.passed {
			if name, err := filepath.Rel(root, path); err == nil && !above.passed[path] {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s leads through (-want +got):\n%s", link, diff)
		}
	}
}

// The path of the directory itself may lead through a link with any name that is in a watched directory.
func TestTheDirectoryItselfMayBeALink(t *testing.T) {
	d, dir := newCounted(t), t.TempDir()
	writeFile(t, filepath.Join(dir, "real", "a.yaml"), namespace("one", "1"))
	v := volume{t: t, root: dir}
	v.link("real", filepath.Join(dir, ".root"))
	v.link("..", filepath.Join(dir, "real", "up"))
	d.tree.root = filepath.Join(dir, ".root")
	d.scan(nil, nil, false)
	if err := os.Remove(filepath.Join(dir, ".root")); err != nil {
		t.Fatal(err)
	}
	touched, _ := d.tree.found.named([]string{filepath.Join(dir, ".root")})
	if d.glanceAt(touched, false); d.tree.found.unreadable[d.tree.root] == nil {
		t.Errorf("the directory is gone; after events of %v it is not known", slices.Collect(maps.Keys(touched)))
	}
}

// A file that a link leads to may have any name. Its events say that it was written, as those of a log do.
func TestAWriteBehindALinkIsNoticedAtOnce(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "target.txt"), namespace("one", "1"))
	v := volume{t: t, root: dir}
	v.link("target.txt", filepath.Join(dir, "link.yaml"))
	w := watch(t, dir, func(s *Source) { s.backstop = time.Hour })
	w.expect("one", "1")
	writeFile(t, filepath.Join(dir, "target.txt"), namespace("one", "twice"))
	w.expect("one", "twice")
}

// Events of the working directory begin with "./", and its files are called without.
func TestTheWorkingDirectoryIsReadOnce(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "a.yaml", namespace("one", "1"))
	w := watch(t, ".", func(s *Source) { s.backstop = time.Hour })
	w.expect("one", "1")
	w.write("a.yaml", namespace("one", "2"))
	w.expect("one", "2")
	w.write("a.yaml", namespace("one", "3"))
	w.expect("one", "3")
	w.expectNoProblems()
}

// A directory keeps its watch when one above it is renamed, and with it the name under which it was watched first. Another directory may get that
// name.
func TestADirectoryBelowARenamedOneIsWatchedByItsName(t *testing.T) {
	w := watch(t, t.TempDir(), func(s *Source) { s.backstop = time.Hour })
	writeFile(t, w.path("x/y/a.yaml"), namespace("one", "1"))
	w.expect("one", "1")
	w.must(os.Rename(w.path("x"), w.path("q")))
	w.stays("one", "1")
	writeFile(t, w.path("x/y/b.yaml"), namespace("two", "1"))
	w.expect("one", "1", "two", "1")
	for _, version := range []string{"2", "3"} {
		w.write("q/y/a.yaml", namespace("one", version))
		w.expect("one", version, "two", "1")
	}
	w.write("x/y/b.yaml", namespace("two", "2"))
	w.expect("one", "3", "two", "2")
	w.expectNoProblems()
}
