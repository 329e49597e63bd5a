package config

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A setting has one name: the words of the field that holds its value are words of the flag, or the value that they stand
// for, as in StrictMidFlow of "mid-flow: strict".
func TestFieldsAreNamedAsTheirSettings(t *testing.T) {
	for _, s := range Settings() {
		words := slices.Concat(strings.Split(s.Name, "-"), s.Words)
		for i, w := range words {
			words[i] = strings.ToLower(w)
		}
		for _, field := range fieldsOf(t, s) {
			parts := wordPattern.FindAllString(field, -1)
			if strings.Join(parts, "") != field {
				t.Errorf("field %s: the words are not all of it: %q", field, parts)
			}
			for _, w := range parts {
				w = strings.ToLower(w)
				if !slices.Contains(words, w) && !slices.Contains(words, strings.TrimSuffix(w, "s")) {
					t.Errorf("setting %s is field %s of a Config: no word %q in %q", s.Name, field, w, words)
				}
			}
		}
	}
}

var wordPattern = regexp.MustCompile(`BPFFS|PProf|VXLAN|TCP|UDP|ICMP|CA|[A-Z][a-z]+`)

// fieldsOf are the fields of a Config that change with a setting.
func fieldsOf(t *testing.T, s Setting) []string {
	t.Helper()
	value := samples(t, s)[0]
	if value == s.Default() {
		value = samples(t, s)[1]
	}
	l, _, err := New(Local{Host: "h", Flags: []Flag{{s.Name, value}}})
	if err != nil {
		t.Fatal(err)
	}
	base, _, err := New(Local{Host: "h"})
	if err != nil {
		t.Fatal(err)
	}
	var changed []string
	var compare func(prefix string, a, b reflect.Value)
	compare = func(prefix string, a, b reflect.Value) {
		for i := range a.NumField() {
			f := a.Type().Field(i)
			switch {
			case f.Type.Kind() == reflect.Struct && f.Anonymous:
				compare(prefix, a.Field(i), b.Field(i))
			case f.Type.Kind() == reflect.Struct:
				compare(prefix+f.Name, a.Field(i), b.Field(i))
			case !cmp.Equal(a.Field(i).Interface(), b.Field(i).Interface()):
				changed = append(changed, prefix+f.Name)
			}
		}
	}
	compare("", reflect.ValueOf(base.Config()), reflect.ValueOf(l.Config()))
	if len(changed) != 1 {
		t.Errorf("%s=%s changes the fields %q", s.Name, value, changed)
	}
	return changed
}
