package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The names that the code declares have no word that the glossary says is not used in them.
func TestNamesHaveNoWordThatTheGlossaryAvoids(t *testing.T) {
	avoided := avoidedWords(t)
	if len(avoided) < 5 {
		t.Fatalf("the glossary lists %d words to avoid", len(avoided))
	}
	names := 0
	for _, dir := range []string{"pkg", "cmd", "bpf"} {
		for name, place := range declared(t, filepath.Join(root, dir)) {
			names++
			for _, word := range wordsOf(name) {
				if use := avoided[word]; use != "" {
					t.Errorf("%s: %s has the word %q; the glossary has %s", place, name, word, use)
				}
			}
		}
	}
	if names < 1000 {
		t.Errorf("only %d names were found", names)
	}
}

// avoidedWords are those of the glossary's last table, with what is used instead.
func avoidedWords(t *testing.T) map[string]string {
	t.Helper()
	_, table, ok := strings.Cut(documents(t)["docs/glossary.md"], "## Words to avoid in names")
	table, _, _ = strings.Cut(table, "\n## ")
	if !ok {
		t.Fatal("the glossary has no section of words to avoid")
	}
	avoided := map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (.*) \| (.*) \|$`).FindAllStringSubmatch(table, -1) {
		for _, word := range regexp.MustCompile("`([a-z]+)`").FindAllStringSubmatch(row[1], -1) {
			avoided[word[1]] = row[2]
		}
	}
	return avoided
}

var part = regexp.MustCompile(`[A-Z]?[a-z0-9]+|[A-Z]+`)

func wordsOf(name string) (words []string) {
	for _, w := range part.FindAllString(name, -1) {
		words = append(words, strings.ToLower(w))
	}
	return words
}

// declared are functions, types, fields, parameters, variables and constants of packages, tests apart, with a place of each.
func declared(t *testing.T, dir string) map[string]token.Position {
	t.Helper()
	found, set := map[string]token.Position{}, token.NewFileSet()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			var ids []*ast.Ident
			switch n := n.(type) {
			case *ast.FuncDecl:
				ids = append(ids, n.Name)
			case *ast.TypeSpec:
				ids = append(ids, n.Name)
			case *ast.Field:
				ids = n.Names
			case *ast.ValueSpec:
				ids = n.Names
			}
			for _, id := range ids {
				found[id.Name] = set.Position(id.Pos())
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
