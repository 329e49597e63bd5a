package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/margay-project/margay/pkg/inspect"
	"github.com/margay-project/margay/pkg/selector"
)

// outputFlag is how a command answers.
type outputFlag string

// formats are what most commands have, in the order of their usage. wide is text with all there is.
var formats = []string{"text", "wide", "json", "yaml"}

// register adds the flag with these formats, or without any with all.
func (o *outputFlag) register(fs *pflag.FlagSet, allowed ...string) {
	if len(allowed) == 0 {
		allowed = formats
	}
	*o = "text"
	fs.VarP(&choice{(*string)(o), allowed, "format"}, "output", "o", orList(allowed))
	grouped(fs, groupOutput, "output")
}

// choice is a pflag.Value of a few words.
type choice struct {
	to    *string
	words []string
	what  string // in --help, in the place of a value
}

// Set implements pflag.Value.
func (c *choice) Set(text string) error {
	if !slices.Contains(c.words, text) {
		return fmt.Errorf("want %s", orList(c.words))
	}
	*c.to = text
	return nil
}

func (c *choice) String() string {
	if c.to == nil {
		return ""
	}
	return *c.to
}

// Type implements pflag.Value.
func (c *choice) Type() string { return c.what }

// orList is "a, b or c".
func orList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// write answers with v as JSON or YAML, or with what text writes.
func (o *outputFlag) write(w io.Writer, v any, text func(io.Writer) error) error {
	switch *o {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(v)
	case "yaml":
		out, err := yaml.Marshal(v)
		if err != nil {
			return fmt.Errorf("write YAML: %w", err)
		}
		_, err = w.Write(out)
		return err
	}
	return text(w)
}

// writeTable answers with v, or with the table.
func (o *outputFlag) writeTable(w io.Writer, v any, t *table) error {
	if *o == "wide" {
		return t.writeWide(w)
	}
	return o.write(w, v, t.write)
}

// endpointName is the endpoint's name; empty: no pod is known for the interface.
func endpointName(e *inspect.EndpointRow) string {
	if e.Name == "" {
		return ""
	}
	return e.Namespace + "/" + e.Name
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

// readable removes from a selector the conditions that the conversion has added: that it is a pod, and one of a known Namespace.
func readable(text string) string {
	return strings.NewReplacer(selector.OfKnownNamespace+" && ", "", " && "+selector.OfKnownNamespace, "", `projectcalico.org/orchestrator == "k8s" && `, "").Replace(text)
}
