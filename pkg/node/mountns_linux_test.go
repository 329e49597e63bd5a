package node

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestAMountNamespaceOfItsOwnIsSeen(t *testing.T) {
	const container = "pid:[4026532001]"
	for _, test := range []struct {
		name                      string
		first, parent, own, procs string // namespaces; empty: they may not be read
		want                      bool
	}{
		{"a unit of systemd", "mnt:[1]", "mnt:[1]", "mnt:[1]", initialPIDNamespace, false},
		{"a unit with mounts of its own", "mnt:[1]", "mnt:[1]", "mnt:[2]", initialPIDNamespace, true},
		{"ip netns exec from a shell", "", "mnt:[1]", "mnt:[2]", initialPIDNamespace, true},
		{"a shell with mounts of its own", "mnt:[1]", "mnt:[2]", "mnt:[2]", initialPIDNamespace, true},
		{"a container", "mnt:[2]", "", "mnt:[2]", container, true},
		{"nothing can be read", "", "", "", "", false},
		{"nothing else can be read", "", "", "mnt:[2]", initialPIDNamespace, false},
	} {
		proc := t.TempDir()
		link := func(pid int, kind, to string) {
			dir := filepath.Join(proc, fmt.Sprint(pid), "ns")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if to == "" {
				return
			}
			if err := os.Symlink(to, filepath.Join(dir, kind)); err != nil {
				t.Fatal(err)
			}
		}
		link(1, "mnt", test.first)
		link(20, "mnt", test.parent)
		link(30, "mnt", test.own)
		link(30, "pid", test.procs)
		if got := ownMounts(proc, 30, 20); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
