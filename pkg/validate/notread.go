package validate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/suggest"
)

// unread is what becomes of an object of a kind that is not read. ref names it as it is written in h.
//
// Policy, and what is most likely a misspelt kind, is rejected: somebody relies on the object, and nothing of it is in
// force. An object with a misspelt kind stands for the object of the right kind, so that a version of it that was in
// force before the mistake stays in force (semantics D-1). Everything else is a warning.
func unread(ref Ref, h header) Document {
	text := fmt.Sprintf("%s %s is not a kind Margay reads", h.APIVersion, h.Kind)
	meant := kindMeant(h)
	if meant == nil {
		if isPolicyKind(h.APIVersion, h.Kind) {
			return broken(ref, Rejected, "%s, so nothing of it is enforced", text)
		}
		return broken(ref, Warning, "%s", text)
	}
	doc := broken(ref, Rejected, "%s, so nothing of it is used (did you mean %s %s?)", text, meant.apiVersion, meant.name)
	doc.Ref.Kind, doc.Ref.Namespace = meant.name, meant.namespace(h.Metadata.Namespace)
	return doc
}

// kubernetesGroups are those in which no third party defines kinds, so that a kind there that is nearly one of ours is
// misspelt, or of a version that is not read.
var kubernetesGroups = []string{"core", "apps", "extensions", "networking", "networking.k8s.io", "discovery", "discovery.k8s.io"}

// kindMeant is the kind that h most likely means; nil: there is none like it.
func kindMeant(h header) *kind {
	names := make([]string, 0, len(kinds))
	for _, k := range kinds {
		names = append(names, k.name)
	}
	name, ok := suggest.Nearest(h.Kind, names)
	if !ok {
		return nil
	}
	isMeant := func(k *kind) bool {
		return k.name == name && (groupOf(k.apiVersion) == groupOf(h.APIVersion) || slices.Contains(kubernetesGroups, groupOf(h.APIVersion)))
	}
	if i := slices.IndexFunc(kinds, func(k *kind) bool { return isMeant(k) && k.apiVersion == h.APIVersion }); i >= 0 {
		return kinds[i]
	}
	if i := slices.IndexFunc(kinds, isMeant); i >= 0 {
		return kinds[i]
	}
	return nil
}

// calicoPolicyKinds are the kinds of Calico's API that say what is enforced, besides those called policy.
var calicoPolicyKinds = []string{"Tier", "NetworkSet", "GlobalNetworkSet", "HostEndpoint", "Profile"}

// isPolicyKind reports whether objects of a kind are network policy, or a part of it, whoever enforces it.
func isPolicyKind(apiVersion, name string) bool {
	if strings.HasSuffix(name, "NetworkPolicy") {
		return true
	}
	group := groupOf(apiVersion)
	return (group == "projectcalico.org" || group == "crd.projectcalico.org") && slices.Contains(calicoPolicyKinds, name)
}
