package validate

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// textError is an error at a line of the file.
type textError struct {
	line int
	msg  string
}

// readText parses one document. It returns its JSON text, which is nil for a document that is empty, and its root,
// which is nil when there are no lines to be had from it.
func readText(seg segment) ([]byte, *yaml.Node, *textError) {
	if t := bytes.TrimSpace(seg.text); len(t) > 0 && t[0] == '{' && json.Valid(t) {
		// JSON allows tabs between tokens and nowhere else, YAML allows them less. JSON that the YAML parser
		// cannot read only loses the line numbers of its fields.
		root, err := parseYAML(segment{bytes.ReplaceAll(seg.text, []byte("\t"), []byte(" ")), seg.line})
		if err != nil {
			root = nil
		}
		return t, root, nil
	}
	root, err := parseYAML(seg)
	if err != nil || root == nil || root.ShortTag() == "!!null" {
		return nil, nil, err.explained(seg)
	}
	w := jsonWriter{}
	w.out.Grow(len(seg.text) + len(seg.text)/4) // quotes are more, white space is less
	if err := w.value(root, 0); err != nil {
		return nil, nil, err.explained(seg)
	}
	return w.out.Bytes(), root, nil
}

// explained adds what to do about an error of the parser whose words do not say it, by the text at that place.
func (e *textError) explained(seg segment) *textError {
	if e == nil {
		return nil
	}
	if at := invalidUTF8(seg.text); at >= 0 {
		return &textError{seg.line + bytes.Count(seg.text[:at], []byte("\n")), "not valid YAML: the text is not UTF-8 from here on; save the file as UTF-8"}
	}
	lines := bytes.Split(seg.text, []byte("\n"))
	var line []byte
	if at := e.line - seg.line; at >= 0 && at < len(lines) {
		line = lines[at]
	}
	switch white := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]; {
	case bytes.ContainsRune(white, '\t'):
		e.msg += "; YAML is indented with spaces, and this line with a tab"
	case strings.Contains(e.msg, "expected <document start>"):
		e.msg = "a second document without a line \"---\" before it"
	case bytes.Contains(line, []byte("{{")):
		e.msg += "; is this a template (\"{{\") that was not rendered?"
	}
	return e
}

// invalidUTF8 is where a text is not UTF-8 any more; -1: all of it is.
func invalidUTF8(text []byte) int {
	for at := 0; at < len(text); {
		r, size := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && size < 2 {
			return at
		}
		at += size
	}
	return -1
}

// parseYAML returns the root value with the lines of the file in it, or nil if there is none.
func parseYAML(seg segment) (*yaml.Node, *textError) {
	dec := yaml.NewDecoder(bytes.NewReader(seg.text))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, syntaxError(err, seg)
	}
	if err := dec.Decode(&second); err == nil {
		return nil, &textError{second.Line + seg.line - 1, "a second document without a line \"---\" before it"}
	} else if !errors.Is(err, io.EOF) {
		return nil, syntaxError(err, seg)
	}
	if len(doc.Content) != 1 {
		return nil, nil
	}
	shiftLines(&doc, seg.line-1)
	return doc.Content[0], nil
}

func shiftLines(n *yaml.Node, by int) {
	n.Line += by
	for _, c := range n.Content {
		shiftLines(c, by)
	}
}

// syntaxError moves the line number from the parser's text into the error.
func syntaxError(err error, seg segment) *textError {
	msg := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 1
	if rest, ok := strings.CutPrefix(msg, "line "); ok {
		if num, text, ok := strings.Cut(rest, ": "); ok {
			if n, err := strconv.Atoi(num); err == nil {
				line, msg = n, text
			}
		}
	}
	return &textError{line + seg.line - 1, "not valid YAML: " + msg}
}
