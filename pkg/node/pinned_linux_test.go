package node

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/margay-project/margay/pkg/config"
)

// TestOtherInstancesAreFound: a cleanup of one instance leaves the others, and says so.
func TestOtherInstancesAreFound(t *testing.T) {
	of := config.Defaults()
	of.BPFFS = t.TempDir()
	for _, pin := range []string{"margay/v7/links/5-egress", "margay-blue/v6/links/judge", "margay-empty/v7/links/", "margayish/v7/links/x", "other/v7/links/x"} {
		path := filepath.Join(of.BPFFS, pin)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if filepath.Base(path) == "links" {
			continue
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for instance, want := range map[string][]string{"": {"blue"}, "blue": {""}, "green": {"", "blue"}} {
		of.Instance = instance
		if got, err := OtherInstances(of); err != nil || !slices.Equal(got, want) {
			t.Errorf("beside %q: %q (%v), want %q", instance, got, err, want)
		}
	}
}
