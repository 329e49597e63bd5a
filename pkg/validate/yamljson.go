package validate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Limits on one document. Manifests in use stay far below them.
const (
	maxDepth    = 200     // nesting, aliases followed
	maxNodes    = 2 << 20 // values, each counted as often as aliases repeat it
	maxJSONSize = 64 << 20
)

// jsonWriter writes a YAML tree as JSON, the way kubectl reads YAML: scalars mean what YAML 1.1 says, keys become
// strings. Keys that are written twice are written twice, for the JSON decoder to report.
type jsonWriter struct {
	out   bytes.Buffer
	nodes int
	open  []pair // entries of the mappings that are being written, those of the innermost last
}

func (w *jsonWriter) value(n *yaml.Node, depth int) *textError {
	if err := w.count(n, depth); err != nil {
		return err
	}
	switch n.Kind {
	case yaml.AliasNode:
		return w.value(n.Alias, depth+1)
	case yaml.SequenceNode:
		return w.sequence(n, depth)
	case yaml.MappingNode:
		return w.mapping(n, depth)
	case yaml.ScalarNode:
		text, isString, err := scalar(n)
		if err != nil {
			return err
		}
		if isString {
			return w.string(n, text)
		}
		w.out.WriteString(text)
		return nil
	}
	return &textError{n.Line, "not a YAML value"}
}

func (w *jsonWriter) string(n *yaml.Node, s string) *textError {
	if isPlain(s) {
		w.out.WriteByte('"')
		w.out.WriteString(s)
		w.out.WriteByte('"')
		return nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return &textError{n.Line, fmt.Sprintf("%q has no JSON form", s)}
	}
	w.out.Write(text)
	return nil
}

// isPlain reports whether a string is its own JSON text, but for the quotes.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

func (w *jsonWriter) count(n *yaml.Node, depth int) *textError {
	w.nodes++
	switch {
	case depth > maxDepth:
		return &textError{n.Line, fmt.Sprintf("nested deeper than %d levels", maxDepth)}
	case w.nodes > maxNodes:
		return &textError{n.Line, fmt.Sprintf("more than %d values, aliases included", maxNodes)}
	case w.out.Len() > maxJSONSize:
		return &textError{n.Line, fmt.Sprintf("larger than %d MiB, aliases included", maxJSONSize>>20)}
	}
	return nil
}

func (w *jsonWriter) sequence(n *yaml.Node, depth int) *textError {
	w.out.WriteByte('[')
	for i, c := range n.Content {
		if i > 0 {
			w.out.WriteByte(',')
		}
		if err := w.value(c, depth+1); err != nil {
			return err
		}
	}
	w.out.WriteByte(']')
	return nil
}

// pair is one entry of a mapping.
type pair struct {
	key   string
	value *yaml.Node
}

func (w *jsonWriter) mapping(n *yaml.Node, depth int) *textError {
	first := len(w.open)
	pairs, err := w.pairs(w.open, n, depth)
	if err != nil {
		return err
	}
	w.open = pairs
	w.out.WriteByte('{')
	for i, p := range pairs[first:] { // mappings inside are behind them in w.open
		if i > 0 {
			w.out.WriteByte(',')
		}
		if err := w.string(n, p.key); err != nil {
			return err
		}
		w.out.WriteByte(':')
		if err := w.value(p.value, depth+1); err != nil {
			return err
		}
	}
	w.open = w.open[:first]
	w.out.WriteByte('}')
	return nil
}

// pairs appends the entries of a mapping to all: its own, then those it merges in ("<<") under other keys.
func (w *jsonWriter) pairs(all []pair, n *yaml.Node, depth int) ([]pair, *textError) {
	first := len(all)
	var merged []*yaml.Node
	var err *textError
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if err := w.count(k, depth); err != nil {
			return nil, err
		}
		if k.ShortTag() == "!!merge" {
			merged = append(merged, v)
			continue
		}
		var key string
		if key, err = keyText(k); err != nil {
			return nil, err
		}
		all = append(all, pair{key, v})
	}
	if len(merged) == 0 {
		return all, nil
	}
	seen := map[string]bool{}
	for _, p := range all[first:] {
		seen[p.key] = true
	}
	for _, m := range merged {
		if all, err = w.merge(all, seen, m, depth+1); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// merge appends to pairs the entries of from that are not in seen yet.
func (w *jsonWriter) merge(pairs []pair, seen map[string]bool, from *yaml.Node, depth int) ([]pair, *textError) {
	if err := w.count(from, depth); err != nil {
		return nil, err
	}
	switch from.Kind {
	case yaml.AliasNode:
		return w.merge(pairs, seen, from.Alias, depth+1)
	case yaml.SequenceNode:
		for _, c := range from.Content {
			var err *textError
			if pairs, err = w.merge(pairs, seen, c, depth+1); err != nil {
				return nil, err
			}
		}
		return pairs, nil
	case yaml.MappingNode:
		more, err := w.pairs(nil, from, depth+1)
		if err != nil {
			return nil, err
		}
		w.nodes += len(more)
		for _, p := range more {
			if !seen[p.key] {
				seen[p.key] = true
				pairs = append(pairs, p)
			}
		}
		return pairs, nil
	}
	return nil, &textError{from.Line, "\"<<\" must name a mapping or a list of them"}
}

func keyText(k *yaml.Node) (string, *textError) {
	if k.Kind == yaml.AliasNode {
		k = k.Alias
	}
	if k.Kind != yaml.ScalarNode {
		return "", &textError{k.Line, "a key must be a string"}
	}
	text, _, err := scalar(k)
	if err == nil && k.ShortTag() == "!!null" {
		err = &textError{k.Line, "a key must not be null"}
	}
	return text, err
}

// scalar returns the JSON text of a null, bool or number, or the value of a string.
func scalar(n *yaml.Node) (text string, isString bool, err *textError) {
	switch tag := n.ShortTag(); tag {
	case "!!null":
		return "null", false, nil
	case "!!str", "!!timestamp":
		if b, ok := oldBool[n.Value]; ok && n.Style == 0 {
			return strconv.FormatBool(b), false, nil
		}
		return n.Value, true, nil
	case "!!bool", "!!int", "!!float":
		if tag == "!!int" && isDecimal(n.Value) {
			return n.Value, false, nil
		}
		var v any
		if err := n.Decode(&v); err != nil {
			return "", false, &textError{n.Line, fmt.Sprintf("%q is not of type %s", n.Value, tag)}
		}
		// Marshal refuses infinities and NaN.
		out, err := json.Marshal(v)
		if err != nil {
			return "", false, &textError{n.Line, fmt.Sprintf("%q is not a number", n.Value)}
		}
		return string(out), false, nil
	default:
		return "", false, &textError{n.Line, fmt.Sprintf("values of type %s are not read", tag)}
	}
}

// isDecimal reports whether a number is its own JSON text, as most are.
func isDecimal(s string) bool {
	if len(s) == 0 || len(s) > 18 || s[0] < '1' {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// oldBool is what YAML 1.1 takes for truth values besides true and false. kubectl reads them so; the parser does not.
var oldBool = map[string]bool{
	"y": true, "Y": true, "yes": true, "Yes": true, "YES": true, "on": true, "On": true, "ON": true,
	"n": false, "N": false, "no": false, "No": false, "NO": false, "off": false, "Off": false, "OFF": false,
}
