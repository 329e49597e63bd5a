package validate_test

import (
	"strings"
	"testing"

	"github.com/margay-project/margay/pkg/kinds"
	. "github.com/margay-project/margay/pkg/validate"
)

// nasty is also the seed of the fuzz test.
var nasty = map[string]string{
	"empty":                     "",
	"only a marker":             "---",
	"markers":                   "---\n---\n...\n...\n---\n",
	"NUL":                       "a: \x00",
	"NUL in JSON":               `{"apiVersion":"v1","kind":"Pod\u0000","metadata":{"name":"a\u0000b"}}`,
	"invalid UTF-8":             "a: \xff\xfe",
	"UTF-16":                    "\xff\xfea\x00:\x00 \x001\x00",
	"byte order mark":           "\ufeffapiVersion: v1\nkind: Pod\n",
	"carriage returns only":     "a: b\r---\rc: d\r",
	"line separators":           "a: b\u2028---\u2028c: d\n",
	"deep flow":                 strings.Repeat("[", 9000),
	"deep flow, closed":         strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
	"deep maps":                 strings.Repeat("{a: ", 5000) + "1" + strings.Repeat("}", 5000),
	"deep JSON":                 strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000),
	"deep blocks":               strings.Repeat("- ", 9000) + "a",
	"alias to itself":           "a: &a [*a]",
	"alias to its map":          "&a {<<: *a}",
	"alias as key":              "&a b: c\n*a : d",
	"merge of itself":           "a: &a\n  <<: *a\n",
	"merge of a scalar":         "a: {<<: 1}",
	"alias bomb":                Bomb(12, 10),
	"wide alias bomb":           Bomb(2, 3000),
	"merge bomb":                MergeBomb(3000, 30000),
	"long scalar bomb":          ScalarBomb(),
	"many documents":            strings.Repeat("---\na\n", 20000),
	"many comments":             strings.Repeat("#\n", 200000),
	"many list items":           "apiVersion: v1\nkind: List\nitems:\n" + strings.Repeat("- {}\n", 50000),
	"list in a list in a list":  strings.Repeat("{apiVersion: v1, kind: List, items: [", 90) + strings.Repeat("]}", 90),
	"list with a number":        "apiVersion: v1\nkind: List\nitems: 7\n",
	"list of null":              "apiVersion: v1\nkind: List\nitems: [null, ~, ]\n",
	"list without items":        "apiVersion: v1\nkind: PodList\n",
	"huge integer":              "a: " + strings.Repeat("9", 5000),
	"infinity":                  "a: .inf",
	"not a number":              "a: .nan",
	"null key":                  "~: a",
	"list as key":               "[a, b]: c",
	"binary":                    "a: !!binary aGVsbG8=",
	"wrong tag":                 "a: !!int x",
	"foreign tag":               "a: !foo x",
	"unclosed":                  "a: 'b",
	"tabs":                      "a:\n\t- b",
	"directive":                 "%YAML 1.1\n---\na: b",
	"bad directive":             "%YAML 9.9\n---\na: b",
	"only a directive":          "%TAG ! tag:x,2000:\n",
	"kind is a list":            "apiVersion: v1\nkind: [Pod]\n",
	"metadata is a string":      "apiVersion: v1\nkind: Pod\nmetadata: x\n",
	"name is an object":         "apiVersion: v1\nkind: Pod\nmetadata: {name: {}}\n",
	"labels are a list":         "apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: [b]}\n",
	"spec is a number":          "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\nspec: 5\n",
	"spec is null":              "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\nspec: null\n",
	"null rules":                "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\nspec: {ingress: [null], egress: [{to: [null], ports: [null]}]}\n",
	"long name":                 "apiVersion: v1\nkind: Pod\nmetadata: {name: " + strings.Repeat("x", 1<<20) + "}\n",
	"long field":                "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}\nspec: {\"" + strings.Repeat("y", 1<<16) + "\": 1}\n",
	"long kind":                 "apiVersion: v1\nkind: " + strings.Repeat("x", 1<<20) + "\nmetadata: {name: a}\n",
	"null list metadata":        "apiVersion: v1\nkind: List\nmetadata: null\nitems: null\n",
	"trailing text after JSON":  `{"a":1} {"b":2}`,
	"JSON with unpaired escape": `{"a":"\ud83d"}`,
}

func TestParseSurvivesNastyInput(t *testing.T) {
	for name, text := range nasty {
		t.Run(name, func(t *testing.T) {
			checkDocuments(t, kinds.Parse("dir/a.yaml", []byte(text)), text)
		})
	}
}
