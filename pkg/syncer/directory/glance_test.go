package directory

import (
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/model"
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

// volume has a directory as the kubelet mounts a ConfigMap: links to files of ..data, itself a link, which a new version replaces.
type volume struct {
	t       testing.TB
	root    string
	version int
}

// publish writes the next version of the files and returns the paths that events name.
func (v *volume) publish(names ...string) map[string]bool {
	v.t.Helper()
	at := func(name string) string { return filepath.Join(v.root, name) }
	touched := map[string]bool{at("..data_tmp"): true, at("..data"): true, at(fmt.Sprint("..", v.version)): true, at(fmt.Sprint("..", v.version+1)): true}
	old := at(fmt.Sprint("..", v.version))
	v.version++
	target := fmt.Sprint("..", v.version)
	for _, name := range names {
		writeFile(v.t, filepath.Join(at(target), name), namespace(strings.TrimSuffix(name, filepath.Ext(name)), fmt.Sprint(v.version)))
		if _, err := os.Lstat(at(name)); err != nil {
			v.link(filepath.Join("..data", name), at(name))
			touched[at(name)] = true
		}
	}
	v.link(target, at("..data_tmp"))
	if err := os.Rename(at("..data_tmp"), at("..data")); err != nil {
		v.t.Fatal(err)
	}
	if err := os.RemoveAll(old); err != nil {
		v.t.Fatal(err)
	}
	return touched
}

func (v *volume) link(target, path string) {
	if err := os.Symlink(target, path); err != nil {
		v.t.Fatal(err)
	}
}

// glanceAt looks at what events have named, as Run does, which say that something was only written if so.
func (c *counted) glanceAt(touched map[string]bool, written bool) []model.Update {
	of := maps.Clone(touched)
	maps.DeleteFunc(of, func(path string, _ bool) bool { return !c.tree.concerns(path, written) })
	return c.glance(of, nil).Updates
}

// A new version of a ConfigMap is read whole, and once. A file beside its links is looked at alone.
func TestAChangeBesideLinksReadsNoDirectory(t *testing.T) {
	d := newCounted(t)
	v := volume{t: t, root: d.tree.root}
	plain := filepath.Join(d.tree.root, "plain.yaml")
	writeFile(t, plain, namespace("plain", "1"))
	v.publish("a.yaml", "b.yaml")
	d.scan(nil, nil, false)
	for version := 2; version < 5; version++ {
		d.dirs = 0
		writeFile(t, plain, namespace("plain", fmt.Sprint(version)))
		if us := d.glanceAt(map[string]bool{plain: true}, true); len(us) != 1 || d.dirs > 0 {
			t.Fatalf("a plain file beside links: updates %v, %d directories read", us, d.dirs)
		}
		if us := d.glanceAt(v.publish("a.yaml", "b.yaml"), false); len(us) != 2 || d.dirs != 1 {
			t.Fatalf("version %d of the volume: updates %v, %d directories read", version, us, d.dirs)
		}
	}
	aside := filepath.Join(d.tree.root, "..2027")
	if err := os.Mkdir(aside, 0o700); err != nil {
		t.Fatal(err)
	}
	d.dirs = 0
	if d.glanceAt(map[string]bool{aside: true}, false); d.dirs > 0 {
		t.Error("a directory is read because the next version of the volume is being written")
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
	if us := d.glanceAt(map[string]bool{target: true}, true); len(us) != 1 {
		t.Errorf("updates after an event of the link's target: %v", us)
	}
}

// What glances find is what a walk would find, whatever happens to files, directories and links that events name.
func TestGlancesFindWhatAWalkFinds(t *testing.T) {
	glances, withLinks, unseen := 0, 0, 0
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 0))
		d := newCounted(t)
		a := alteration{r: r, root: d.tree.root, outside: t.TempDir(), links: seed%2 == 0}
		if a.links {
			v := volume{t: t, root: d.tree.root}
			v.publish("a.yaml", "b.yml")
		}
		d.scan(nil, nil, false)
		for step := range 100 {
			paths, written := a.make()
			before := d.dirs
			touched, all := d.tree.found.named(paths)
			d.glanceAt(touched, written)
			switch {
			case !all:
				d.scan(nil, nil, false) // as every 10 s: there are no events of directories that are not watched
				unseen++
			case d.dirs == before:
				glances++
				if a.links && slices.ContainsFunc(slices.Collect(maps.Keys(d.tree.found.files)), isLink) {
					withLinks++
				}
			}
			fresh := tree{root: d.tree.root, watch: func(string) error { return nil }, seen: map[string]fingerprint{}}
			want := fresh.walk()
			for path, info := range want.files {
				if _, _, err := fresh.read(path, info, true); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(kept(want, fresh.seen), kept(d.tree.found, d.tree.seen)); diff != "" {
				t.Fatalf("seed %d, step %d, after changes of %v: a walk finds (-), glances found (+):\n%s", seed, step, paths, diff)
			}
		}
	}
	t.Logf("of 8,000 changes %d were looked at alone, %d of them beside links; no event named %d", glances, withLinks, unseen)
	if glances < 2500 || glances > 7500 || withLinks < 250 || unseen > 3000 {
		t.Errorf("of 8,000 changes %d were looked at alone, %d of them beside links; want many, and not all. No event named %d; want few", glances, withLinks, unseen)
	}
}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// named are the paths by which events name these, and whether all are in watched directories. Events know directories, and not
// the links by which somebody reached them.
func (l *listing) named(paths []string) (touched map[string]bool, all bool) {
	touched, all = map[string]bool{}, true
	for _, path := range paths {
		real, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			continue // so nothing was changed
		}
		if !l.visited[real] {
			all = false
		}
		for dir, at := range l.dirs {
			if at == real {
				touched[filepath.Join(dir, filepath.Base(path))] = true
			}
		}
	}
	return touched, all
}

