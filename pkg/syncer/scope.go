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

// scopes are namespaces of updates that wait, and "" if cluster-wide objects are meant, too. False: nothing but policies waits there.
type scopes map[string]bool

// concern reports whether what is still to come of them may replace the object of that scope which an update deletes. What a tenant writes
// replaces nothing of others, so that deletions of others do not wait for it. Deletions of pods wait for nothing: the address of a pod that
// has gone may be that of a pod of another namespace by now.
func (s scopes) concern(u model.Update, scope string) bool {
	_, own := s[scope]
	return !isPod(u) && (own || s[""])
}

// with returns them with one more; all: not only its policies.
func (s scopes) with(scope string, all bool) scopes {
	if s == nil {
		s = scopes{}
	}
	s[scope] = s[scope] || all
	return s
}

func isPod(u model.Update) bool {
	_, is := u.(model.EndpointUpdate)
	return is
}
