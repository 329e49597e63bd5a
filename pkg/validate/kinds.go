package validate

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/margay-project/margay/pkg/model"
)

// KindName names an API kind as manifests do.
type KindName struct{ APIVersion, Kind string }

// Reader reads the objects of one kind from text.
type Reader struct {
	KindName
	Ref        string // how a Ref spells the kind
	Namespaced bool
	// Read decodes and converts one object. ref is the one of its problems.
	Read func(text []byte, ref Ref) ([]model.Update, []Problem, bool)
}

// Table lists the kinds for Parse; package kinds has the rows.
type Table struct {
	Read   []Reader
	Policy []KindName // kinds of policy that are not read
}

// namespace is the one an object of the kind is in when its text says ns.
func (r *Reader) namespace(ns string) string {
	switch {
	case !r.Namespaced:
		return ""
	case ns == "":
		return metav1.NamespaceDefault
	}
	return ns
}

// find returns nil for a kind that is not read.
func (t Table) find(apiVersion, kind string) *Reader {
	i := slices.IndexFunc(t.Read, func(r Reader) bool { return r.APIVersion == apiVersion && r.Kind == kind })
	if i < 0 {
		return nil
	}
	return &t.Read[i]
}

// refKind is how a Ref spells a kind. One that is not read has its group behind its name, as in "Pod.example.org", where
// the name alone would mean a kind that is read: no two objects have one Ref.
func (t Table) refKind(apiVersion, kind string) string {
	group := groupOf(apiVersion)
	if i := slices.IndexFunc(t.Read, func(r Reader) bool { return r.Kind == kind && groupOf(r.APIVersion) == group }); i >= 0 {
		return t.Read[i].Ref
	}
	if apiVersion == "" || !slices.ContainsFunc(t.Read, func(r Reader) bool { return r.Kind == kind }) {
		return kind
	}
	return kind + "." + group
}

// groupOf returns "core" for kinds without a group.
func groupOf(apiVersion string) string {
	if group, _, ok := strings.Cut(apiVersion, "/"); ok {
		return group
	}
	return "core"
}

// The rules of the API server for names. They return the problems of the name; nothing: it is valid.
var (
	DNSLabel     = validation.IsDNS1123Label
	DNSSubdomain = validation.IsDNS1123Subdomain
)
