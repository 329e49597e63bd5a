// Package docs holds no code, only the test that what the documents refer to exists.
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = ".."

// documents are all of ours, by path from the root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md", "test/corpus/README.md", "deploy/helm/margay/README.md", "examples/README.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("no documents match %s: %v", pattern, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			all[name] = string(text)
		}
	}
	return all
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notWord = regexp.MustCompile(`[^a-z0-9 _-]`)
	code    = regexp.MustCompile("`([^`\n]+)`")
	path    = regexp.MustCompile(`^(?:\.ci|bench|bpf|cmd|demo|deploy|docs|examples|internal|pkg|test)/[\w./-]+$`)
	member  = regexp.MustCompile(`\.[A-Z]\w*$`)
	flag    = regexp.MustCompile(`--([a-z][a-z0-9-]+)`)
)

// anchors are the names of a document's headings in links.
func anchors(text string) map[string]bool {
	names := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		name := notWord.ReplaceAllString(strings.ToLower(m[1]), "")
		names[strings.ReplaceAll(name, " ", "-")] = true
	}
	return names
}

func TestLinksLeadSomewhere(t *testing.T) {
	all := documents(t)
	for name, text := range all {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := name
			if file != "" {
				target = filepath.Join(filepath.Dir(name), file)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s: %v", name, m[1], err)
			} else if anchor != "" && !anchors(all[target])[anchor] {
				t.Errorf("%s links to %s: %s has no such heading", name, m[1], target)
			}
		}
	}
}

// TestNamedFilesExist: a path in code style is a file or directory of the repository.
func TestNamedFilesExist(t *testing.T) {
	invented := map[string]bool{"test/corpus/port-udplite.txtar": true} // of the example in CONTRIBUTING.md
	found := 0
	for name, text := range documents(t) {
		for _, m := range code.FindAllStringSubmatch(text, -1) {
			p := strings.TrimSuffix(m[1], "/")
			p = member.ReplaceAllString(p, "") // pkg/bpfmaps.Table
			if !path.MatchString(p) || invented[p] || strings.Contains(p, "NAME") {
				continue
			}
			found++
			if _, err := os.Stat(filepath.Join(root, p)); err != nil {
				t.Errorf("%s names `%s`: %v", name, m[1], err)
			}
		}
	}
	if found < 20 {
		t.Errorf("%d paths found in the documents, want at least 20: is the pattern still right?", found)
	}
}

// TestNamedFlagsExist: an option in code style that starts with -- is one of margay's. Lines with commands of others
// are left out.
func TestNamedFlagsExist(t *testing.T) {
	sources, err := filepath.Glob(filepath.Join(root, "cmd/agent/cli/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, s := range append(sources, filepath.Join(root, "pkg/config/table.go"), filepath.Join(root, "pkg/config/etcd.go")) {
		text, err := os.ReadFile(s)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	found := 0
	for document, text := range documents(t) {
		for _, m := range code.FindAllStringSubmatch(text, -1) {
			if !strings.HasPrefix(m[1], "--") && !strings.HasPrefix(m[1], "margay ") {
				continue
			}
			for _, f := range flag.FindAllStringSubmatch(m[1], -1) {
				found++
				name := `"` + f[1] + `"`
				if strings.HasSuffix(f[1], "-") { // the beginning of several, as --timeout-…
					name = `"` + f[1]
				}
				if !strings.Contains(all.String(), name) {
					t.Errorf("%s names the flag --%s, which margay has not", document, f[1])
				}
			}
		}
	}
	if found < 10 {
		t.Errorf("%d flags found in the documents, want at least 10: is the pattern still right?", found)
	}
}
