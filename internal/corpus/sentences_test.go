package corpus

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Every sentence of semantics §2 to §12 and §17 has a row in test/corpus/README.md with the cases that prove it, or why there
// are none. A case that is listed exists.
func TestEverySentenceOfTheSemanticsHasItsCases(t *testing.T) {
	sentences := semanticSentences(t)
	rows := sentenceRows(t)
	cases := map[string]bool{}
	files, err := filepath.Glob("../../test/corpus/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		cases[strings.TrimSuffix(filepath.Base(f), ".txtar")] = true
	}
	used := make([]bool, len(rows))
	for _, s := range sentences {
		i := slices.IndexFunc(rows, func(r sentenceRow) bool { return r.section == s.section && strings.HasPrefix(s.text, r.begins) })
		if i < 0 {
			t.Errorf("§%d: no row for %q", s.section, s.text)
			continue
		}
		if used[i] {
			t.Errorf("§%d: the row %q is about two sentences; the second is %q", s.section, rows[i].begins, s.text)
		}
		used[i] = true
	}
	for i, r := range rows {
		if !used[i] {
			t.Errorf("§%d: no sentence begins with %q", r.section, r.begins)
		}
		for _, c := range r.cases {
			if !cases[c] {
				t.Errorf("§%d: %q: there is no case %s", r.section, r.begins, c)
			}
		}
		if len(r.cases) == 0 && r.why == "" {
			t.Errorf("§%d: %q has neither a case nor a reason", r.section, r.begins)
		}
	}
	if len(sentences) < 150 {
		t.Errorf("only %d sentences were found", len(sentences))
	}
}

type sentence struct {
	section int
	text    string
}

type sentenceRow struct {
	section int
	begins  string
	cases   []string
	why     string // there are no cases
}

var (
	numberedHeading = regexp.MustCompile(`^## (\d+)\. `)
	rowOfDashes     = regexp.MustCompile(`^\|[-| ]+\|$`)
	endOfSentence   = regexp.MustCompile("[.:] +([A-Z`*(])")
)

// semanticSentences are those of the sections that are about verdicts. A row of a table is a sentence, its cells joined by semicolons.
func semanticSentences(t *testing.T) (all []sentence) {
	t.Helper()
	text, err := os.ReadFile("../../docs/semantics.md")
	if err != nil {
		t.Fatal(err)
	}
	section, inCode, paragraph := 0, false, ""
	end := func() {
		for _, s := range splitSentences(paragraph) {
			all = append(all, sentence{section, s})
		}
		paragraph = ""
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		isHeading := strings.HasPrefix(line, "## ")
		switch {
		case isHeading:
			end()
			section = 0
			if m := numberedHeading.FindStringSubmatch(line); m != nil {
				section, _ = strconv.Atoi(m[1])
			}
		case strings.HasPrefix(line, "```"):
			end()
			inCode = !inCode
		case inCode || section != 17 && (section < 2 || section > 12):
		case line == "":
			end()
		case strings.HasPrefix(line, "|"):
			end()
			if !rowOfDashes.MatchString(line) && (i+1 == len(lines) || !rowOfDashes.MatchString(lines[i+1])) {
				all = append(all, sentence{section, strings.ReplaceAll(strings.Trim(line, "| "), " | ", "; ")})
			}
		default:
			line = strings.TrimSpace(line)
			if bullet, ok := strings.CutPrefix(line, "* "); ok {
				end()
				line = bullet
			}
			paragraph = strings.TrimSpace(paragraph + " " + line)
		}
	}
	end()
	return all
}

func splitSentences(paragraph string) (all []string) {
	for {
		m := endOfSentence.FindStringSubmatchIndex(paragraph)
		if m == nil {
			break
		}
		all = append(all, paragraph[:m[0]+1])
		paragraph = paragraph[m[2]:]
	}
	if paragraph != "" {
		all = append(all, paragraph)
	}
	return all
}

// sentenceRows are those of the table in test/corpus/README.md.
func sentenceRows(t *testing.T) (rows []sentenceRow) {
	t.Helper()
	text, err := os.ReadFile("../../test/corpus/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "## Which cases prove which sentence\n")
	if !ok {
		t.Fatal("test/corpus/README.md has no table of sentences")
	}
	row := regexp.MustCompile(`(?m)^\| §(\d+) \| (.*) \| (.*) \|$`)
	for _, m := range row.FindAllStringSubmatch(table, -1) {
		r := sentenceRow{begins: strings.TrimSuffix(m[2], " …")}
		r.section, _ = strconv.Atoi(m[1])
		if why, ok := strings.CutPrefix(m[3], "no case: "); ok {
			r.why = why
		} else {
			r.cases = strings.Split(m[3], ", ")
		}
		rows = append(rows, r)
	}
	return rows
}
