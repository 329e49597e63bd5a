package imports

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	mostFields  = 14
	mostMethods = 25
)

// size is how much a struct has.
type size struct{ fields, methods int }

// excess is the size, without the number that is not above its limit.
func (s size) excess() (e size) {
	if s.fields > mostFields {
		e.fields = s.fields
	}
	if s.methods > mostMethods {
		e.methods = s.methods
	}
	return e
}

// String is how docs/architecture.md has an excess.
func (s size) String() string {
	var parts []string
	if s.fields > 0 {
		parts = append(parts, fmt.Sprintf("%d fields", s.fields))
	}
	if s.methods > 0 {
		parts = append(parts, fmt.Sprintf("%d methods", s.methods))
	}
	return strings.Join(parts, ", ")
}

// A struct with more fields or methods is several things, or stands with its reason in a table of docs/architecture.md. A function of
// its package whose first parameter it is counts as a method. The table has the size: nothing is added to a large struct, and what is
// taken out of one stays out.
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
	listed := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]+) \\| .").FindAllStringSubmatch(section, -1) {
		listed[row[1]] = row[2]
	}
	large := largeStructs(t)
	for name, is := range large {
		switch may, known := listed[name]; {
		case !known:
			t.Errorf("%s has %s, more than %d fields or %d methods, and no reason in docs/architecture.md: split it", name, is, mostFields, mostMethods)
		case may != is.String():
			t.Errorf("%s has %s, and %s in docs/architecture.md: remove what was added, or write the smaller number there", name, is, may)
		}
	}
	for name := range listed {
		if _, is := large[name]; !is {
			t.Errorf("docs/architecture.md has a reason for %s, which is not large", name)
		}
	}
}

// largeStructs are the excesses of those of the product, generated ones apart, by package directory and name.
func largeStructs(t *testing.T) map[string]size {
	t.Helper()
	all, structs := map[string]size{}, map[string]bool{}
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
			countStructs(f, place, all, structs)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	large := map[string]size{}
	for name := range structs {
		if excess := all[name].excess(); excess != (size{}) {
			large[name] = excess
		}
	}
	return large
}

// countStructs adds what a file has of each type, and the types that are structs.
func countStructs(f *ast.File, place string, all map[string]size, structs map[string]bool) {
	add := func(name string, more size) {
		was := all[place+" "+name]
		all[place+" "+name] = size{was.fields + more.fields, was.methods + more.methods}
	}
	for _, decl := range f.Decls {
		switch decl := decl.(type) {
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok {
					if s, ok := spec.Type.(*ast.StructType); ok {
						structs[place+" "+spec.Name.Name] = true
						add(spec.Name.Name, size{fields: fieldsOf(s)})
					}
				}
			}
		case *ast.FuncDecl:
			if of := methodOf(decl); of != "" {
				add(of, size{methods: 1})
			}
		}
	}
}

func fieldsOf(s *ast.StructType) (count int) {
	for _, field := range s.Fields.List {
		count += max(1, len(field.Names))
	}
	return count
}

// methodOf returns the type that a function is a method of: by its receiver, or by its first parameter, unless it is a constructor,
// which makes something else of it; empty: of none.
func methodOf(f *ast.FuncDecl) string {
	switch {
	case f.Recv != nil:
		return receiver(f.Recv.List[0].Type)
	case len(f.Type.Params.List) == 0, strings.HasPrefix(strings.ToLower(f.Name.Name), "new"):
		return ""
	}
	return receiver(f.Type.Params.List[0].Type)
}

// Functions count that stand in for methods.
func TestFunctionsInPlaceOfMethodsCount(t *testing.T) {
	const text = `package p
type T struct{ a, b int; int }
func (t *T) method() {}
func beside(t *T) {}
func Besides(t T, n int) {}
func newOther(t *T) other { return other{} }
func NewOther(t *T) other { return other{} }
func second(n int, t *T) {}
func foreign(t *q.T) {}
func generic[K any](t *T, k K) {}
`
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]size{}
	if countStructs(f, "pkg/p", all, map[string]bool{}); all["pkg/p T"] != (size{3, 4}) {
		t.Errorf("%+v, want 3 fields and 4 methods", all["pkg/p T"])
	}
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
