package model

import "strings"

// Prefixes of the names of the profiles that stand for Kubernetes objects.
const (
	namespaceProfile      = "kns."
	serviceAccountProfile = "ksa."
)

// NamespaceProfile is the name of the profile that stands for a Namespace: "kns.shop".
func NamespaceProfile(namespace string) string { return namespaceProfile + namespace }

// ServiceAccountProfile is the name of the profile that stands for a ServiceAccount: "ksa.shop.default".
func ServiceAccountProfile(namespace, name string) string {
	return serviceAccountProfile + namespace + "." + name
}

// ProfileDefaultAllow is built in, as in Calico: it has no labels and allows everything. No object changes it.
const ProfileDefaultAllow = "projectcalico-default-allow"

// NamespaceOfProfile returns the Namespace that a profile stands for; not ok if it stands for none.
func NamespaceOfProfile(name string) (namespace string, ok bool) {
	return strings.CutPrefix(name, namespaceProfile)
}

// IsServiceAccountProfile reports whether a profile stands for a ServiceAccount. Such a profile gives labels only.
func IsServiceAccountProfile(name string) bool { return strings.HasPrefix(name, serviceAccountProfile) }

// ServiceAccountOfProfile returns the ServiceAccount that a profile stands for; not ok if it stands for none.
func ServiceAccountOfProfile(profile string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(profile, serviceAccountProfile)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, ".") // names of namespaces have no dots
}
