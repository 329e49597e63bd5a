package clusterpolicy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The types of the API do not say whether a field is absent: a priority that is missing is 0 in them, the highest, and a
// podSelector that is missing selects every pod. So the fields that are there are read once more, from the text.

// fields are the fields of an object that are there. Nil: it is null, or no object.
type fields map[string]json.RawMessage

// UnmarshalJSON implements json.Unmarshaler. A value that is no object is reported where its type is known.
func (f *fields) UnmarshalJSON(text []byte) error {
	all := map[string]json.RawMessage{}
	if json.Unmarshal(text, &all) == nil {
		*f = all
		for name, value := range all {
			if string(value) == "null" {
				delete(all, name) // as the API server drops it
			}
		}
	}
	return nil
}

func (f fields) object(name string) fields {
	var o fields
	if json.Unmarshal(f[name], &o) != nil {
		return nil
	}
	return o
}

func (f fields) list(name string) []fields {
	var l []fields
	if json.Unmarshal(f[name], &l) != nil {
		return nil
	}
	return l
}

// checkShape finds fields that have to be there and are not, and others that cannot stand beside each other. The text has
// been decoded into the API's types before.
func checkShape(text []byte) field.ErrorList {
	var o fields
	if err := json.Unmarshal(text, &o); err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	path := field.NewPath("spec")
	if _, ok := o["spec"]; !ok {
		return field.ErrorList{field.Required(path, "an object must have a spec")}
	}
	spec := o.object("spec")
	errs := need(spec, path, "tier", "priority", "subject")
	if _, ok := spec["subject"]; ok {
		errs = append(errs, podsShape(spec.object("subject"), path.Child("subject"), "namespaces", "pods")...)
	}
	for i, r := range spec.list("ingress") {
		errs = append(errs, ruleShape(r, "from", path.Child("ingress").Index(i), "namespaces", "pods")...)
	}
	for i, r := range spec.list("egress") {
		errs = append(errs, ruleShape(r, "to", path.Child("egress").Index(i), "namespaces", "pods", "nodes", "networks", "domainNames")...)
	}
	return errs
}

func need(f fields, path *field.Path, names ...string) field.ErrorList {
	var errs field.ErrorList
	for _, name := range names {
		if _, ok := f[name]; !ok {
			errs = append(errs, field.Required(path.Child(name), "must be set"))
		}
	}
	return errs
}

// exactlyOne is the rule of the CRD for fields that exclude each other.
func exactlyOne(f fields, path *field.Path, names ...string) field.ErrorList {
	want := names[0]
	if last := len(names) - 1; last > 0 {
		want = "exactly one of " + strings.Join(names[:last], ", ") + " and " + names[last]
	}
	switch len(f) {
	case 0:
		return field.ErrorList{field.Required(path, want+" must be set")}
	case 1:
		return nil
	}
	return field.ErrorList{field.Invalid(path, strings.Join(slices.Sorted(maps.Keys(f)), ", "), want+" must be set")}
}

// podsShape checks a subject or peer, whose field pods must say which pods.
func podsShape(f fields, path *field.Path, names ...string) field.ErrorList {
	errs := exactlyOne(f, path, names...)
	if _, ok := f["pods"]; ok {
		errs = append(errs, need(f.object("pods"), path.Child("pods"), "podSelector")...)
	}
	return errs
}

func ruleShape(r fields, peers string, path *field.Path, names ...string) field.ErrorList {
	errs := need(r, path, "action")
	errs = append(errs, notEmpty(r, peers, path, "a rule must have a peer", true)...)
	for i, p := range r.list(peers) {
		at := path.Child(peers).Index(i)
		errs = append(errs, podsShape(p, at, names...)...)
		for _, name := range []string{"networks", "domainNames"} {
			errs = append(errs, notEmpty(p, name, at, fmt.Sprintf("a list of %s must not be empty", name), false)...)
		}
	}
	errs = append(errs, notEmpty(r, "protocols", path, "leave the field out to match every protocol", false)...)
	for i, p := range r.list("protocols") {
		errs = append(errs, protocolShape(p, path.Child("protocols").Index(i))...)
	}
	return errs
}

// notEmpty checks a list that, if it is there, must have an entry. Required: it must be there.
func notEmpty(f fields, name string, path *field.Path, why string, required bool) field.ErrorList {
	var list []json.RawMessage
	if text, ok := f[name]; ok && json.Unmarshal(text, &list) != nil || !ok && !required || len(list) > 0 {
		return nil
	}
	return field.ErrorList{field.Required(path.Child(name), why)}
}

func protocolShape(p fields, path *field.Path) field.ErrorList {
	errs := exactlyOne(p, path, "tcp", "udp", "sctp", "destinationNamedPort")
	for _, name := range []string{"tcp", "udp", "sctp"} {
		if _, ok := p[name]; !ok {
			continue
		}
		at := path.Child(name)
		protocol := p.object(name)
		errs = append(errs, exactlyOne(protocol, at, "destinationPort")...)
		if _, ok := protocol["destinationPort"]; ok {
			errs = append(errs, portShape(protocol.object("destinationPort"), at.Child("destinationPort"))...)
		}
	}
	return errs
}

func portShape(p fields, path *field.Path) field.ErrorList {
	errs := exactlyOne(p, path, "number", "range")
	if _, ok := p["range"]; ok {
		errs = append(errs, need(p.object("range"), path.Child("range"), "start", "end")...)
	}
	return errs
}
