package verify

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/internal/policytest"
	"github.com/margay-project/margay/pkg/model"
)

// Two ports that a rule matches by name are two kinds, whether or not the kernel tells them apart: they have different addresses.
func TestPortsByNameOfTheRemoteSideAreKindsOfTheirOwn(t *testing.T) {
	tcp := model.ProtoTCP
	p := policytest.OnePolicy(model.Egress, model.MatchRule{Action: model.Allow, Protocol: &tcp, Destination: model.Side{Ports: &model.PortMatch{
		Named: []model.PortSet{{Protocol: tcp, Port: 80, Set: "s1"}, {Protocol: tcp, Port: 90, Set: "s2"}}}}})
	seen := map[uint16]bool{}
	for _, c := range newDemand(p).columns(allowing{}, 4, place{addr: policytest.Own4, in: func(model.SetID) bool { return false },
		net: func(netip.Prefix) bool { return false }}) {
		if c.packet.Protocol == tcp {
			seen[c.packet.DstPort] = true
		}
	}
	for _, port := range []uint16{0, 80, 90} {
		if !seen[port] {
			t.Errorf("port %d is in no kind: %v", port, seen)
		}
	}
}
