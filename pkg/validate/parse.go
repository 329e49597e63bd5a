package validate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"
)

// MaxFileSize is the most bytes Parse reads of one file.
const MaxFileSize = 16 << 20

// Parse reads every object in the text of a manifest file, YAML or JSON, in the order of the file. Lists are unfolded
// and empty documents skipped. Problems of one document do not affect the others. file is used in messages
// only.
func (t Table) Parse(file string, text []byte) []Document {
	if len(text) > MaxFileSize {
		return []Document{broken(Ref{File: file}, Rejected, "the file has %d bytes, more than the limit of %d",
			len(text), MaxFileSize)}
	}
	if bytes.HasPrefix(text, []byte{0xff, 0xfe}) || bytes.HasPrefix(text, []byte{0xfe, 0xff}) {
		return []Document{broken(Ref{File: file, Line: 1}, Rejected, "the text is UTF-16; save the file as UTF-8")}
	}
	var docs []Document
	for _, seg := range split(text) {
		js, root, err := readText(seg)
		switch {
		case err != nil:
			docs = append(docs, broken(Ref{File: file, Line: err.line}, Rejected, "%s", err.msg))
		case js != nil:
			src := source{file: file, line: seg.line, json: js, root: root, table: t}
			if root != nil {
				src.line = root.Line
			}
			docs = append(docs, src.read()...)
		}
	}
	return docs
}

// broken is a document that holds nothing but one problem.
func broken(ref Ref, s Severity, format string, args ...any) Document {
	rep := Report{ref: ref}
	rep.Add(s, "", format, args...)
	return Document{Ref: ref, Problems: rep.Done()}
}

// source is the text of one object.
type source struct {
	file string
	line int
	json []byte
	root *yaml.Node // may be nil

	table Table
}

// header has the fields of an object that decide how it is read.
type header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	twice string // the path of the first of these fields that is written twice; empty: none is
}

// readHeader reads them. Fields that were read before an error are set, and may be all that names the object.
func readHeader(text []byte) (h header, err error) {
	odd, err := kjson.UnmarshalStrict(text, &h, kjson.DisallowDuplicateFields)
	for _, e := range odd {
		var at kjson.FieldError
		if h.twice == "" && errors.As(e, &at) {
			h.twice = at.FieldPath()
		}
	}
	return h, err
}

func (src source) read() []Document {
	h, err := readHeader(src.json)
	if err == nil && src.table.isList(h) {
		return src.unfold(h)
	}
	return []Document{src.object(h, err)}
}

func (src source) object(h header, headerErr error) Document {
	ref := Ref{File: src.file, Line: src.line, Kind: src.table.refKind(h.APIVersion, h.Kind),
		Namespace: h.Metadata.Namespace, Name: h.Metadata.Name}
	if src.json[0] != '{' {
		return broken(ref, Rejected, "not an object: a document must have apiVersion, kind and metadata")
	}
	rep := Report{ref: ref}
	if headerErr != nil {
		rep.decodeError(headerErr)
		return src.finish(Document{Ref: ref, Problems: rep.Done()})
	}
	if h.Kind == "" || h.APIVersion == "" {
		return broken(ref, Rejected, "not an object: it has no %s", missing(h))
	}
	reader := src.table.find(h.APIVersion, h.Kind)
	if h.twice != "" && (reader != nil || !strings.HasPrefix(h.twice, "metadata.")) {
		return src.ambiguous(h.twice)
	}
	if reader == nil {
		return src.finish(src.table.unread(ref, h))
	}
	ref.Namespace = reader.namespace(h.Metadata.Namespace)
	updates, problems, ok := reader.Read(src.json, ref)
	return src.finish(Document{Ref: ref, Updates: updates, Problems: problems, OK: ok})
}

// ambiguous is a text of which it is not known which object it is, since a field that decides that is written twice: as when there is no line
// "---" between two objects. Like any text that cannot be read, it names none.
func (src source) ambiguous(twice string) Document {
	ref := Ref{File: src.file, Line: src.line}
	text := "field is written twice, so it is not known which object is meant"
	if !strings.Contains(twice, ".") {
		text += ": is a line \"---\" missing between two?"
	}
	rep := Report{ref: ref}
	rep.Add(Rejected, twice, "%s", text)
	return src.finish(Document{Ref: ref, Problems: rep.Done()})
}

func missing(h header) string {
	if h.Kind == "" {
		return "kind"
	}
	return "apiVersion"
}

// finish gives the problems their place in the file and sorts them by it.
func (src source) finish(d Document) Document {
	for i := range d.Problems {
		p := &d.Problems[i]
		p.Ref.File, p.Ref.Line = src.file, src.line
		if p.Field != "" {
			p.Ref.Line = max(p.Ref.Line, lineOf(src.root, p.Field))
		}
	}
	slices.SortStableFunc(d.Problems, func(a, b Problem) int { return cmp.Compare(a.Ref.Line, b.Ref.Line) })
	return d
}

// isList reports whether the object is a list of objects: a List as kubectl prints it, or a PodList and the like as
// the API server sends it.
func (t Table) isList(h header) bool {
	if h.APIVersion == "v1" && h.Kind == "List" {
		return true
	}
	item, ok := strings.CutSuffix(h.Kind, "List")
	return ok && t.find(h.APIVersion, item) != nil
}

// unfold reads the items of a list.
func (src source) unfold(h header) []Document {
	ref := Ref{File: src.file, Line: src.line, Kind: h.Kind}
	var list struct {
		APIVersion string            `json:"apiVersion"`
		Kind       string            `json:"kind"`
		Metadata   json.RawMessage   `json:"metadata"`
		Items      []json.RawMessage `json:"items"`
	}
	rep := Report{ref: ref}
	if strict, err := kjson.UnmarshalStrict(src.json, &list); err != nil {
		rep.decodeError(err)
	} else {
		rep.strictErrors(strict, reflect.TypeOf(list))
	}
	var docs []Document
	if len(rep.problems) > 0 {
		// The list is one document; the items that can be read are further ones.
		docs = append(docs, src.finish(Document{Ref: ref, Problems: rep.Done()}))
	}
	for i, text := range list.Items {
		docs = append(docs, src.item(i, text, h))
	}
	return docs
}

// item reads one item of a list of the kind in h. Items of a PodList and the like carry no kind of their own.
func (src source) item(i int, text []byte, h header) Document {
	item := source{file: src.file, line: src.line, json: text, table: src.table}
	if src.root != nil {
		if items, _ := child(src.root, "items"); items != nil {
			item.root, item.line = child(items, fmt.Sprintf("[%d]", i))
		}
	}
	ih, err := readHeader(text)
	if h.Kind != "List" && ih.Kind == "" && ih.APIVersion == "" {
		ih.Kind, ih.APIVersion = strings.TrimSuffix(h.Kind, "List"), h.APIVersion
	}
	if err == nil && src.table.isList(ih) {
		return broken(Ref{File: item.file, Line: item.line, Kind: ih.Kind}, Rejected, "a list inside a list is not read")
	}
	return item.object(ih, err)
}
