package model

import "net/netip"

// Update is one change to one datastore object. A nil value means absent: the object was deleted. The sender does not
// promise that it was ever present, nor that the value differs from the last one. Only the types in this file
// implement it.
type Update interface {
	isUpdate()
}

type (
	// EndpointUpdate reports the current state of one endpoint, local or remote.
	EndpointUpdate struct {
		ID       EndpointID
		Endpoint *Endpoint
	}
	// ProfileUpdate reports the current state of one profile.
	ProfileUpdate struct {
		Name    string
		Profile *Profile
	}
	// TierUpdate reports the current state of one tier. Absence of a built-in tier restores its built-in definition.
	TierUpdate struct {
		Name string
		Tier *Tier
	}
	// PolicyUpdate reports the current state of one policy.
	PolicyUpdate struct {
		Key    PolicyKey
		Policy *Policy
	}
	// NetworkSetUpdate reports the current state of one network set.
	NetworkSetUpdate struct {
		ID  NetworkSetID
		Set *NetworkSet
	}
	// ServiceUpdate reports the current state of one Service.
	ServiceUpdate struct {
		Key     ServiceKey
		Service *Service
	}
	// EndpointSliceUpdate reports the current state of one EndpointSlice.
	EndpointSliceUpdate struct {
		ID    EndpointSliceID
		Slice *EndpointSlice
	}
	// NodeUpdate reports the current state of one node.
	NodeUpdate struct {
		Name string
		Node *Node
	}
	// ConfigurationUpdate reports the current state of one configuration object.
	ConfigurationUpdate struct {
		Name          string
		Configuration *Configuration
	}
	// RoutesUpdate reports to which interfaces this node delivers single addresses, all of them: the name of the
	// interface by the address. It comes from the node and not from the datastore. Nil Routes: that is not known, and
	// what endpoints claim is believed.
	RoutesUpdate struct {
		Routes map[netip.Addr]string
	}
	// InSync says that every object of the first full snapshot has been sent. Sent at least once; repeats are harmless.
	InSync struct{}
)

func (EndpointUpdate) isUpdate()      {}
func (ProfileUpdate) isUpdate()       {}
func (TierUpdate) isUpdate()          {}
func (PolicyUpdate) isUpdate()        {}
func (NetworkSetUpdate) isUpdate()    {}
func (ServiceUpdate) isUpdate()       {}
func (EndpointSliceUpdate) isUpdate() {}
func (NodeUpdate) isUpdate()          {}
func (ConfigurationUpdate) isUpdate() {}
func (RoutesUpdate) isUpdate()        {}
func (InSync) isUpdate()              {}
