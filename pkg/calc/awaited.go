package calc

import (
	"fmt"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// awaitedTable has the pods of this node whose Namespace is not known. Policies that select pods by labels of
// their Namespace do not select them yet, and one of those may deny what a policy of the pod's own namespace allows. So they are not
// enforced, and an interface without an enforced endpoint is closed (D-18).
type awaitedTable struct {
	wanted  bool // else pods are enforced in any case
	waiting map[model.EndpointID]waitingPod
}

type waitingPod struct{ profile, iface string }

// AwaitedPod is a pod that is not enforced until its Namespace is known.
type AwaitedPod struct {
	ID        model.EndpointID
	Iface     string
	Namespace string
}

// String says so.
func (p AwaitedPod) String() string {
	return fmt.Sprintf("pod %s is closed until Namespace %s is known", p.ID, p.Namespace)
}

// AwaitedPods are all of them, sorted.
func (a *awaitedTable) AwaitedPods() (pods []AwaitedPod) {
	for id, w := range a.waiting {
		namespace, _ := model.NamespaceOfProfile(w.profile)
		pods = append(pods, AwaitedPod{id, w.iface, namespace})
	}
	slices.SortFunc(pods, func(p, q AwaitedPod) int { return p.ID.Compare(q.ID) })
	return pods
}

// AwaitNamespaces has a pod enforced from when its Namespace is known: for a datastore that has a Namespace for every pod, and tells of
// pods and Namespaces in any order. A pod that is enforced stays so if its Namespace goes.
func AwaitNamespaces() Option {
	return func(g *Graph) { g.awaitedTable.wanted = true }
}

// hold reports whether an endpoint that would be enforced has to wait, because its Namespace is not known; nil: there is none. enforced: it has
// been until now.
func (a *awaitedTable) hold(id model.EndpointID, ep *endpoint, enforced bool, known func(profile string) bool) bool {
	delete(a.waiting, id)
	if !a.wanted || enforced || ep == nil {
		return false
	}
	for name := range ep.Group().Parents() {
		if _, ok := model.NamespaceOfProfile(name); ok && !known(name) {
			a.waiting[id] = waitingPod{name, ep.iface()}
			return true
		}
	}
	return false
}

// arrived returns the pods whose Namespaces are known now.
func (a *awaitedTable) arrived(known func(profile string) bool) (pods []model.EndpointID) {
	for id, w := range a.waiting {
		if known(w.profile) {
			pods = append(pods, id)
		}
	}
	return pods
}
