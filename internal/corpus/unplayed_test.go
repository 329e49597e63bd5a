package corpus

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var updateUnplayed = flag.Bool("update-unplayed", false, "write the table of cases that are not played into test/corpus/README.md")

// The table of cases that are not played with real packets is what the cases say; with -update-unplayed it is written.
func TestUnplayedCasesAreListed(t *testing.T) {
	const file, head, end = "../../test/corpus/README.md", "| not played | why | cases |\n|---|---|---|\n", "\n\n## From a random"
	cases, err := Load("../../test/corpus")
	if err != nil {
		t.Fatal(err)
	}
	var rows strings.Builder
	played := len(cases)
	for _, where := range []string{"anywhere", "from a directory", "on a cluster"} {
		for _, why := range []string{UnplayedModel, UnplayedEndpoint, UnplayedSource, UnplayedStored, UnplayedUnknown, UnplayedReply, UnplayedProfile, UnplayedNodePort, UnplayedSlice} {
			var names []string
			for _, c := range cases {
				directory, cluster := c.Unplayed(false), c.Unplayed(true)
				at, reason := "anywhere", directory
				switch {
				case cluster == "":
					at = "from a directory"
				case directory == "":
					at, reason = "on a cluster", cluster
				}
				if at == where && reason == why {
					names = append(names, c.Name)
				}
			}
			list := strings.Join(names, ", ")
			if why == UnplayedModel {
				list = "all with such a document" // anyone sees it at the case
			}
			if len(names) > 0 {
				fmt.Fprintf(&rows, "| %s | %s | %s |\n", where, why, list)
			}
			if where != "on a cluster" {
				played -= len(names)
			}
		}
	}
	if played < 400 {
		t.Errorf("only %d cases are played", played)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), head)
	table, after, ends := strings.Cut(rest, end)
	if !ok || !ends {
		t.Fatalf("%s has no table of cases that are not played", file)
	}
	switch want := strings.TrimSpace(rows.String()); {
	case *updateUnplayed:
		if err := os.WriteFile(file, []byte(before+head+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	case table != want:
		t.Errorf("go test ./internal/corpus -run Unplayed -update-unplayed writes:\n%s\nthe table says:\n%s", want, table)
	}
}
