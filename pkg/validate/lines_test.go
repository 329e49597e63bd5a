package validate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/kinds"
)

// Lines may be as long as the file: as JSON without line ends, or where somebody has encoded data in an annotation.
func TestParseReadsVeryLongLines(t *testing.T) {
	const size = 1 << 20
	long := strings.Repeat("x", size)
	var items strings.Builder
	for n := 0; items.Len() < size; n++ {
		fmt.Fprintf(&items, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n%d","labels":{"a":"b"},"managedFields":[{"f:metadata":{"k:{\"type\":\"%d\"}":{}}}]}},`, n, n)
	}
	list := `{"apiVersion":"v1","kind":"List","items":[` + items.String() + `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"A"}}]}`
	const object, bad = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n", "  labels: {\"a b\": c}\n"
	tests := map[string]struct {
		text string
		docs int
		line int // of the last document's problem
	}{
		"comment":                       {"# " + long + "\n" + object + bad, 1, 6},
		"comment behind a value":        {object + "  labels: # " + long + "\n    a b: c\n", 1, 5},
		"annotation":                    {object + "  annotations:\n    a: " + long + "\n" + bad, 1, 7},
		"annotation in quotes":          {object + "  annotations:\n    a: \"" + strings.Repeat(`\u00fc\"`, size/8) + "\"\n" + bad, 1, 7},
		"annotation in a block":         {object + "  annotations:\n    a: |\n      " + long + "\n" + bad, 1, 8},
		"annotation in many words":      {object + "  annotations: {a: " + strings.Repeat("a b ", size/4) + "}\n" + bad, 1, 6},
		"value of another document":     {"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: " + long + "}\n---\n" + object + bad, 2, 10},
		"white space":                   {object + strings.Repeat(" ", size) + "\n" + bad, 1, 6},
		"name":                          {"apiVersion: v1\nkind: Namespace\nmetadata: {name: " + long + "}\n", 1, 3},
		"all objects in one":            {list, strings.Count(list, `"kind"`) - 1, 1},
		"all objects in one, indented":  {"\n\n  " + list + "\n", strings.Count(list, `"kind"`) - 1, 3},
		"all objects in one, with tabs": {strings.ReplaceAll(list, `,"`, ",\t\""), strings.Count(list, `"kind"`) - 1, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			docs := kinds.Parse("dir/a.yaml", []byte(tt.text))
			checkDocuments(t, docs, tt.text)
			if len(docs) != tt.docs {
				t.Fatalf("%d documents, want %d", len(docs), tt.docs)
			}
			last := docs[len(docs)-1]
			if len(last.Problems) != 1 || last.Problems[0].Ref.Line != tt.line || !strings.HasPrefix(last.Problems[0].Field, "metadata.") {
				t.Errorf("problems: %v, want one in metadata at line %d", last.Problems, tt.line)
			}
			for _, d := range docs[:len(docs)-1] {
				if d.Ref.Kind == "Namespace" && !d.OK {
					t.Fatalf("problems: %v", d.Problems)
				}
			}
		})
	}
}
