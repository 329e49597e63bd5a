package model_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/model"
)

// One name can be that of a pod and of a host endpoint: they do not replace each other, and sort apart.
func TestIDsOfDifferentKindsDiffer(t *testing.T) {
	pod, host := model.WorkloadID("", "eth0"), model.HostID("eth0")
	podKey, _ := model.KeyOf(model.EndpointUpdate{ID: pod})
	hostKey, _ := model.KeyOf(model.EndpointUpdate{ID: host})
	if podKey == hostKey || pod == host || pod.Compare(host) >= 0 || pod.String() == host.String() {
		t.Errorf("%v and %v", pod, host)
	}
	if got := model.WorkloadID("shop", "db-0").String(); got != "shop/db-0" {
		t.Errorf("a workload is %q", got)
	}
	if got := model.HostID("node1-eth0").String(); got != "host:node1-eth0" {
		t.Errorf("a host endpoint is %q", got)
	}
	if u := model.Absent(model.EndpointUpdate{ID: host, Endpoint: &model.Endpoint{}}); u != (model.EndpointUpdate{ID: host}) {
		t.Errorf("absent: %v", u)
	}
}

// A literal with a name and without a kind names nothing. WorkloadID and HostID are there so that no code has one.
func TestEveryLiteralNamesItsKind(t *testing.T) {
	files := token.NewFileSet()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.CompositeLit); ok && namesNoKind(literal) {
				t.Errorf("%s: an EndpointID without a kind; use WorkloadID or HostID", files.Position(literal.Pos()))
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// namesNoKind reports whether a literal is an EndpointID that has fields, and no Kind among them, or a list or map of such.
func namesNoKind(literal *ast.CompositeLit) bool {
	var listed []ast.Expr // the ids of a list or map, whose type is not repeated
	switch of := literal.Type.(type) {
	case *ast.SelectorExpr, *ast.Ident:
		return isID(of) && lacksKind(literal)
	case *ast.ArrayType:
		if isID(of.Elt) {
			listed = literal.Elts
		}
	case *ast.MapType:
		for _, e := range literal.Elts {
			if isID(of.Key) {
				listed = append(listed, e.(*ast.KeyValueExpr).Key)
			}
			if isID(of.Value) {
				listed = append(listed, e.(*ast.KeyValueExpr).Value)
			}
		}
	}
	return slices.ContainsFunc(listed, func(e ast.Expr) bool {
		id, ok := e.(*ast.CompositeLit)
		return ok && id.Type == nil && lacksKind(id)
	})
}

func isID(of ast.Expr) bool {
	switch of := of.(type) {
	case *ast.SelectorExpr:
		return of.Sel.Name == "EndpointID"
	case *ast.Ident:
		return of.Name == "EndpointID"
	}
	return false
}

func lacksKind(literal *ast.CompositeLit) bool {
	return len(literal.Elts) > 0 && !slices.ContainsFunc(literal.Elts, func(e ast.Expr) bool {
		field, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return false
		}
		key, ok := field.Key.(*ast.Ident)
		return ok && key.Name == "Kind"
	})
}
