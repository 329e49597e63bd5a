package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Where the archive cannot be reached: without lists nothing can be had, which is not the fault of what is tested; with
// lists of an earlier run, what is in the cache can.
func TestWithoutTheArchiveEarlierListsAreUsed(t *testing.T) {
	tools, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(tools, "apt-get"), []byte("#!/bin/sh\nexit 100\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", tools)
	_, err := openArchive(t.Context(), dir)
	if !errors.As(err, &unavailable{}) {
		t.Errorf("without lists: %v, want it to be unavailable", err)
	}
	read, old := filepath.Join(dir, "read"), time.Now().Add(-2*listsLast)
	if err := os.WriteFile(read, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(read, old, old); err != nil {
		t.Fatal(err)
	}
	a, err := openArchive(t.Context(), dir)
	if err != nil {
		t.Fatalf("with lists of an earlier run: %v", err)
	}
	if _, err := a.unpacked(t.Context(), "nowhere", "amd64", true, "nothing"); !errors.As(err, &unavailable{}) {
		t.Errorf("a package that is not in the cache: %v, want it to be unavailable", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "here"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := a.unpacked(t.Context(), "here", "amd64", true, "nothing"); err != nil || got != filepath.Join(dir, "here") {
		t.Errorf("a package that is in the cache: %q, %v", got, err)
	}
}
