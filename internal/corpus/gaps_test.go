package corpus

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each row of the table of known gaps in test/corpus/README.md names cases and tests that there are.
func TestKnownGapsHaveTests(t *testing.T) {
	text, err := os.ReadFile("../../test/corpus/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| gap | test |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(strings.TrimSpace(table), "\n")
	if len(rows) < 15 {
		t.Errorf("only %d gaps", len(rows))
	}
	tests := goTests(t)
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		if len(cells) != 2 {
			t.Fatalf("not a row: %q", row)
		}
		for _, name := range strings.Split(cells[1], ", ") {
			if strings.HasPrefix(name, "Test") {
				if !tests[name] {
					t.Errorf("%s: there is no test %s", cells[0], name)
				}
			} else if _, err := os.Stat("../../test/corpus/" + name + ".txtar"); err != nil {
				t.Errorf("%s: %v", cells[0], err)
			}
		}
	}
}

// goTests are the names of all test functions of the module.
func goTests(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range function.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