// kept is what a listing says of each path, and which text was read.
func kept(l *listing, seen map[string]fingerprint) map[string]string {
	all := map[string]string{}
	for path, info := range l.files {
		all[path] = fmt.Sprintf("file %d of %d bytes, %x", info.Sys().(*syscall.Stat_t).Ino, info.Size(), seen[path].sum)
	}
	for path := range l.dirs {
		all[path] = "directory"
	}
	for path := range l.unreadable {
		all[path] += "unreadable"
	}
	return all
}

// alteration changes a tree at random.
type alteration struct {
	steps         int
	r             *rand.Rand
	root, outside string
	links         bool
}

// path is a random one below the root, or of something that links lead to.
func (a alteration) path() string {
	dirs := []string{"", "", "", "d", "d", "d/e.yaml", "link", "..data", "..2"}
	names := []string{"a.yaml", "b.yml", "c.tmp", ".hidden.yaml", "d", "e.yaml", "f.yaml", "g.yaml", "h.yaml", "link"}
	if a.links {
		names = append(names, "..data", "..1", "..2")
	}
	name := names[a.r.IntN(len(names))]
	if dir := a.r.IntN(20); dir > 0 {
		return filepath.Join(a.root, dirs[dir%len(dirs)], name)
	}
	return filepath.Join(a.outside, name)
}

// target is what a new link in a directory holds: a path from there or an absolute one, which may lead in a circle or nowhere.
func (a alteration) target(dir string) string {
	to := a.path()
	if a.r.IntN(2) == 0 {
		if from, err := filepath.Rel(dir, to); err == nil {
			return from
		}
	}
	return []string{to, filepath.Dir(to), "..data/a.yaml", "..data", "../link", "/dev/null"}[a.r.IntN(6)]
}

// make does something to a random path and returns what has changed. written: nothing but a file's text has.
func (a *alteration) make() (touched []string, written bool) {
	a.steps++ // texts of another length, which cannot be held for the one before
	path, other := a.path(), a.path()
	touched = []string{path}
	var err error
	switch n := a.r.IntN(100); {
	case n < 50:
		info, missing := os.Stat(path)
		if missing == nil && !info.Mode().IsRegular() {
			break // a FIFO keeps its writer waiting
		}
		if real, there := filepath.EvalSymlinks(path); there == nil {
			touched, written = []string{real}, true
		} else if isLink(path) {
			break // it would be made where the link leads
		}
		err = os.WriteFile(path, []byte(namespace("one", strings.Repeat("x", a.steps%60))), 0o600)
	case n < 65:
		err = os.Remove(path)
	case n < 80:
		touched, err = append(touched, other), os.Rename(path, other)
	case n < 84:
		err = syscall.Mkfifo(path, 0o600)
	case n < 95 && a.links:
		err = os.Symlink(a.target(filepath.Dir(path)), path)
	default:
		err = os.Mkdir(path, 0o700)
	}
	_ = err // it may not be possible, and then nothing has changed
	return touched, written
}
