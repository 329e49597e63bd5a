package attach

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestPinsThatNoAgentOfThisVersionMakesAreUnknown(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"5-egress", "7-ingress", "judge-forward-ip4-1", "judge-local_in-ip6-101", "guard-local_out-ip4-2",
		"5-middle", "guard-post_routing-ip4-1", "later"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"5-middle", "guard-post_routing-ip4-1", "later"}
	if got, err := UnknownPins(dir); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q (%v), want %q", got, err, want)
	}
	if got, err := UnknownPins(filepath.Join(dir, "none")); err != nil || len(got) > 0 {
		t.Errorf("without a directory: %q, %v", got, err)
	}
}

// What this agent pins is known.
func TestOwnPinsAreKnown(t *testing.T) {
	_, dir := room(t)
	l := newLinks(t, dir, programs(t))
	if _, err := l.EnsureHooks(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Ensure(veth(t, "cali-a")); err != nil {
		t.Fatal(err)
	}
	if got, err := UnknownPins(dir); err != nil || len(got) > 0 {
		t.Errorf("unknown: %q (%v)", got, err)
	}
}
