package validate

import (
	"net/netip"

	"github.com/margay-project/margay/pkg/model"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// EndpointSlice returns the backends of a Service that the slice holds: every address, ready or not, and every port
// that has a number (semantics §7). The Slice of the update is nil for one that belongs to no Service, or whose
// addresses are host names.
func EndpointSlice(s *discoveryv1.EndpointSlice) (model.EndpointSliceUpdate, []Problem, bool) {
	update := model.EndpointSliceUpdate{ID: model.EndpointSliceID{Namespace: s.Namespace, Name: s.Name}}
	service := s.Labels[discoveryv1.LabelServiceName]
	if service == "" || s.AddressType == discoveryv1.AddressTypeFQDN {
		return update, nil, true
	}
	rep := Report{ref: Ref{Kind: "EndpointSlice", Namespace: s.Namespace, Name: s.Name}}
	slice := &model.EndpointSlice{Service: model.ServiceKey{Namespace: s.Namespace, Name: service}}
	var addrs distinct[netip.Addr]
	var numbered distinct[model.NamedPort]
	endpoints, ports := field.NewPath("endpoints"), field.NewPath("ports")
	for i, e := range s.Endpoints {
		for j, a := range e.Addresses {
			rep.addAddr(&addrs, endpoints.Index(i).Child("addresses").Index(j).String(), a)
		}
	}
	for i, p := range s.Ports {
		if p.Port == nil {
			continue
		}
		rep.addPort(&numbered, ports.Index(i).String(), value(p.Name), value(p.Protocol), *p.Port)
	}
	slice.Addrs, slice.Ports = addrs.list, numbered.list
	update.Slice = slice
	return update, rep.Done(), true
}

// value is what p points to, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
