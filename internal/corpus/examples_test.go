package corpus

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each row of test/corpus/EXAMPLES.md names cases that there are, or says why there is none. Each case that is named for an example
// is in the table.
func TestEveryExampleOfTheDocumentationHasItsCase(t *testing.T) {
	const dir = "../../test/corpus/"
	text, err := os.ReadFile(dir + "EXAMPLES.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "| "), " |"), " | ")
		if !strings.HasPrefix(line, "| ") || cells[0] == "page" {
			continue
		}
		rows++
		if len(cells) != 3 {
			t.Errorf("not a row of three cells: %q", line)
			continue
		}
		if cells[0] == "" || cells[1] == "" {
			t.Errorf("a row without a page or a meaning: %q", line)
		}
		if why, ok := strings.CutPrefix(cells[2], "no case: "); ok {
			if why == "" {
				t.Errorf("neither a case nor a reason: %q", line)
			}
			continue
		}
		for _, c := range strings.Split(cells[2], ", ") {
			named[c] = true
			if _, err := os.Stat(dir + c + ".txtar"); err != nil {
				t.Errorf("%s, %s: there is no case %s", cells[0], cells[1], c)
			}
		}
	}
	if rows < 90 {
		t.Errorf("only %d examples", rows)
	}
	files, err := filepath.Glob(dir + "*-example-*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if c := strings.TrimSuffix(filepath.Base(f), ".txtar"); !named[c] {
			t.Errorf("no row names the case %s", c)
		}
	}
}
