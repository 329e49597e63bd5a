package imports

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Parts that are asked do not refer to the one who asks: otherwise a package becomes one object again.
func TestPartsDoNotReferToWhatIsMadeOfThem(t *testing.T) {
	tests := []struct {
		dir   string
		whole []string // types
		parts []string // files that must not have anything of these types
	}{
		{"pkg/dataplane/bpf", []string{"state", "BPF"}, []string{"addresses.go", "adopt.go",
			"bind.go", "classes.go", "endpoints.go", "entries.go", "interfaces.go", "kernel.go", "midflow.go", "names.go",
			"refused.go", "repair.go", "roster.go", "shares.go", "sources.go", "staged.go", "status.go", "sweeps.go", "tables.go"}},
		{"pkg/dataplane/bpf", []string{"endpoints"}, []string{"addresses.go", "adopt.go", "classes.go", "entries.go", "interfaces.go", "kernel.go",
			"midflow.go", "names.go", "renewal.go", "roster.go", "shares.go", "sources.go", "staged.go", "sweeps.go", "tables.go"}},
		{"pkg/dataplane/iptables", []string{"state", "IPTables", "Inspector", "Verifier", "decider"}, []string{"addresses.go", "backend.go",
			"connections.go", "drops.go", "endpoints.go", "endpoints_open.go", "ends.go", "generation.go", "handover.go", "heirs.go", "journal.go",
			"kept.go", "kept_sources.go", "listing.go", "masquerade.go", "names.go", "records.go", "refused.go", "remove.go", "routes.go", "sets.go",
			"slots.go", "slots_classes.go", "sources.go", "sources_write.go", "static.go", "status.go", "unseen.go", "world.go"}},
		{"pkg/dataplane/iptables", []string{"static", "slots", "addresses", "endpoints", "sources", "kept", "refusals"}, []string{
			"journal.go", "names.go", "sets.go", "unseen.go", "world.go"}},
		{"pkg/compile/chains", []string{"Config", "Static", "forwarding", "host"}, []string{"static_addresses.go", "static_checks.go",
			"static_flows.go", "static_judgement.go", "static_remotes.go", "static_strays.go", "static_terms.go", "static_verdicts.go"}},
		{"pkg/compile/chains", []string{"Slot", "layout"}, []string{"slot_plain.go", "slot_rows.go", "tree.go"}},
		{"pkg/compile/chains", []string{"checks", "judgement", "strays", "verdicts"}, []string{"static_addresses.go", "static_flows.go"}},
		{"pkg/calc", []string{"policy", "profile", "policyTable", "tiers", "localIndex", "localGroup", "resolver", "dirty"}, []string{
			"definitions.go", "rules.go", "setindex.go", "spending.go", "contents.go"}},
		{"pkg/calc", []string{"Graph"}, []string{"endpoints.go", "enforcement.go", "local.go", "networksets.go", "policies.go", "relabel.go", "services.go"}},
		{"pkg/calc", []string{"setIndex", "Graph", "builder", "policyTable"}, []string{
			"backends.go", "endpointslices.go", "members.go", "nodes.go", "numbers.go", "owned.go", "selected.go", "sets.go"}},
		{"pkg/calc", []string{"selectedSets", "serviceSets", "nodeSets", "ownedAddrs", "numberLimit"}, []string{"sets.go", "members.go"}},
	}
	for _, tt := range tests {
		for _, name := range tt.parts {
			path := filepath.Join("..", "..", tt.dir, name)
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, typ := range typesIn(f) {
				for _, whole := range tt.whole {
					if typ == whole {
						t.Errorf("%s/%s refers to %s", tt.dir, name, whole)
					}
				}
			}
		}
	}
}

