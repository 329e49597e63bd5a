package model

// Key names the object an Update is about. Comparable; two updates with equal keys replace each other.
type Key struct {
	kind            updateKind
	policy          PolicyKind   // of policies only
	endpoint        EndpointKind // of endpoints only
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
	configurationKind
	routesKind
	inSyncKind
)

// InSyncKey is the key of InSync.
var InSyncKey = Key{kind: inSyncKind}

// KeyOf returns what u is about, and whether u says that it is present. InSync counts as present.
func KeyOf(u Update) (k Key, present bool) {
	switch u := u.(type) {
	case EndpointUpdate:
		return Key{kind: endpointKind, endpoint: u.ID.Kind, namespace: u.ID.Namespace, name: u.ID.Name}, u.Endpoint != nil
	case ProfileUpdate:
		return Key{kind: profileKind, name: u.Name}, u.Profile != nil
	case TierUpdate:
		return Key{kind: tierKind, name: u.Name}, u.Tier != nil
	case PolicyUpdate:
		return Key{kind: policyKind, policy: u.Key.Kind, namespace: u.Key.Namespace, name: u.Key.Name}, u.Policy != nil
	case NetworkSetUpdate:
		return Key{kind: networkSetKind, namespace: u.ID.Namespace, name: u.ID.Name}, u.Set != nil
	case ServiceUpdate:
		return Key{kind: serviceKind, namespace: u.Key.Namespace, name: u.Key.Name}, u.Service != nil
	case EndpointSliceUpdate:
		return Key{kind: endpointSliceKind, namespace: u.ID.Namespace, name: u.ID.Name}, u.Slice != nil
	case NodeUpdate:
		return Key{kind: nodeKind, name: u.Name}, u.Node != nil
	case ConfigurationUpdate:
		return Key{kind: configurationKind, name: u.Name}, u.Configuration != nil
	case RoutesUpdate:
		return Key{kind: routesKind}, u.Routes != nil
	case InSync:
		return InSyncKey, true
	}
	return Key{}, false // not reached: only this package implements Update
}

// Absent is the update that says that what u is about is gone. Of InSync it is InSync.
func Absent(u Update) Update {
	switch u := u.(type) {
	case EndpointUpdate:
		return EndpointUpdate{ID: u.ID}
	case ProfileUpdate:
		return ProfileUpdate{Name: u.Name}
	case TierUpdate:
		return TierUpdate{Name: u.Name}
	case PolicyUpdate:
		return PolicyUpdate{Key: u.Key}
	case NetworkSetUpdate:
		return NetworkSetUpdate{ID: u.ID}
	case ServiceUpdate:
		return ServiceUpdate{Key: u.Key}
	case EndpointSliceUpdate:
		return EndpointSliceUpdate{ID: u.ID}
	case NodeUpdate:
		return NodeUpdate{Name: u.Name}
	case ConfigurationUpdate:
		return ConfigurationUpdate{Name: u.Name}
	case RoutesUpdate:
		return RoutesUpdate{}
	}
	return u
}
