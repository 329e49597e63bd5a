package main

import (
	"bufio"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// image writes an initial file system for a kernel: a cpio archive of the form "newc".
type image struct {
	w     *bufio.Writer
	inode int
	dirs  map[string]bool // written already, by name; the root is there without
	err   error
}

func newImage(w io.Writer) *image {
	return &image{w: bufio.NewWriterSize(w, 1<<20), dirs: map[string]bool{".": true, "": true}}
}

// entry writes one member; size bytes of content must follow, then pad.
func (i *image) entry(name string, mode uint32, size int64) {
	i.inode++
	i.print(fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		i.inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, len(name)+1, 0, name))
	i.pad(110 + int64(len(name)) + 1)
}

func (i *image) print(text string) {
	if i.err == nil {
		_, i.err = i.w.WriteString(text)
	}
}

// pad fills up to a multiple of 4 after n bytes.
func (i *image) pad(n int64) { i.print("\x00\x00\x00"[:(4-n%4)%4]) }

// modes of members.
const (
	modeDir  = 0o040000
	modeFile = 0o100000
	modeLink = 0o120000
)

// dir adds a directory and those it is in.
func (i *image) dir(name string) {
	if i.dirs[name] {
		return
	}
	i.dir(path.Dir(name))
	i.dirs[name] = true
	i.entry(name, modeDir|0o755, 0)
}

// content adds a file of a few bytes. Names have no slash at the beginning.
func (i *image) content(name string, mode uint32, content []byte) {
	i.dir(path.Dir(name))
	i.entry(name, modeFile|mode, int64(len(content)))
	i.print(string(content))
	i.pad(int64(len(content)))
}

// link adds a symbolic link.
func (i *image) link(name, target string) {
	i.dir(path.Dir(name))
	i.entry(name, modeLink|0o777, int64(len(target)))
	i.print(target)
	i.pad(int64(len(target)))
}

// file adds a copy of a file of this machine.
func (i *image) file(name, from string) {
	if i.err != nil {
		return
	}
	f, err := os.Open(from)
	if err != nil {
		i.err = err
		return
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		i.err = err
		return
	}
	i.dir(path.Dir(name))
	i.entry(name, modeFile|uint32(st.Mode().Perm()), st.Size())
	if n, err := io.Copy(i.w, f); i.err == nil && (err != nil || n != st.Size()) {
		i.err = fmt.Errorf("copy %s: %d of %d bytes: %w", from, n, st.Size(), err)
	}
	i.pad(st.Size())
}

// tree adds a directory of this machine as name, with what keep accepts, by path in it. A directory that keep does not
// accept is left out as a whole. Files that are neither regular nor symbolic links are left out.
func (i *image) tree(name, from string, keep func(path string, entry fs.DirEntry) bool) {
	err := filepath.WalkDir(from, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || i.err != nil {
			return err
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(file, from), "/")
		to := path.Join(name, rel)
		switch {
		case rel != "" && !keep(rel, entry):
			if entry.IsDir() {
				return fs.SkipDir
			}
		case entry.IsDir():
			i.dir(to)
		case entry.Type() == fs.ModeSymlink:
			target, err := os.Readlink(file)
			if err != nil {
				return err
			}
			i.link(to, target)
		case entry.Type().IsRegular():
			i.file(to, file)
		}
		return nil
	})
	if i.err == nil {
		i.err = err
	}
}

// close ends the archive.
func (i *image) close() error {
	i.entry("TRAILER!!!", 0, 0)
	if err := i.w.Flush(); i.err == nil {
		i.err = err
	}
	if i.err != nil {
		return fmt.Errorf("write initial file system: %w", i.err)
	}
	return nil
}
