package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestTheChangelogIsThatOfTheRelease: its newest version is the one that chart and manifests name. The first version has no entries
// about behaviour before it, which no user had.
func TestTheChangelogIsThatOfTheRelease(t *testing.T) {
	text := documents(t)["CHANGELOG.md"]
	newest := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)`).FindStringSubmatch(text)
	if newest == nil {
		t.Fatal("the changelog has no version")
	}
	for file, pattern := range map[string]string{
		"deploy/helm/margay/Chart.yaml": `(?m)^appVersion: v(\S+)$`,
		"deploy/base/daemonset.yaml":    `image: ghcr.io/margay-project/margay:v(\S+)`,
		"deploy/cleanup/daemonset.yaml": `image: ghcr.io/margay-project/margay:v(\S+)`,
	} {
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		if named := regexp.MustCompile(pattern).FindStringSubmatch(string(content)); named == nil || named[1] != newest[1] {
			t.Errorf("%s has the version %q, the changelog %s", file, named, newest[1])
		}
	}
	versions := regexp.MustCompile(`(?m)^## `).FindAllString(text, -1)
	if before := regexp.MustCompile(`(?:Before,|, where (?:it|they|each)\b|\band now\b)[^.]*`).FindString(text); len(versions) == 1 && before != "" {
		t.Errorf("the first version changes something: %q", before)
	}
}
