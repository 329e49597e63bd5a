package imports

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	mostFields  = 14
	mostMethods = 25
)

// A struct with more fields or methods is several things, or stands with its reason in a table of docs/architecture.md.
func TestLargeStructsHaveAReason(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "### Large structs")
	if !ok {
		t.Fatal("docs/architecture.md has no section Large structs")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var listed []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		listed = append(listed, row[1])
	}
	large := largeStructs(t)
	for _, name := range large {
		if !slices.Contains(listed, name) {
			t.Errorf("%s has more than %d fields or %d methods and no reason in docs/architecture.md", name, mostFields, mostMethods)
		}
	}
	for _, name := range listed {
		if !slices.Contains(large, name) {
			t.Errorf("docs/architecture.md has a reason for %s, which is not large", name)
		}
	}
}

// largeStructs are those of the product, generated ones apart, as package directory and name.
func largeStructs(t *testing.T) (large []string) {
	t.Helper()
	fields, methods := map[string]int{}, map[string]int{}
	for _, dir := range []string{"pkg", "cmd"} {
		root := filepath.Join("..", "..", dir)
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			place, err := filepath.Rel(filepath.Join("..", ".."), filepath.Dir(path))
			countStructs(f, place, fields, methods)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, n := range fields {
		if n > mostFields || methods[name] > mostMethods {
			large = append(large, name)
		}
	}
	slices.Sort(large)
	return large
}

func countStructs(f *ast.File, place string, fields, methods map[string]int) {
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			if s, ok := n.Type.(*ast.StructType); ok {
				count := 0
				for _, field := range s.Fields.List {
					count += max(1, len(field.Names))
				}
				fields[place+" "+n.Name.Name] = count
			}
		case *ast.FuncDecl:
			if n.Recv != nil {
				methods[place+" "+receiver(n.Recv.List[0].Type)]++
			}
		}
		return true
	})
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
