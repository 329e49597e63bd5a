package validate

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// TextRules are the checks of the text of objects of one kind, besides the checks of their conversion.
type TextRules struct {
	Namespaced bool
	// RejectUnknown is for policies: a field that is misspelt and ignored may leave a policy wider than it was meant. Other
	// kinds are written by clusters, and newer ones extend them; what policy reads of them is old.
	RejectUnknown bool
	CheckName     func(string) []string // the API server's rule for names
}

// Decode decodes the JSON text of one object into obj, a pointer, and checks its metadata. Its namespace is that of ref.
// Not ok: the object is not usable; ref is that of the problems. Decoded: obj holds every field that it has and is known, so
// its conversion can find what else is wrong.
func Decode[P metav1.Object](obj P, rules TextRules, text []byte, ref Ref) (problems []Problem, decoded, ok bool) {
	strict := []kjson.StrictOption{kjson.DisallowDuplicateFields}
	if rules.RejectUnknown {
		strict = append(strict, kjson.DisallowUnknownFields)
	}
	rep := Report{ref: ref}
	odd, err := kjson.UnmarshalStrict(text, obj, strict...)
	if err != nil {
		rep.decodeError(err)
		return rep.Done(), false, false
	}
	odd = slices.DeleteFunc(odd, func(err error) bool {
		path, unknown := unknownField(err)
		return unknown && inStatus(path)
	})
	rep.strictErrors(odd, reflect.TypeFor[P]().Elem())
	obj.SetNamespace(ref.Namespace)
	rep.Reject(checkMeta(obj, rules))
	return rep.Done(), true, rep.OK()
}

// maxStrictErrors is how many fields the decoder reports as unknown or written twice. It leaves out the others.
const maxStrictErrors = 100

// DecodeStored is Decode for the text of an object that a datastore has checked and stored. A field that is not known here is
// one of a newer version of the API: it is returned by its path and is no problem, but for fields of the metadata and of the status,
// which mean nothing here. An empty path stands for fields that the decoder has left out. The object is called as in ref, by which the
// datastore knows it.
func DecodeStored[T any, P interface {
	*T
	metav1.Object
}](obj P, rules TextRules, text []byte, ref Ref) (unknown []string, problems []Problem, ok bool) {
	unknown, problems, ok = decodeStored((*T)(obj), text, ref)
	if !ok {
		return nil, problems, false
	}
	rep := Report{ref: ref}
	obj.SetNamespace(ref.Namespace)
	if obj.GetName() != "" {
		obj.SetName(ref.Name)
	}
	rep.Reject(checkMeta(obj, rules))
	return unknown, rep.Done(), rep.OK()
}

// decodeStored is DecodeStored without the checks of the metadata.
func decodeStored[T any](obj *T, text []byte, ref Ref) (unknown []string, problems []Problem, ok bool) {
	rep := Report{ref: ref}
	odd, err := kjson.UnmarshalStrict(text, obj, kjson.DisallowDuplicateFields, kjson.DisallowUnknownFields)
	if err != nil {
		rep.decodeError(err)
		return nil, rep.Done(), false
	}
	if len(odd) >= maxStrictErrors {
		unknown = append(unknown, "")
	}
	odd = slices.DeleteFunc(odd, func(err error) bool {
		path, is := unknownField(err)
		if is && !strings.HasPrefix(path, "metadata.") && !inStatus(path) {
			unknown = append(unknown, path)
		}
		return is
	})
	rep.strictErrors(odd, reflect.TypeFor[T]())
	return unknown, rep.Done(), rep.OK()
}

// unknownField returns the path of the field that a strict error is about; not ok: the error is another one.
func unknownField(err error) (path string, ok bool) {
	var at kjson.FieldError
	if !errors.As(err, &at) || isDuplicate(err) {
		return "", false
	}
	return at.FieldPath(), true
}

// inStatus reports whether a field is the status of an object, or belongs to it. A status does not decide what policy says, in any
// version of an API: servers of Kubernetes 1.24 to 1.27 write one into every NetworkPolicy, which later releases do not have.
func inStatus(path string) bool { return path == "status" || strings.HasPrefix(path, "status.") }

func isDuplicate(err error) bool { return strings.HasPrefix(err.Error(), "duplicate") }

// WithConversion returns the problems of a decoded object that is not usable, with those that its conversion found. A
// problem in the same object of the text as one of decoding may be its consequence, as a peer without a selector is of a
// selector that is misspelt. It is dropped.
func WithConversion(decoding, conversion []Problem) []Problem {
	suspect := map[string]bool{}
	for _, p := range decoding {
		suspect[p.Field], suspect[around(p.Field)] = true, true
	}
	return append(decoding, slices.DeleteFunc(conversion, func(p Problem) bool {
		return suspect[p.Field] || suspect[around(p.Field)]
	})...)
}

// around is the path of the object or list that has the field.
func around(path string) string { return path[:max(0, strings.LastIndexByte(path, '.'))] }

// checkMeta makes the checks of the API server for every object, as far as they matter here.
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
func (r *Report) decodeError(err error) {
	var typeErr *json.UnmarshalTypeError
	if errors.As(err, &typeErr) {
		hint := ""
		if typeErr.Type.Kind() == reflect.String && (typeErr.Value == "bool" || typeErr.Value == "number") {
			hint = "; put it in quotes"
		}
		r.Add(Rejected, withoutEmbedded(typeErr.Field), "%s where %s is expected%s", typeErr.Value, jsonType(typeErr), hint)
		return
	}
	r.Add(Rejected, "", "cannot be decoded: %s", strings.TrimPrefix(err.Error(), "json: "))
}

// withoutEmbedded is a path without the names of embedded Go structs, which are no fields: those of the API begin lower case.
func withoutEmbedded(path string) string {
	steps := slices.DeleteFunc(strings.Split(path, "."), func(s string) bool { return s != "" && 'A' <= s[0] && s[0] <= 'Z' })
	return strings.Join(steps, ".")
}

func jsonType(err *json.UnmarshalTypeError) string {
	switch t := err.Type; t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return fmt.Sprintf("an integer of at most %d bits", t.Bits())
	default:
		return "a " + t.Kind().String()
	}
}

// strictErrors adds fields of an object of type t that are unknown or written twice.
func (r *Report) strictErrors(errs []error, t reflect.Type) {
	for _, err := range errs {
		var at kjson.FieldError
		if !errors.As(err, &at) {
			r.Add(Rejected, "", "%v", err)
			continue
		}
		what := "unknown field" + fieldMeant(t, at.FieldPath())
		if isDuplicate(err) {
			what = "field is written twice"
		}
		r.Add(Rejected, at.FieldPath(), "%s", what)
	}
}