// typesIn are the names in the places of a file where a type stands: of receivers, parameters, results, fields, variables
// and literals.
func typesIn(f *ast.File) (names []string) {
	add := func(e ast.Expr) {
		ast.Inspect(e, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr: // another package's
				return false
			case *ast.Ident:
				names = append(names, n.Name)
			}
			return true
		})
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			add(n.Type)
		case *ast.CompositeLit:
			if n.Type != nil {
				add(n.Type)
			}
		case *ast.ValueSpec:
			if n.Type != nil {
				add(n.Type)
			}
		}
		return true
	})
	return names
}

// A part's fields are written by its own methods: not by way of a pointer to it that another struct has.
func TestPartsWriteTheirOwnFields(t *testing.T) {
	for _, dir := range []string{"pkg/compile/chains", "pkg/dataplane/bpf", "pkg/dataplane/iptables"} {
		fset := token.NewFileSet()
		for _, written := range foreignWrites(productFiles(t, fset, dir)) {
			t.Errorf("%s writes %s: give the owner of the field a method", fset.Position(written.pos), written.what)
		}
	}
	const text = `package p
type a struct{ b *b; c c }
type b struct{ n int; c c; of map[int]int }
type c struct{ n int }
func (x *a) f() { x.b.n = 1; x.b.c.n++; x.b.of[1] = 2; delete(x.b.of, 1) }
func (x *a) g(y *b) { x.c.n = 1; x.b = &b{}; y.n, y.c.n = 1, 2; z := x.b.n; _ = z }`
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", text, 0)
	if err != nil {
		t.Fatal(err)
	}
	if found := foreignWrites([]*ast.File{f}); len(found) != 4 {
		t.Errorf("the check finds %d writes, want the 4 of function f: %v", len(found), found)
	}
}

// productFiles are the files of a package that are no tests.
func productFiles(t *testing.T, fset *token.FileSet, dir string) (files []*ast.File) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", "..", dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if len(files) == 0 {
		t.Fatalf("%s has no files", dir)
	}
	return files
}

type foreignWrite struct {
	pos  token.Pos
	what string
}

// foreignWrites are the assignments to fields, and deletions from their maps, that are reached by a field which is a pointer to a
// struct of the package. It knows fields by their names alone.
func foreignWrites(files []*ast.File) (found []foreignWrite) {
	pointers := pointerFields(files)
	check := func(e ast.Expr) {
		if what := reachedBy(e, pointers); what != "" {
			found = append(found, foreignWrite{e.Pos(), what})
		}
	}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, left := range n.Lhs {
					check(left)
				}
			case *ast.IncDecStmt:
				check(n.X)
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "delete" || f.Name == "clear") {
					check(n.Args[0])
				}
			}
			return true
		})
	}
	return found
}

// reachedBy returns the last two names of an expression such as x.part.field[key], if one of the fields before the last is a pointer to
// a part; empty: none is.
func reachedBy(e ast.Expr, pointers map[string]bool) string {
	names := selected(e)
	if len(names) < 2 || !slices.ContainsFunc(names[:len(names)-1], func(name string) bool { return pointers[name] }) {
		return ""
	}
	return strings.Join(names[len(names)-2:], ".")
}

// selected are the fields that an expression selects, one of the other.
func selected(e ast.Expr) []string {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return append(selected(e.X), e.Sel.Name)
	case *ast.IndexExpr:
		return selected(e.X)
	}
	return nil
}

// pointerFields are the names of fields that are pointers to structs of the package.
func pointerFields(files []*ast.File) map[string]bool {
	structs, fields := map[string]*ast.StructType{}, map[string]bool{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					structs[spec.Name.Name] = s
				}
			}
			return true
		})
	}
	for _, s := range structs {
		for _, field := range s.Fields.List {
			pointer, ok := field.Type.(*ast.StarExpr)
			if !ok {
				continue
			}
			if to, ok := pointer.X.(*ast.Ident); ok && structs[to.Name] != nil {
				for _, name := range field.Names {
					fields[name.Name] = true
				}
			}
		}
	}
	return fields
}
