package validate

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/margay-project/margay/pkg/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// kind is how the objects of one API kind are read from text.
type kind struct {
	apiVersion, name string
	scope            scope
	// read decodes and converts one object. ref is the one of its problems.
	read func(text []byte, ref Ref) ([]model.Update, []Problem, bool)
}

type scope bool

const (
	clusterWide scope = false
	namespaced  scope = true
)

// namespace is the one an object of the kind is in when its text says ns.
func (k *kind) namespace(ns string) string {
	switch {
	case k.scope == clusterWide:
		return ""
	case ns == "":
		return metav1.NamespaceDefault
	}
	return ns
}

// fields says what becomes of fields that the kind does not have, as far as is known here.
type fields bool

const (
	// ignoreUnknown is for kinds that clusters write and newer ones extend; what policy reads of them is old.
	ignoreUnknown fields = false
	// rejectUnknown is for policies: a field that is misspelt and ignored may leave a policy wider than it was meant.
	rejectUnknown fields = true
)

// newKind makes the kind of objects of type T. checkName is the API server's rule for names.
func newKind[T any, P interface {
	*T
	metav1.Object
}, U model.Update](apiVersion, name string, s scope, f fields, checkName func(string) []string,
	convert func(P) (U, []Problem, bool)) *kind {
	strict := []kjson.StrictOption{kjson.DisallowDuplicateFields}
	if f == rejectUnknown {
		strict = append(strict, kjson.DisallowUnknownFields)
	}
	read := func(text []byte, ref Ref) ([]model.Update, []Problem, bool) {
		rep := report{ref: ref}
		obj := P(new(T))
		if odd, err := kjson.UnmarshalStrict(text, obj, strict...); err != nil {
			rep.decodeError(err)
		} else {
			rep.strictErrors(odd, reflect.TypeFor[T]())
		}
		if !rep.ok() {
			return nil, rep.done(), false
		}
		obj.SetNamespace(ref.Namespace)
		rep.reject(checkMeta(obj, s, checkName))
		if !rep.ok() {
			return nil, rep.done(), false
		}
		update, problems, ok := convert(obj)
		if !ok {
			return nil, problems, false
		}
		return []model.Update{update}, problems, true
	}
	return &kind{apiVersion, name, s, read}
}

// checkMeta checks what the API server checks of every object, as far as it matters here.
func checkMeta(obj metav1.Object, s scope, checkName func(string) []string) field.ErrorList {
	var errs field.ErrorList
	meta := field.NewPath("metadata")
	if obj.GetName() == "" {
		errs = append(errs, field.Required(meta.Child("name"), "an object must have a name"))
	} else {
		for _, msg := range checkName(obj.GetName()) {
			errs = append(errs, field.Invalid(meta.Child("name"), obj.GetName(), msg))
		}
	}
	if s == namespaced {
		for _, msg := range isDNSLabel(obj.GetNamespace()) {
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
