package imports

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
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
			"bind.go", "classes.go", "endpoints.go", "interfaces.go", "kernel.go", "midflow.go", "names.go",
			"refused.go", "repair.go", "roster.go", "shares.go", "sources.go", "staged.go", "status.go", "sweeps.go", "tables.go"}},
		{"pkg/calc", []string{"policy", "profile", "policyTable", "tiers", "localIndex", "localGroup", "resolver", "dirty"}, []string{
			"definitions.go", "rules.go", "setindex.go", "spending.go", "contents.go"}},
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
