package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// members reads an archive of the form "newc": what is in it, by name, as mode and content.
func members(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	found := map[string]string{}
	round := func(n int) int { return (n + 3) &^ 3 }
	for at := 0; ; {
		var fields [13]int
		head := string(archive[at:])
		if !strings.HasPrefix(head, "070701") {
			t.Fatalf("no header at %d", at)
		}
		for i := range fields {
			if _, err := fmt.Sscanf(head[6+8*i:14+8*i], "%x", &fields[i]); err != nil {
				t.Fatal(err)
			}
		}
		mode, size, nameSize := fields[1], fields[6], fields[11]
		name := head[110 : 110+nameSize-1]
		at = round(at + 110 + nameSize)
		content := string(archive[at : at+size])
		at = round(at + size)
		if name == "TRAILER!!!" {
			return found
		}
		if _, twice := found[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		found[name] = fmt.Sprintf("%o %s", mode, content)
	}
}

func TestAnImageHasWhatWasPutIn(t *testing.T) {
	from := t.TempDir()
	for name, content := range map[string]string{"bin/tool": "#!", "share/doc/long": "x", "odd": "12345"} {
		file := filepath.Join(from, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("bin/tool", filepath.Join(from, "link")); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	i := newImage(&out)
	i.tree("", from, func(name string, _ fs.DirEntry) bool { return name != "share" })
	i.tree("copy/of", from, func(name string, _ fs.DirEntry) bool { return name == "odd" })
	i.file("init", filepath.Join(from, "bin/tool"))
	i.content("a/b", 0o644, []byte("hello"))
	i.link("bin/sh", "busybox")
	if err := i.close(); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"bin": "40755 ", "bin/tool": "100755 #!", "odd": "100755 12345", "link": "120777 bin/tool", "copy": "40755 ",
		"copy/of": "40755 ", "copy/of/odd": "100755 12345", "init": "100755 #!", "a": "40755 ", "a/b": "100644 hello",
		"bin/sh": "120777 busybox",
	}
	if diff := cmp.Diff(want, members(t, out.Bytes())); diff != "" {
		t.Error(diff)
	}
}

func TestAnImageOfWhatIsNotThereFails(t *testing.T) {
	i := newImage(&bytes.Buffer{})
	i.file("a", filepath.Join(t.TempDir(), "gone"))
	if err := i.close(); err == nil {
		t.Error("no error")
	}
}

func TestModulesOfSoftwareAreKept(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]bool{
		"6.12/modules.dep": true, "6.12/kernel/net/sctp/sctp.ko.xz": true, "6.12/kernel/drivers/net/veth.ko.xz": true,
		"6.12/kernel/drivers/net/wireguard/wireguard.ko": true, "6.12/kernel/drivers/net/ethernet/intel/e1000.ko.xz": false,
		"6.12/kernel/drivers/gpu/drm.ko": false, "6.12/kernel/fs/ext4/ext4.ko": false, "6.12/kernel/lib/crc.ko": true, "6.12/build": false,
	} {
		parts, kept := strings.Split(name, "/"), true
		for n := range parts {
			path := filepath.Join(parts[:n+1]...)
			full := filepath.Join(dir, path)
			if n < len(parts)-1 {
				if err := os.MkdirAll(full, 0o755); err != nil {
					t.Fatal(err)
				}
			} else if err := os.WriteFile(full, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			st, err := os.Stat(full)
			if err != nil {
				t.Fatal(err)
			}
			kept = kept && keepModule(path, fs.FileInfoToDirEntry(st))
		}
		if kept != want {
			t.Errorf("%s: kept %v, want %v", name, kept, want)
		}
	}
}
