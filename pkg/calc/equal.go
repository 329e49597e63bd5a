package calc

import (
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// equalRules reports whether two lists of rules say the same, field by field. The result is that of reflect.DeepEqual,
// at a tenth of its cost: with ten thousand rules that is a good part of a policy change.
func equalRules(a, b []model.MatchRule) bool {
	return slices.EqualFunc(a, b, func(a, b model.MatchRule) bool {
		return a.Action == b.Action && a.Index == b.Index && a.IPVersion == b.IPVersion && a.Unmatchable == b.Unmatchable && a.Name == b.Name &&
			equalValues(a.Protocol, b.Protocol) && equalValues(a.NotProtocol, b.NotProtocol) &&
			equalICMP(a.ICMP, b.ICMP) && equalICMP(a.NotICMP, b.NotICMP) &&
			equalSides(&a.Source, &b.Source) && equalSides(&a.Destination, &b.Destination)
	})
}

// equalValues compares the values behind two pointers; nil equals nil only.
func equalValues[T comparable](a, b *T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func equalICMP(a, b *model.ICMPMatch) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Type == b.Type && equalValues(a.Code, b.Code)
}

func equalSides(a, b *model.Side) bool {
	return slices.Equal(a.In, b.In) && slices.Equal(a.NotIn, b.NotIn) && slices.Equal(a.Nets, b.Nets) &&
		slices.Equal(a.NotNets, b.NotNets) && equalPorts(a.Ports, b.Ports) && equalPorts(a.NotPorts, b.NotPorts)
}

func equalPorts(a, b *model.PortMatch) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.Equal(a.Ranges, b.Ranges) && slices.Equal(a.Named, b.Named)
}
