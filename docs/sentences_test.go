package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The sentences of the code, its comments and texts, have no word that the glossary avoids in sentences.
func TestSentencesHaveNoWordThatTheGlossaryAvoids(t *testing.T) {
	avoided := avoidedInSentences(t)
	if len(avoided) < 5 {
		t.Fatalf("the glossary lists %d words to avoid in sentences", len(avoided))
	}
	sentences := 0
	for _, dir := range []string{"pkg", "cmd", "bpf"} {
		for _, s := range sentencesOf(t, filepath.Join(root, dir)) {
			sentences++
			for _, word := range avoided {
				if found := word.FindString(s.text); found != "" {
					t.Errorf("%s: %q in %q; see the glossary", s.place, strings.TrimSpace(found), shortened(s.text, found))
				}
			}
		}
	}
	if sentences < 5000 {
		t.Errorf("only %d sentences were found", sentences)
	}
}

// What the test finds, and what it lets through.
func TestAvoidedWordsAreFoundInSentences(t *testing.T) {
	avoided := avoidedInSentences(t)
	for text, want := range map[string]bool{
		"starts Anew": true, "the observer is told": true, "it retold": false, "What is pinned stays.": true,
		"Close closes. What is pinned stays.": true, "it says what is pinned": false, "what the ends are called": false, "a name which is none": true,
		"there is none": false, "Nobody asks": true,
	} {
		got := false
		for _, word := range avoided {
			got = got || word.MatchString(". "+text)
		}
		if got != want {
			t.Errorf("%q: avoided %v, want %v", text, got, want)
		}
	}
}

// avoidedInSentences are the expressions of the glossary's table.
func avoidedInSentences(t *testing.T) (all []*regexp.Regexp) {
	t.Helper()
	_, table, ok := strings.Cut(documents(t)["docs/glossary.md"], "## Words to avoid in sentences")
	if !ok {
		t.Fatal("the glossary has no section of words to avoid in sentences")
	}
	for _, row := range regexp.MustCompile("(?m)^[|] (`.*`) [|] .* [|]$").FindAllStringSubmatch(table, -1) {
		for _, word := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
			begin := `(?i)\b`
			if strings.HasPrefix(word[1], "[.]") {
				begin = ""
			}
			all = append(all, regexp.MustCompile(begin+`(?:`+word[1]+`)\b`))
		}
	}
	return all
}

// sentence is a comment or a text, after ". ", so that expressions find its beginning as they do any sentence's.
type sentence struct {
	place string
	text  string
}

// sentencesOf are the comments and texts of the Go and C files below dir, tests and generated files apart.
func sentencesOf(t *testing.T, dir string) (all []sentence) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		switch {
		case err != nil || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "bpfel.go"):
		case strings.HasSuffix(path, ".go"):
			all = append(all, ofGo(t, path)...)
		case strings.HasSuffix(path, ".h") || strings.HasSuffix(path, ".c"):
			all = append(all, ofC(t, path)...)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func ofGo(t *testing.T, path string) (all []sentence) {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range f.Comments {
		all = append(all, sentence{set.Position(c.Pos()).String(), ". " + strings.Join(strings.Fields(c.Text()), " ")})
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			text, _ := strconv.Unquote(l.Value)
			all = append(all, sentence{set.Position(l.Pos()).String(), ". " + strings.Join(strings.Fields(text), " ")})
		}
		return true
	})
	return all
}

var commentOfC = regexp.MustCompile(`(?s)/[*].*?[*]/`)

func ofC(t *testing.T, path string) (all []sentence) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range commentOfC.FindAllStringIndex(string(text), -1) {
		words := strings.Fields(strings.ReplaceAll(string(text[c[0]+2:c[1]-2]), "\n *", "\n"))
		line := 1 + strings.Count(string(text[:c[0]]), "\n")
		all = append(all, sentence{path + ":" + strconv.Itoa(line), ". " + strings.Join(words, " ")})
	}
	return all
}

// shortened is text around what was found in it.
func shortened(text, found string) string {
	i := strings.Index(text, found)
	return text[max(0, i-20):min(len(text), i+len(found)+40)]
}
