package bpfmaps

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestLinksOfOtherInstancesAreFound(t *testing.T) {
	bpffs := t.TempDir()
	for _, dir := range []string{"margay/v7/links", "margay-blue/v6/links", "margay-blue/v7/links", "margay-none", "margayish/v7/links", "other/v7/links"} {
		if err := os.MkdirAll(filepath.Join(bpffs, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	in := func(dirs ...string) (paths []string) {
		for _, dir := range dirs {
			paths = append(paths, filepath.Join(bpffs, dir))
		}
		return paths
	}
	for own, want := range map[string]map[string][]string{
		"margay/v7/links":      {"blue": in("margay-blue/v6/links", "margay-blue/v7/links")},
		"margay-blue/v7/links": {"": in("margay/v7/links")},
	} {
		if got, err := LinksOfOthers(filepath.Join(bpffs, own)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("beside %s: %q (%v), want %q", own, got, err, want)
		}
	}
}
