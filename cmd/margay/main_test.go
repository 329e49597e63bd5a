package main

import (
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"strings"
	"testing"
)

// Tests build cmd/agent, the Makefile and the image build cmd/margay: both are the same program, so what is tested is what runs.
func TestBothMainsAreTheSame(t *testing.T) {
	if margay, agent := code(t, "main.go"), code(t, "../agent/main.go"); margay != agent {
		t.Errorf("cmd/margay is\n%s\nand cmd/agent is\n%s", margay, agent)
	}
}

// code is a file without its comments.
func code(t *testing.T, file string) string {
	t.Helper()
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			f.Doc = nil
		}
		if err := printer.Fprint(&b, set, d); err != nil {
			t.Fatal(err)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
