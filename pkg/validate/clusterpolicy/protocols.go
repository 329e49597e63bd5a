package clusterpolicy

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/validate"
)

// portGroup has the ports of one rule that are of one protocol, or those by name, which are of any.
type portGroup struct {
	protocol *uint8
	numbers  []model.PortRange
	names    []string
}

// groups returns one group for each protocol, and one for the names. Without protocols: one that matches everything.
func (r rule) groups() ([]portGroup, *field.Error) {
	if len(r.protocols) == 0 {
		return []portGroup{{}}, nil
	}
	numbers := map[uint8][]model.PortRange{}
	var names []string
	for i, p := range r.protocols {
		at := r.path.Child("protocols").Index(i)
		if p.DestinationNamedPort != "" {
			names = append(names, p.DestinationNamedPort)
			continue
		}
		protocol, port, at := portOf(p, at)
		if port == nil {
			return nil, field.Required(at, "none of the fields known here is set")
		}
		ports, failure := portRange(port, at.Child("destinationPort"))
		if failure != nil {
			return nil, failure
		}
		numbers[protocol] = append(numbers[protocol], ports)
	}
	var groups []portGroup
	for _, protocol := range []uint8{model.ProtoTCP, model.ProtoUDP, model.ProtoSCTP} {
		if ranges := numbers[protocol]; len(ranges) > 0 {
			groups = append(groups, portGroup{protocol: &protocol, numbers: validate.MergePorts(ranges)})
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		groups = append(groups, portGroup{names: slices.Compact(names)})
	}
	return groups, nil
}

// portOf returns the port of a protocol, nil if there is none, and the path of the protocol's field.
func portOf(p v1alpha2.ClusterNetworkPolicyProtocol, path *field.Path) (uint8, *v1alpha2.Port, *field.Path) {
	switch {
	case p.TCP != nil:
		return model.ProtoTCP, p.TCP.DestinationPort, path.Child("tcp")
	case p.UDP != nil:
		return model.ProtoUDP, p.UDP.DestinationPort, path.Child("udp")
	case p.SCTP != nil:
		return model.ProtoSCTP, p.SCTP.DestinationPort, path.Child("sctp")
	}
	return 0, nil, path
}

func portRange(p *v1alpha2.Port, path *field.Path) (model.PortRange, *field.Error) {
	if p.Range == nil {
		if failure := portNumber(p.Number, path.Child("number")); failure != nil {
			return model.PortRange{}, failure
		}
		return model.PortRange{Lo: uint16(p.Number), Hi: uint16(p.Number)}, nil
	}
	at := path.Child("range")
	if failure := portNumber(p.Range.Start, at.Child("start")); failure != nil {
		return model.PortRange{}, failure
	}
	if failure := portNumber(p.Range.End, at.Child("end")); failure != nil {
		return model.PortRange{}, failure
	}
	if p.Range.Start >= p.Range.End {
		return model.PortRange{}, field.Invalid(at, fmt.Sprintf("%d-%d", p.Range.Start, p.Range.End), "start must be less than end")
	}
	return model.PortRange{Lo: uint16(p.Range.Start), Hi: uint16(p.Range.End)}, nil
}

func portNumber(n int32, path *field.Path) *field.Error {
	if n < 1 || n > 65535 {
		return field.Invalid(path, n, "must be in 1-65535")
	}
	return nil
}
