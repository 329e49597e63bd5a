package calc

import "github.com/margay-project/margay/pkg/model"

// awaited are the pods of this node whose Namespace is not known, by the name of its profile. Policies that select pods by labels of
// their Namespace do not select them yet, and one of those may deny what a policy of the pod's own namespace allows. So they are not
// enforced, and an interface without an enforced endpoint is closed (D-18).
type awaited struct {
	wanted bool // else pods are enforced in any case
	pods   map[model.EndpointID]string
}

// AwaitNamespaces has a pod enforced from when its Namespace is known: for a datastore that has a Namespace for every pod, and tells of
// pods and Namespaces in any order. A pod that is enforced stays so if its Namespace goes.
func AwaitNamespaces() Option {
	return func(g *Graph) { g.awaited.wanted = true }
}

// hold reports whether an endpoint that would be enforced has to wait, because its Namespace is not known; nil: there is none. enforced: it has
// been until now.
func (a *awaited) hold(id model.EndpointID, ep *endpoint, enforced bool, known func(profile string) bool) bool {
	delete(a.pods, id)
	if !a.wanted || enforced || ep == nil {
		return false
	}
	for name := range ep.Group().Parents() {
		if _, ok := model.NamespaceOfProfile(name); ok && !known(name) {
			a.pods[id] = name
			return true
		}
	}
	return false
}

// arrived returns the pods whose Namespaces are known now.
func (a *awaited) arrived(known func(profile string) bool) (pods []model.EndpointID) {
	for id, name := range a.pods {
		if known(name) {
			pods = append(pods, id)
		}
	}
	return pods
}
