package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"
)

// outputFlag is how a command answers.
type outputFlag string

func (o *outputFlag) register(fs *pflag.FlagSet) {
	*o = "text"
	fs.VarP(o, "output", "o", "text or json")
}

// Set implements pflag.Value.
func (o *outputFlag) Set(text string) error {
	if text != "text" && text != "json" {
		return fmt.Errorf("want text or json")
	}
	*o = outputFlag(text)
	return nil
}

func (o *outputFlag) String() string { return string(*o) }

// Type implements pflag.Value.
func (o *outputFlag) Type() string { return "format" }

// write answers with v as JSON, or with what text writes.
func (o *outputFlag) write(w io.Writer, v any, text func(io.Writer) error) error {
	if *o != "json" {
		return text(w)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// table writes columns under a header. An empty table says what there is none of.
type table struct {
	header []string
	rows   [][]string
	none   string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) write(w io.Writer) error {
	if len(t.rows) == 0 {
		_, err := fmt.Fprintln(w, t.none)
		return err
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.StripEscape)
	for _, cells := range append([][]string{t.header}, t.rows...) {
		for i, c := range cells {
			if c == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	return tw.Flush()
}

// count is "1 problem" or "2 problems".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if stem, ok := strings.CutSuffix(what, "y"); ok {
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// readable leaves out of a selector what is true of every pod.
func readable(selector string) string {
	return strings.ReplaceAll(selector, `projectcalico.org/orchestrator == "k8s" && `, "")
}
