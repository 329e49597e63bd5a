package imports

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

// logKey is a key of a log line: one word, or several as in forSeconds.
var logKey = regexp.MustCompile(`^[a-z][a-zA-Z0-9]*$`)

// logger is a receiver that logs: log, p.log, o.Log, logger, slog.
var logger = regexp.MustCompile(`(?i)(^|\.)s?log(ger)?$`)

// Lines of the log are read by programs, which look for one key. An error has the key err everywhere.
func TestLogLinesHaveKeysThatProgramsRead(t *testing.T) {
	keys := 0
	for _, top := range []string{"pkg", "cmd", "demo"} {
		err := filepath.WalkDir(filepath.Join("..", "..", top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				for _, key := range keysOf(call) {
					keys++
					if text, err := strconv.Unquote(key.Value); err != nil || !logKey.MatchString(text) || text == "error" {
						t.Errorf("%s: the key %s of a log line: want one word, or several as in forSeconds; an error's key is err", set.Position(key.Pos()), key.Value)
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if keys < 100 {
		t.Errorf("%d keys were found, fewer than there are", keys)
	}
}

// keysOf are the keys that a call logs with, or makes an attribute of, as far as they are written there.
func keysOf(call *ast.CallExpr) (keys []*ast.BasicLit) {
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !logger.MatchString(expressionText(method.X)) {
		return nil
	}
	rest := call.Args
	switch method.Sel.Name {
	case "With":
	case "Debug", "Info", "Warn", "Error":
		rest = rest[min(1, len(rest)):]
	case "DebugContext", "InfoContext", "WarnContext", "ErrorContext":
		rest = rest[min(2, len(rest)):]
	case "String", "Int", "Int64", "Uint64", "Float64", "Bool", "Time", "Duration", "Any", "Group": // of package slog
		rest = rest[:min(1, len(rest))]
	default:
		return nil
	}
	for len(rest) > 0 {
		key, ok := rest[0].(*ast.BasicLit)
		if !ok || key.Kind != token.STRING {
			rest = rest[1:] // an attribute
			continue
		}
		keys = append(keys, key)
		rest = rest[min(2, len(rest)):]
	}
	return keys
}

// expressionText is an expression of names and fields as it is written; empty for others.
func expressionText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return expressionText(e.X) + "." + e.Sel.Name
	}
	return ""
}
