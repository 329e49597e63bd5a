package validate

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// TextRules say what is checked of the text of objects of one kind, besides what their conversion checks.
type TextRules struct {
	Namespaced bool
	// RejectUnknown is for policies: a field that is misspelt and ignored may leave a policy wider than it was meant. Other
	// kinds are written by clusters, and newer ones extend them; what policy reads of them is old.
	RejectUnknown bool
	CheckName     func(string) []string // the API server's rule for names
}

// Decode decodes the JSON text of one object into obj, a pointer, and checks its metadata. Its namespace is that of ref.
// Not ok: the object is not usable; ref is that of the problems.
func Decode[P metav1.Object](obj P, rules TextRules, text []byte, ref Ref) (problems []Problem, ok bool) {
	strict := []kjson.StrictOption{kjson.DisallowDuplicateFields}
	if rules.RejectUnknown {
		strict = append(strict, kjson.DisallowUnknownFields)
	}
	rep := report{ref: ref}
	if odd, err := kjson.UnmarshalStrict(text, obj, strict...); err != nil {
		rep.decodeError(err)
	} else {
		rep.strictErrors(odd, reflect.TypeFor[P]().Elem())
	}
	if !rep.ok() {
		return rep.done(), false
	}
	obj.SetNamespace(ref.Namespace)
	rep.reject(checkMeta(obj, rules))
	return rep.done(), rep.ok()
}

// checkMeta checks what the API server checks of every object, as far as it matters here.
func checkMeta(obj metav1.Object, rules TextRules) field.ErrorList {
	var errs field.ErrorList
	meta := field.NewPath("metadata")
	if obj.GetName() == "" {
		errs = append(errs, field.Required(meta.Child("name"), "an object must have a name"))
	} else {
		for _, msg := range rules.CheckName(obj.GetName()) {
			errs = append(errs, field.Invalid(meta.Child("name"), obj.GetName(), msg))
		}
	}
	if rules.Namespaced {
		for _, msg := range DNSLabel(obj.GetNamespace()) {
			errs = append(errs, field.Invalid(meta.Child("namespace"), obj.GetNamespace(), msg))
		}
	}
	return append(errs, validation.ValidateLabels(obj.GetLabels(), meta.Child("labels"))...)
}

// decodeError adds an error of the JSON decoder, in words that do not speak of Go types.
func (r *report) decodeError(err error) {
	var typeErr *json.UnmarshalTypeError
	if errors.As(err, &typeErr) {
		hint := ""
		if typeErr.Type.Kind() == reflect.String && (typeErr.Value == "bool" || typeErr.Value == "number") {
			hint = "; put it in quotes"
		}
		r.add(Rejected, typeErr.Field, "%s where %s is expected%s", typeErr.Value, jsonType(typeErr), hint)
		return
	}
	r.add(Rejected, "", "cannot be decoded: %s", strings.TrimPrefix(err.Error(), "json: "))
}

func jsonType(err *json.UnmarshalTypeError) string {
	switch t := err.Type; t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("an integer of at most %d bits", t.Bits())
	default:
		return "a " + t.Kind().String()
	}
}

// strictErrors adds fields of an object of type t that are unknown or written twice.
func (r *report) strictErrors(errs []error, t reflect.Type) {
	for _, err := range errs {
		var at kjson.FieldError
		if !errors.As(err, &at) {
			r.add(Rejected, "", "%v", err)
			continue
		}
		what := "unknown field" + fieldMeant(t, at.FieldPath())
		if strings.HasPrefix(err.Error(), "duplicate") {
			what = "field is written twice"
		}
		r.add(Rejected, at.FieldPath(), "%s", what)
	}
}
