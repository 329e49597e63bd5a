package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	symptom = regexp.MustCompile(`(?m)^\| ([^|]*) \|`)
	quoted  = regexp.MustCompile(`"([^"|\n]+)"`)
	logged  = regexp.MustCompile(`"([^"|\n]+)" in (?:the|its) [^|.]*\blog\b`)
	left    = regexp.MustCompile(`…|[.]{3}`)
)

// TestQuotedMessagesAreThoseOfTheProduct: who sees a message searches the documents for it. So each message that operations.md quotes as
// a symptom, or as a line of a log, is a text of the code, but for the parts that "…" or "..." stands for.
func TestQuotedMessagesAreThoseOfTheProduct(t *testing.T) {
	page := documents(t)["docs/operations.md"]
	_, table, ok := strings.Cut(page, "\n| symptom | look at | likely cause |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	if !ok {
		t.Fatal("operations.md has no table of symptoms")
	}
	var messages []string
	for _, row := range symptom.FindAllStringSubmatch(table, -1) {
		for _, m := range quoted.FindAllStringSubmatch(row[1], -1) {
			messages = append(messages, m[1])
		}
	}
	for _, m := range logged.FindAllStringSubmatch(page, -1) {
		messages = append(messages, m[1])
	}
	if len(messages) < 9 {
		t.Errorf("only %d messages were found: %q", len(messages), messages)
	}
	texts := literals(t, "pkg", "cmd")
	for _, message := range messages {
		for _, part := range left.Split(message, -1) {
			if !strings.Contains(texts, part) {
				t.Errorf("operations.md quotes %q; no text of the code has %q", message, part)
			}
		}
	}
}

// literals are the string literals of Go files, tests apart, one in a line.
func literals(t *testing.T, dirs ...string) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
					text, _ := strconv.Unquote(l.Value)
					all.WriteString(text + "\n")
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}
