package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each step of the lives in architecture.md is a function that there is, and no life visits one twice.
func TestLivesNameFunctionsThatThereAre(t *testing.T) {
	text, err := os.ReadFile("architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, lives, ok := strings.Cut(string(text), "## Five lives")
	if !ok {
		t.Fatal("architecture.md has no section Five lives")
	}
	lives, _, _ = strings.Cut(lives, "\n## ")
	step := regexp.MustCompile("(?m)^[0-9]+\\. `([^`]+)` `([^`]+)`: ")
	for i, life := range strings.Split(lives, "\n### ")[1:] {
		title, _, _ := strings.Cut(life, "\n")
		steps := step.FindAllStringSubmatch(life, -1)
		if numbered := regexp.MustCompile(`(?m)^[0-9]+\. `).FindAllString(life, -1); len(steps) < 5 || len(steps) != len(numbered) {
			t.Errorf("life %d, %s: %d steps name a place, of %d", i+1, title, len(steps), len(numbered))
		}
		seen := map[string]bool{}
		for _, s := range steps {
			place, name := s[1], s[2]
			if seen[place+" "+name] {
				t.Errorf("%s visits %s of %s twice", title, name, place)
			}
			seen[place+" "+name] = true
			if !defines(t, filepath.Join("..", place), name) {
				t.Errorf("%s: there is no %s in %s", title, name, place)
			}
		}
	}
}

// defines reports whether a package of Go, or a file of C, has the function, or for C the variable.
func defines(t *testing.T, place, name string) bool {
	t.Helper()
	files, pattern := []string{place}, `(?m)^(static |volatile |__noinline |int ).*\b`+name+`\b`
	if info, err := os.Stat(place); err == nil && info.IsDir() {
		files, _ = filepath.Glob(filepath.Join(place, "*.go"))
		pattern = `(?m)^func ` + name + `\(`
		if kind, method, ok := strings.Cut(name, "."); ok {
			pattern = `(?m)^func \(\w+ \*?` + kind + `(\[[^]]+\])?\) ` + method + `\(`
		}
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(f, "_test.go") && regexp.MustCompile(pattern).Match(text) {
			return true
		}
	}
	return false
}
