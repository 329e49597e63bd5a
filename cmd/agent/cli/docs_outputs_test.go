//go:build linux

package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/inspect"
)

// shown is a command in a document with the output behind it.
type shown struct {
	command string
	lines   []string // "..." stands for lines that are left out
}

// outputs are the commands of margay in a document that have output.
func outputs(text string) []shown {
	var all []shown
	for _, m := range regexp.MustCompile("(?ms)^```\n\\$ margay (.*?)\n(.*?)^```").FindAllStringSubmatch(text, -1) {
		all = append(all, shown{m[1], strings.Split(strings.TrimRight(m[2], "\n"), "\n")})
	}
	return all
}

// transcripts is what commands print in testdata, which TestTranscripts compares.
func transcripts(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// tables are what commands print whose output depends on the node, without rows.
var tables = map[string]*table{
	"show endpoints":     endpointTable(nil),
	"show problems":      problemTable(nil),
	"show rules shop/db": ruleTable(nil),
	"show flows":         flowTable(nil),
	"show drops":         dropTable(nil),
	"show sets":          setTable(nil),
	"show policies":      policyTable(nil),
	"show staged":        stagedTable(nil),
	"check":              {header: []string{"CHECK", "FOR", "RESULT", "DETAIL"}},
	"cleanup":            {header: []string{"REMOVED", "WHAT"}},
}

// TestOutputsInOperationsAreThoseOfTheCommands: what does not depend on the node is in a transcript, whole. Tables
// have the columns that commands print, in the form in which they print them.
func TestOutputsInOperationsAreThoseOfTheCommands(t *testing.T) {
	text, err := os.ReadFile(operations)
	if err != nil {
		t.Fatal(err)
	}
	produced, all := transcripts(t), outputs(string(text))
	for _, s := range all {
		verb, _, _ := strings.Cut(s.command, " ")
		switch of := tables[s.command]; {
		case s.command == "show status":
			wantStatus(t, s.lines)
		case verb == "monitor":
			wantRecords(t, s.lines)
		case of != nil:
			wantTable(t, s, of)
			if verb == "cleanup" {
				wantDetachOrder(t, s.lines)
			}
		default:
			if body := strings.Join(s.lines, "\n"); !strings.Contains(produced, "\n"+body+"\n") {
				t.Errorf("margay %s: no transcript has\n%s", s.command, body)
			}
		}
	}
	if len(all) < 13 {
		t.Errorf("%d outputs, want at least 13", len(all))
	}
}

// wantTable prints the rows that a document shows again.
func wantTable(t *testing.T, s shown, of *table) {
	t.Helper()
	at := slices.IndexFunc(s.lines, func(line string) bool { return strings.HasPrefix(line, of.header[0]+" ") })
	if at < 0 {
		t.Errorf("margay %s: no table with the columns %q", s.command, of.header)
		return
	}
	lines := s.lines[at:]
	if end := slices.Index(lines, ""); end >= 0 {
		lines = lines[:end]
	}
	again := table{header: of.header}
	for _, line := range lines[1:] {
		if line != "..." {
			again.add(cells(lines[0], of.header, line)...)
		}
	}
	wantPrinted(t, s.command, lines, &again)
}

// wantDetachOrder: the programs are listed in the order in which they are detached.
func wantDetachOrder(t *testing.T, lines []string) {
	t.Helper()
	var pins []string
	for _, line := range lines {
		if m := regexp.MustCompile(`^program +(?:tcx/(\w+) of|netfilter (\S+))`).FindStringSubmatch(line); m != nil && m[1] != "" {
			pins = append(pins, "1-"+m[1])
		} else if m != nil {
			pins = append(pins, m[2])
		}
	}
	if len(pins) < 3 || !slices.IsSortedFunc(pins, attach.DetachOrder) {
		t.Errorf("margay cleanup: %q is not the order of detaching", pins)
	}
}

var spaces = regexp.MustCompile(" {2,}")

// wantPrinted compares lines with what a table prints.
func wantPrinted(t *testing.T, command string, lines []string, again *table) {
	t.Helper()
	var out bytes.Buffer
	if err := again.writeWide(&out); err != nil {
		t.Fatal(err)
	}
	whole, printed := strings.Join(lines, "\n")+"\n", out.String()
	if slices.Contains(lines, "...") { // what is left out may make a column wider
		whole = spaces.ReplaceAllString(strings.ReplaceAll(whole, "...\n", ""), "  ")
		printed = spaces.ReplaceAllString(printed, "  ")
	}
	if diff := cmp.Diff(whole, printed); diff != "" {
		t.Errorf("margay %s (-document +printed):\n%s", command, diff)
	}
}

// cells are the cells of a line below a header.
func cells(first string, header []string, line string) []string {
	var row []string
	for i, name := range header {
		from, to := strings.Index(first, name), len(line)
		if i+1 < len(header) {
			to = min(to, strings.Index(first, header[i+1]))
		}
		if from < 0 || from > to {
			return row
		}
		row = append(row, strings.TrimRight(line[from:to], " "))
	}
	return row
}

// wantStatus: the lines are those that a status has, for an agent that has applied something.
func wantStatus(t *testing.T, lines []string) {
	t.Helper()
	var out bytes.Buffer
	report := &inspect.StatusReport{InSync: true, Ready: true, Attempts: inspect.Attempts{Applied: time.Unix(1, 0)}, Kinds: []inspect.KindRow{{Kind: "manifests"}}}
	if err := writeStatus(&out, report); err != nil {
		t.Fatal(err)
	}
	label := regexp.MustCompile(`^.*?  +`)
	var got, want []string
	for line := range strings.Lines(out.String()) {
		want = append(want, label.FindString(line))
	}
	for _, line := range lines {
		got = append(got, label.FindString(line))
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("margay show status (-document +printed):\n%s", diff)
	}
}

// wantRecords: the lines have the form of records.
func wantRecords(t *testing.T, lines []string) {
	t.Helper()
	form := regexp.MustCompile(`^\d{4}-\d\d-\d\dT[\d:.]{12}Z  (allow|deny ) (ingress|egress ) of \S+( (from|to) \S+)?  \S+ -> \S+ .*  by \S+$`)
	for _, line := range lines {
		if !form.MatchString(line) {
			t.Errorf("margay monitor: %q has not the form of a record", line)
		}
	}
}
