// Package page makes the tables of docs/benchmarks.md from the results of a run, so that nobody has to copy numbers.
package page

import (
	"fmt"
	"slices"
	"strings"

	"github.com/margay-project/margay/bench/report"
)

// The tables are between these lines of the document.
const (
	Begin = "<!-- made by go run ./bench/run; do not edit -->"
	End   = "<!-- end -->"
)

// Put returns the document with the tables of results in their place.
func Put(document string, results []report.Result) (string, error) {
	before, rest, ok := strings.Cut(document, Begin)
	_, after, closed := strings.Cut(rest, End)
	if !ok || !closed {
		return "", fmt.Errorf("the document has no place for tables: %q and %q", Begin, End)
	}
	return before + Begin + "\n\n" + tables(results) + "\n" + End + after, nil
}

// tables are what is required, the dataplanes beside each other, and changes.
func tables(results []report.Result) string {
	var b strings.Builder
	b.WriteString("### What is required\n\n" + required(results))
	b.WriteString("\n### The dataplanes beside each other\n\n" + matrix(results, "configuration", []column{
		{"connect-request-close / bare", "connection, over bare"},
		{"request-response / conntrack only", "request, over conntrack only"},
		{"UDP packet / conntrack only", "UDP packet, over conntrack only"},
		{"agent's resident memory once policy is enforced", "agent's memory"},
	}, func(r report.Result) (row, col string) { return r.Config, r.ID }))
	b.WriteString("\nThe bases: " + bases(results) + ".\n")
	for _, t := range []struct{ title, id string }{
		{"One change, from the update until it is enforced", "P20"},
		{"CPU time of one change, of the agent's process and its commands", "CPU of a change"},
		{"The kernel's memory", "kernel memory"},
	} {
		b.WriteString("\n### " + t.title + "\n\n" + matrix(results, "", planes(results, t.id), func(r report.Result) (row, col string) {
			if r.ID != t.id {
				return "", ""
			}
			row, col, _ = strings.Cut(r.Config, ": ")
			return row, col
		}))
	}
	return b.String()
}

// required is the table of results that something is required of, and of those of P19 with policy at both ends.
func required(results []report.Result) string {
	var b strings.Builder
	b.WriteString("| id | what | median | 95 % interval | must | |\n|---|---|---|---|---|---|\n")
	for _, r := range results {
		must, verdict := "", ""
		switch {
		case r.Pass == nil && r.ID != "P19":
			continue
		case r.Pass != nil && *r.Pass:
			must, verdict = "≤ "+report.Number(r.Must, r.Unit), "met"
		case r.Pass != nil:
			must, verdict = "≤ "+report.Number(r.Must, r.Unit), "**missed**"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s to %s | %s | %s |\n", r.ID, r.Config, report.Number(r.Median, r.Unit),
			report.Number(r.Low, ""), report.Number(r.High, ""), must, verdict)
	}
	return b.String()
}

// column of a matrix: what results are in it, and its title.
type column struct{ key, title string }

// matrix is a table of medians. at says in which row and column a result is; empty: in none.
func matrix(results []report.Result, corner string, columns []column, at func(report.Result) (row, col string)) string {
	var rows []string
	cells := map[[2]string]string{}
	for _, r := range results {
		row, col := at(r)
		if !slices.ContainsFunc(columns, func(c column) bool { return c.key == col }) {
			continue
		}
		if !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
		cells[[2]string{row, col}] = report.Number(r.Median, r.Unit)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |", corner)
	for _, c := range columns {
		fmt.Fprintf(&b, " %s |", c.title)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s |", row)
		for _, c := range columns {
			fmt.Fprintf(&b, " %s |", cells[[2]string{row, c.key}])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// planes are the columns of a matrix of changes, in the order of the results.
func planes(results []report.Result, id string) (list []column) {
	for _, r := range results {
		if _, name, ok := strings.Cut(r.Config, ": "); ok && r.ID == id && !slices.Contains(list, column{name, name}) {
			list = append(list, column{name, name})
		}
	}
	return list
}

// bases are the costs that ratios refer to.
func bases(results []report.Result) string {
	var list []string
	for _, r := range results {
		if what, ok := strings.CutSuffix(r.ID, ", ns"); ok {
			list = append(list, fmt.Sprintf("%s %s: %s", what, r.Config, report.Number(r.Median, r.Unit)))
		}
	}
	return strings.Join(list, ", ")
}
