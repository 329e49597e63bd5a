package directory

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/validate"
)

// BenchmarkAFileChanges replaces one small file beside many others, of which one is large.
func BenchmarkAFileChanges(b *testing.B) {
	for _, others := range []int{100, 1_000, 10_000} {
		b.Run(fmt.Sprintf("beside-%d", others), func(b *testing.B) {
			d := New(b.TempDir(), validate.Pods{}, slog.New(slog.DiscardHandler))
			d.tree.watch = func(string) error { return nil }
			for i := range others {
				writeFile(b, filepath.Join(d.tree.root, fmt.Sprintf("other-%d.yaml", i)), namespace(fmt.Sprintf("other-%d", i), "1"))
			}
			var large strings.Builder
			for i := range 10_000 {
				large.WriteString("---\n" + namespace(fmt.Sprintf("large-%d", i), "1"))
			}
			writeFile(b, filepath.Join(d.tree.root, "large.yaml"), large.String())
			d.scan(nil, nil, false)
			path := filepath.Join(d.tree.root, "a.yaml")
			for i := 0; b.Loop(); i++ {
				writeFile(b, path, namespace("one", fmt.Sprint(i)))
				if us := d.glance(map[string]bool{path: true}, nil).Updates; len(us) != 1 {
					b.Fatalf("%d updates", len(us))
				}
			}
		})
	}
}

// BenchmarkAFileChangesBesideLinks writes one small file beside many others, and beside the links of a ConfigMap.
func BenchmarkAFileChangesBesideLinks(b *testing.B) {
	d, v, _ := besideLinks(b, 10_000)
	path := filepath.Join(v.root, "a.yaml")
	for i := 0; b.Loop(); i++ {
		writeFile(b, path, namespace("one", fmt.Sprint(i)))
		if us := d.glance(map[string]bool{path: true}, nil).Updates; len(us) != 1 {
			b.Fatalf("%d updates", len(us))
		}
	}
}

// BenchmarkAConfigMapChanges publishes a ConfigMap of 100 files beside 10,000 others.
func BenchmarkAConfigMapChanges(b *testing.B) {
	d, v, names := besideLinks(b, 10_000)
	for b.Loop() {
		if us := d.glance(v.publish(names...), nil).Updates; len(us) != len(names) {
			b.Fatalf("%d updates", len(us))
		}
	}
}

// besideLinks is a directory with so many small files and a ConfigMap of 100.
func besideLinks(b *testing.B, others int) (d *Source, v *volume, names []string) {
	b.Helper()
	d = New(b.TempDir(), validate.Pods{}, slog.New(slog.DiscardHandler))
	d.tree.watch = func(string) error { return nil }
	for i := range others {
		writeFile(b, filepath.Join(d.tree.root, fmt.Sprintf("other-%d.yaml", i)), namespace(fmt.Sprintf("other-%d", i), "1"))
	}
	for i := range 100 {
		names = append(names, fmt.Sprintf("link-%d.yaml", i))
	}
	v = &volume{t: b, root: d.tree.root}
	v.publish(names...)
	d.scan(nil, nil, false)
	return d, v, names
}
