package validate

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/suggest"
)

// fieldMeant is " (did you mean ingress?)" for the last field of a path in objects of type t, such as
// "spec.ingress[0].form". Empty: the type has no field like it, or the path is not one of t.
func fieldMeant(t reflect.Type, path string) string {
	names := strings.Split(path, ".")
	last := len(names) - 1
	for _, name := range names[:last] {
		name, _, _ = strings.Cut(name, "[")
		var ok bool
		if t, ok = jsonFields(elem(t))[name]; !ok {
			return ""
		}
	}
	misspelt, _, _ := strings.Cut(names[last], "[")
	return suggest.Question(misspelt, slices.Sorted(maps.Keys(jsonFields(elem(t)))))
}

// elem is the struct behind pointers and lists.
func elem(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t
}

// jsonFields are the fields of a struct, by the names they have in JSON; of another type there are none.
func jsonFields(t reflect.Type) map[string]reflect.Type {
	fields := map[string]reflect.Type{}
	if t.Kind() != reflect.Struct {
		return fields
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && f.Anonymous: // its fields count even if its own name is not exported
			maps.Copy(fields, jsonFields(elem(f.Type)))
		case !f.IsExported():
		case name != "":
			fields[name] = f.Type
		}
	}
	return fields
}
