package validate

import (
	"encoding/json"
	"reflect"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestYAMLMeansWhatKubectlReads(t *testing.T) {
	tests := map[string]struct{ yaml, want string }{
		"strings":            {`[a, "b", 'c', 2024-01-01, "yes", 'off', !!str no]`, `["a","b","c","2024-01-01","yes","off","no"]`},
		"numbers":            {`[1, -2, 0x10, 010, 1.5, 1e3, 18446744073709551615]`, `[1,-2,16,8,1.5,1000,18446744073709551615]`},
		"truth":              {`[true, False, yes, No, on, OFF, y, N]`, `[true,false,true,false,true,false,true,false]`},
		"nothing":            {`[null, ~, ]`, `[null,null]`},
		"keys":               {`{1: a, true: b, on: c, 0x10: d, "2": e}`, `{"1":"a","true":"b","true":"c","16":"d","2":"e"}`},
		"keys written twice": {`{a: 1, a: 2}`, `{"a":1,"a":2}`},
		"alias":              {`{a: &x [1], b: *x}`, `{"a":[1],"b":[1]}`},
		"key by alias":       {`{a: &x b, *x : c}`, `{"a":"b","b":"c"}`},
		"merge":              {`{a: &x {b: 1, c: 2}, d: {<<: *x, b: 3}}`, `{"a":{"b":1,"c":2},"d":{"b":3,"c":2}}`},
		"merge of several":   {`{a: &x {b: 1}, c: &y {b: 2, d: 3}, e: {<<: [*x, *y]}}`, `{"a":{"b":1},"c":{"b":2,"d":3},"e":{"b":1,"d":3}}`},
		"merge of a merge":   {"a: &x {b: 1}\nc: &y {<<: *x, d: 2}\ne: {<<: *y}", `{"a":{"b":1},"c":{"d":2,"b":1},"e":{"d":2,"b":1}}`},
		"block scalar":       {"a: |\n  ---\n  b\n", `{"a":"---\nb\n"}`},
		"comment":            {"# nothing\n", ""},
		"null":               {"~", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, _, err := readText(segment{[]byte(tt.yaml), 1})
			if err != nil || string(got) != tt.want {
				t.Errorf("got %s, %v\nwant %s", got, err, tt.want)
			}
			// The library that kubectl uses is the authority.
			ref, refErr := yaml.YAMLToJSON([]byte(tt.yaml))
			if refErr != nil {
				t.Fatalf("kubectl does not read this: %v", refErr)
			}
			if got == nil {
				got = []byte("null")
			}
			if !sameJSON(t, ref, got) {
				t.Errorf("kubectl reads %s", ref)
			}
		})
	}
}

// Strings and numbers that are written as they stand are what the encoder makes of them.
func TestWhatIsWrittenAsItStandsIsJSON(t *testing.T) {
	texts := []string{"", "172.16.0.1/32", "ü", "\u2028", "\xff", "1_000", "012", "0", "-1", "12345678901234567890"}
	for c := range rune(256) {
		texts = append(texts, "a"+string(c)+"b", string(byte(c)))
	}
	for _, text := range texts {
		want, _ := json.Marshal(text)
		if got := `"` + text + `"`; isPlain(text) && got != string(want) {
			t.Errorf("%q is written as %s, want %s", text, got, want)
		}
		var number json.Number
		if err := json.Unmarshal([]byte(text), &number); isDecimal(text) && (err != nil || number.String() != text) {
			t.Errorf("%q is taken for a number: %v", text, err)
		}
	}
	if !isPlain("172.16.0.1/32") || !isDecimal("65535") {
		t.Error("what most manifests have is not written as it stands")
	}
	if _, _, err := readText(segment{[]byte("!!bool 12"), 1}); err == nil {
		t.Error("a number is taken for a truth value")
	}
}

func TestJSONIsReadAsItIs(t *testing.T) {
	const text = "{\"a\":\t\"\\ud83d\\ude00\"}" // tabs and escapes that YAML does not know
	got, _, err := readText(segment{[]byte("\n" + text + "\n"), 1})
	if err != nil || string(got) != text {
		t.Errorf("got %s, %v", got, err)
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var va, vb any
	if err := json.Unmarshal(a, &va); err != nil {
		t.Fatalf("decode %s: %v", a, err)
	}
	if err := json.Unmarshal(b, &vb); err != nil {
		t.Fatalf("decode %s: %v", b, err)
	}
	return reflect.DeepEqual(va, vb)
}

func TestYAMLErrorsNameTheLine(t *testing.T) {
	tests := map[string]struct {
		yaml string
		line int
		msg  string
	}{
		"syntax":         {"a: b\nc: d: e\n", 102, "not valid YAML: mapping values are not allowed in this context"},
		"unknown alias":  {"a: b\nc: *d\n", 101, "not valid YAML: unknown anchor 'd' referenced"},
		"infinity":       {"a: 1\nb: .inf\n", 102, `".inf" is not a number`},
		"wrong type":     {"a: 1\nb: !!int x\n", 102, `"x" is not of type !!int`},
		"binary":         {"a: !!binary eA==\n", 101, "values of type !!binary are not read"},
		"null key":       {"a: 1\n~: 2\n", 102, "a key must not be null"},
		"mapping as key": {"a: 1\n{b: c}: 2\n", 102, "a key must be a string"},
		"merge of text":  {"a: 1\n<<: b\n", 102, `"<<" must name a mapping or a list of them`},
		"endless":        {"a: &a\n- 1\n- *a\n", 101, "nested deeper than 200 levels"},
		"two roots":      {"a: b\n\u2028---\u2028c: d\n", 103, `a second document without a line "---" before it`},
		"alias bomb":     {Bomb(12, 10), 101, "more than 2097152 values, aliases included"},
		"merge bomb":     {MergeBomb(3000, 30000), 101, "more than 2097152 values, aliases included"},
		"long scalars":   {ScalarBomb(), 102, "larger than 64 MiB, aliases included"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := readText(segment{[]byte(tt.yaml), 101})
			if err == nil || err.msg != tt.msg || err.line != tt.line {
				t.Errorf("got %+v\nwant line %d: %s", err, tt.line, tt.msg)
			}
		})
	}
}
