package syncer

import "github.com/margay-project/margay/pkg/model"

// key names what an update is about. Two updates with equal keys replace each other.
type key struct {
	kind            updateKind
	policy          model.PolicyKind // of policies only
	namespace, name string
}

type updateKind uint8

const (
	endpointKind updateKind = iota + 1
	profileKind
	tierKind
	policyKind
	networkSetKind
	serviceKind
	endpointSliceKind
	nodeKind
	inSyncKind
)

// keyOf returns what u is about, and whether u says that it is present. InSync counts as present.
func keyOf(u model.Update) (k key, present bool) {
	switch u := u.(type) {
	case model.EndpointUpdate:
		return key{kind: endpointKind, namespace: u.ID.Namespace, name: u.ID.Name}, u.Endpoint != nil
	case model.ProfileUpdate:
		return key{kind: profileKind, name: u.Name}, u.Profile != nil
	case model.TierUpdate:
		return key{kind: tierKind, name: u.Name}, u.Tier != nil
	case model.PolicyUpdate:
		return key{policyKind, u.Key.Kind, u.Key.Namespace, u.Key.Name}, u.Policy != nil
	case model.NetworkSetUpdate:
		return key{kind: networkSetKind, namespace: u.ID.Namespace, name: u.ID.Name}, u.Set != nil
	case model.ServiceUpdate:
		return key{kind: serviceKind, namespace: u.Key.Namespace, name: u.Key.Name}, u.Service != nil
	case model.EndpointSliceUpdate:
		return key{kind: endpointSliceKind, namespace: u.ID.Namespace, name: u.ID.Name}, u.Slice != nil
	case model.NodeUpdate:
		return key{kind: nodeKind, name: u.Name}, u.Node != nil
	case model.InSync:
		return key{kind: inSyncKind}, true
	}
	return key{}, false // not reached: only model implements Update
}
