package directory

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/validate"
)

// counted is a Source whose looks the test makes itself. It counts the directories that are read.
type counted struct {
	*Source
	dirs int
}

func newCounted(t *testing.T) *counted {
	t.Helper()
	c := &counted{Source: New(t.TempDir(), validate.Pods{}, slog.New(slog.DiscardHandler))}
	c.tree.watch = func(string) error {
		c.dirs++
		return nil
	}
	return c
}

// A change of a file costs the same beside any number of others: no directory is read for it.
func TestAChangeOfAFileReadsNoDirectory(t *testing.T) {
	d := newCounted(t)
	path := filepath.Join(d.tree.root, "below", "a.yaml")
	writeFile(t, path, namespace("one", "1"))
	d.scan(nil, nil, false)
	d.dirs = 0
	for i, step := range []func(){
		func() { writeFile(t, path, namespace("one", "2")) },
		func() { writeFile(t, path, brokenYAML) },
		func() { writeFile(t, path+".tmp", namespace("one", "3")) },
		func() {
			if err := os.Rename(path+".tmp", path); err != nil {
				t.Fatal(err)
			}
		},
		func() { writeFile(t, filepath.Join(d.tree.root, "b.yaml"), namespace("two", "1")) },
	} {
		step()
		d.glance(map[string]bool{path: true, path + ".tmp": true, filepath.Join(d.tree.root, "b.yaml"): true}, nil)
		if d.dirs > 0 {
			t.Fatalf("step %d: %d directories read", i, d.dirs)
		}
	}
	if d.catalog.objects.LenInForce() != 2 || len(d.catalog.faults) > 0 {
		t.Errorf("%d objects in force, problems %v; want 2, without problems", d.catalog.objects.LenInForce(), d.catalog.faults)
	}
	if d.glance(map[string]bool{filepath.Dir(path): true}, nil); d.dirs != 2 {
		t.Errorf("%d directories read after an event about a directory, want both", d.dirs)
	}
}

// An event names the target of a link, and not the link.
func TestAChangeOfTheTargetOfALinkIsNoticed(t *testing.T) {
	d := newCounted(t)
	target, link := filepath.Join(d.tree.root, "target"), filepath.Join(d.tree.root, "link.yaml")
	writeFile(t, target, namespace("one", "1"))
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	d.scan(nil, nil, false)
	writeFile(t, target, namespace("one", "twice"))
	if us := d.glance(map[string]bool{target: true}, nil).Updates; len(us) != 1 {
		t.Errorf("updates after an event of the link's target: %v", us)
	}
}

// What glances find is what a walk would find, whatever happens to files, directories and links that events name.
func TestGlancesFindWhatAWalkFinds(t *testing.T) {
	glances := 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 0))
		d := newCounted(t)
		d.scan(nil, nil, false)
		for step := range 100 {
			touched := alter(r, d.tree.root, seed%2 == 0)
			before := d.dirs
			d.glance(touched, nil)
			if d.dirs == before {
				glances++
			}
			fresh := tree{root: d.tree.root, watch: func(string) error { return nil }}
			want := fresh.walk()
			if diff := cmp.Diff(kept(want), kept(d.tree.found)); diff != "" {
				t.Fatalf("seed %d, step %d, after changes of %v: a walk finds (-), glances found (+):\n%s", seed, step, slices.Sorted(maps.Keys(touched)), diff)
			}
		}
	}
	if glances < 400 || glances > 3500 {
		t.Errorf("%d of 4,000 changes were looked at alone; want many, and not all", glances)
	}
}

// kept is what a listing says of each path.
func kept(l *listing) map[string]string {
	all := map[string]string{}
	for path, info := range l.files {
		all[path] = fmt.Sprintf("file of %d bytes", info.Size())
	}
	for path := range l.dirs {
		all[path] = "directory"
	}
	for path := range l.unreadable {
		all[path] += "unreadable"
	}
	return all
}

// alter does something to a random path below root and returns the paths that events name.
func alter(r *rand.Rand, root string, links bool) map[string]bool {
	random := func() string {
		dirs := []string{root, filepath.Join(root, "d"), filepath.Join(root, "d", "e.yaml"), filepath.Join(root, "link")}
		names := []string{"a.yaml", "b.yml", "c.tmp", ".hidden.yaml", "d", "e.yaml", "link"}
		return filepath.Join(dirs[r.IntN(len(dirs))], names[r.IntN(len(names))])
	}
	path, other := random(), random()
	touched := map[string]bool{path: true}
	var err error
	switch n := r.IntN(100); {
	case n < 50:
		if info, there := os.Stat(path); there == nil && !info.Mode().IsRegular() {
			break // a FIFO keeps its writer waiting
		}
		err = os.WriteFile(path, []byte(namespace("one", fmt.Sprint(r.IntN(1000)))), 0o600)
	case n < 70:
		err = os.Remove(path)
	case n < 85:
		touched[other], err = true, os.Rename(path, other)
	case n < 90:
		err = syscall.Mkfifo(path, 0o600)
	case n < 95 && links:
		err = os.Symlink(other, path)
	default:
		err = os.Mkdir(path, 0o700)
	}
	_ = err // it may not be possible, and then nothing has changed
	return touched
}
