package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Targets of the Makefile that run tests of a folder with iptables, and all that say which.
var selections = []struct{ folder, target string }{{".", "test-legacy-agents"}, {"hostile", "test-legacy-attacks"}}

// TestEveryTestRunsWithIPTablesOrSaysWhyNot: a new test is not left out because a pattern of the Makefile does not match its name, nor
// does one that has a new name drop out. It has to match, or to give a reason to NeedsBPF, or to choose the dataplane by itself. A part
// of a pattern that matches no test is one that used to.
func TestEveryTestRunsWithIPTablesOrSaysWhyNot(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range selections {
		parts := selection(t, string(makefile), s.target)
		pattern := regexp.MustCompile(strings.Join(parts, "|"))
		tests := readTests(t, s.folder)
		for name, chosen := range tests {
			if !pattern.MatchString(name) && !chosen {
				t.Errorf("%s in test/e2e/%s: no part of the pattern of %s in the Makefile matches it, it does not call testcluster.NeedsBPF, "+
					"and it starts no agent with --dataplane: add it to the pattern, or call NeedsBPF with the reason", name, s.folder, s.target)
			}
		}
		for _, part := range parts {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(tests)), regexp.MustCompile(part).MatchString) {
				t.Errorf("%s in the pattern of %s in the Makefile matches no test of test/e2e/%s: remove it, or give it the test's new name", part, s.target, s.folder)
			}
		}
	}
}

// selection returns the alternatives of the pattern that a target gives go test, with variables filled in.
func selection(t *testing.T, makefile, target string) []string {
	t.Helper()
	_, recipe, found := strings.Cut(makefile, "\n"+target+":")
	recipe, _, _ = strings.Cut(recipe, "\n\n")
	pattern := regexp.MustCompile(`-run '([^']+)'`).FindStringSubmatch(recipe)
	if !found || pattern == nil {
		t.Fatalf("the Makefile's target %s has no -run '…'", target)
	}
	filled := regexp.MustCompile(`\$\((\w+)\)`).ReplaceAllStringFunc(pattern[1], func(variable string) string {
		name := variable[2 : len(variable)-1]
		value := regexp.MustCompile(`(?m)^` + name + ` = (.+)$`).FindStringSubmatch(makefile)
		if value == nil {
			t.Fatalf("the Makefile has no %s, which %s has in its pattern", name, target)
		}
		return value[1]
	})
	return strings.Split(filled, "|")
}

// readTests returns the tests of a folder. True: the test calls NeedsBPF, or agents have --dataplane, in the test itself or in functions
// and variables of its package that it names. Methods are not followed: those of different types may have one name.
func readTests(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests in test/e2e/%s: %v", folder, err)
	}
	declared := map[string]ast.Node{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					declared[d.Name.Name] = d
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if s, ok := s.(*ast.ValueSpec); ok {
						for _, name := range s.Names {
							declared[name.Name] = s
						}
					}
				}
			}
		}
	}
	tests := map[string]bool{}
	for name := range declared {
		if strings.HasPrefix(name, "Test") && name != "TestMain" {
			tests[name] = chooses(declared, name, map[string]bool{})
		}
	}
	return tests
}

// chooses reports whether a declaration chooses the dataplane; see readTests.
func chooses(declared map[string]ast.Node, name string, seen map[string]bool) (is bool) {
	seen[name] = true
	ast.Inspect(declared[name], func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			text, err := strconv.Unquote(n.Value)
			is = is || err == nil && text == "--dataplane"
		case *ast.SelectorExpr:
			is = is || n.Sel.Name == "NeedsBPF"
		case *ast.Ident:
			is = is || declared[n.Name] != nil && !seen[n.Name] && chooses(declared, n.Name, seen)
		}
		return !is
	})
	return is
}
