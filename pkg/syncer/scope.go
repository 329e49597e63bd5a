package syncer

import "github.com/margay-project/margay/pkg/model"

// scopeOf is the namespace whose author has written the object of an update; empty: one who may write cluster-wide objects. What stands for
// a Namespace or a ServiceAccount is the namespace's.
func scopeOf(u model.Update) string {
	switch u := u.(type) {
	case model.EndpointUpdate:
		return u.ID.Namespace
	case model.ProfileUpdate:
		if namespace, ok := model.NamespaceOfProfile(u.Name); ok {
			return namespace
		}
		namespace, _, _ := model.ServiceAccountOfProfile(u.Name)
		return namespace
	case model.PolicyUpdate:
		return u.Key.Namespace
	case model.NetworkSetUpdate:
		return u.ID.Namespace
	case model.ServiceUpdate:
		return u.Key.Namespace
	case model.EndpointSliceUpdate:
		return u.ID.Namespace
	}
	return ""
}

// scopes are namespaces, and "" if cluster-wide objects are meant, too.
type scopes map[string]bool

// concern reports whether what is still to come of them may replace an object of that scope. What a tenant writes replaces nothing of
// others, so that deletions of others do not wait for it.
func (s scopes) concern(scope string) bool { return s[scope] || s[""] }

// with returns them with one more.
func (s scopes) with(scope string) scopes {
	if s == nil {
		s = scopes{}
	}
	s[scope] = true
	return s
}
