package docs

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestTheRightsInTheDocumentsAreThoseOfTheClusterRole: installation.md lists each resource that agents may read or create, and no other,
// and the kinds of objects that are installed.
func TestTheRightsInTheDocumentsAreThoseOfTheClusterRole(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "deploy/base/clusterrole.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	granted := map[string]map[string]bool{}
	first, _, _ := strings.Cut(string(text), "\n---\n")
	var role struct {
		Rules []struct{ Resources, Verbs []string }
	}
	if err := yaml.Unmarshal([]byte(first), &role); err != nil {
		t.Fatal(err)
	}
	for _, rule := range role.Rules {
		verbs := strings.Join(rule.Verbs, " ")
		if granted[verbs] == nil {
			granted[verbs] = map[string]bool{}
		}
		for _, resource := range rule.Resources {
			granted[verbs][resource] = true
		}
	}
	page := documents(t)["docs/installation.md"]
	for verbs, row := range map[string]string{"get list watch": "| to get, list and watch ", "create": "| to create "} {
		named := map[string]bool{}
		for _, rest := range strings.Split(page, row)[1:] {
			cell, _, _ := strings.Cut(rest, " | ")
			for _, m := range regexp.MustCompile("`([a-z.]+)`").FindAllStringSubmatch(cell, -1) {
				named[m[1]] = true
			}
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(granted[verbs])), slices.Sorted(maps.Keys(named))); diff != "" {
			t.Errorf("docs/installation.md, %q: granted (-), documented (+):\n%s", row, diff)
		}
		delete(granted, verbs)
	}
	for verbs := range granted {
		t.Errorf("the ClusterRole has the verbs %q, which docs/installation.md does not have", verbs)
	}
}

// TestTheInstalledObjectsAreThoseOfTheBase: installation.md counts and names the objects of deploy/base.
func TestTheInstalledObjectsAreThoseOfTheBase(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "deploy/base/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	page := strings.Join(strings.Fields(documents(t)["docs/installation.md"]), " ")
	_, sentence, ok := strings.Cut(page, "Both make the same five objects: ")
	sentence, _, _ = strings.Cut(sentence, ". ")
	kinds := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^kind: (\w+)$`).FindAllStringSubmatch(string(text), -1) {
			if m[1] == "Kustomization" {
				continue
			}
			kinds++
			if !regexp.MustCompile(`\b` + m[1] + `\b`).MatchString(sentence) {
				t.Errorf("installation.md does not name the %s of %s: %q", m[1], file, sentence)
			}
		}
	}
	if kinds != 5 || !ok {
		t.Errorf("deploy/base has %d objects, and installation.md says five: %t", kinds, ok)
	}
}
