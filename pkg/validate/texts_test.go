package validate_test

import (
	"testing"

	"github.com/margay-project/margay/pkg/kinds"
	"github.com/margay-project/margay/pkg/validate"
)

// What is wrong with the text of a file is said with what to do.
func TestOddTextsOfFiles(t *testing.T) {
	const namespace = "apiVersion: v1\nkind: Namespace\nmetadata:\n"
	for text, want := range map[string]string{
		namespace + "\tname: x\n":                                        `f:4: rejected: not valid YAML: found character that cannot start any token; YAML is indented with spaces, and this line with a tab`,
		namespace + "  name: {{ .Values.name }}\n":                       `f:4: rejected: a key must be a string; is this a template ("{{") that was not rendered?`,
		namespace + "  name: x # caf\xe9\n":                              `f:4: rejected: not valid YAML: the text is not UTF-8 from here on; save the file as UTF-8`,
		"\xff\xfea\x00p\x00i\x00":                                        `f:1: rejected: the text is UTF-16; save the file as UTF-8`,
		"{\"kind\": \"a\"}\n{\"kind\": \"b\"}\n":                         `f:1: rejected: a second document without a line "---" before it`,
		"# c\n---\n" + namespace + "\tname: x\n":                         `f:6: rejected: not valid YAML: found character that cannot start any token; YAML is indented with spaces, and this line with a tab`,
		"\ufeff" + namespace + "  name: x\n":                             "",
		namespace + "  name: x\n---\n\ufeff" + namespace + "  name: z\n": "",
		"apiVersion: v1\r\nkind: Namespace\r\nmetadata: {name: x}\r\n":   "",
	} {
		var got string
		for _, d := range kinds.Table(validate.Pods{}).Parse("f", []byte(text)) {
			for _, p := range d.Problems {
				got += p.String()
			}
		}
		if got != want {
			t.Errorf("%q:\n%s\nwant\n%s", text, got, want)
		}
	}
}
