package validate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/suggest"
)

// unread is what becomes of an object of a kind that is not read. ref names it as it is written in h.
//
// A policy of a kind that is not read, and an object of a kind that is most likely misspelt, are rejected: their author
// relies on them, and they would not be in force. An object with a misspelt kind stands for the object of the right
// kind, so that a version of it that was in force before the mistake stays in force (semantics D-1). Everything else is
// a warning.
func (t Table) unread(ref Ref, h header) Document {
	text := fmt.Sprintf("%s %s is not a kind Margay reads", h.APIVersion, h.Kind)
	meant := t.kindMeant(h)
	if meant == nil {
		if t.isPolicy(h.APIVersion, h.Kind) {
			return broken(ref, Rejected, "%s, so it is not enforced", text)
		}
		return broken(ref, Warning, "%s", text)
	}
	doc := broken(ref, Rejected, "%s, so it is not used (did you mean %s %s?)", text, meant.APIVersion, meant.Kind)
	doc.Ref.Kind, doc.Ref.Namespace = meant.Ref, meant.namespace(h.Metadata.Namespace)
	return doc
}

// kubernetesGroups are those in which no third party defines kinds, so that a kind there that is nearly one of ours is
// misspelt, or of a version that is not read.
var kubernetesGroups = []string{"core", "apps", "extensions", "networking", "networking.k8s.io", "discovery", "discovery.k8s.io"}

// kindMeant is the kind that h most likely means; nil: there is none like it.
func (t Table) kindMeant(h header) *Reader {
	names := make([]string, 0, len(t.Read))
	for _, r := range t.Read {
		names = append(names, r.Kind)
	}
	name, ok := suggest.Nearest(h.Kind, names)
	if !ok {
		return nil
	}
	isMeant := func(r Reader) bool {
		return r.Kind == name && (groupOf(r.APIVersion) == groupOf(h.APIVersion) || slices.Contains(kubernetesGroups, groupOf(h.APIVersion)))
	}
	if i := slices.IndexFunc(t.Read, func(r Reader) bool { return isMeant(r) && r.APIVersion == h.APIVersion }); i >= 0 {
		return &t.Read[i]
	}
	if i := slices.IndexFunc(t.Read, isMeant); i >= 0 {
		return &t.Read[i]
	}
	return nil
}

// isPolicy reports whether objects of a kind that is not read are network policy, or a part of it, of any enforcer:
// of any version of the groups whose policy is known, and of any group whose kind is called that.
func (t Table) isPolicy(apiVersion, kind string) bool {
	return strings.HasSuffix(kind, "NetworkPolicy") || slices.ContainsFunc(t.Policy, func(k KindName) bool {
		return k.Kind == kind && groupOf(k.APIVersion) == groupOf(apiVersion)
	})
}
