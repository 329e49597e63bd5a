package node

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/further"
)

// carriedSources are the further sources of endpoints while flows are carried over. The kernel's table has addresses, and not endpoints. If
// the node routes a further source to the endpoint that lists it, connections with that address are those of the endpoint.
// Others may have connections with any other one.
type carriedSources struct {
	listed  map[uint32][]netip.Prefix // by interface
	numbers map[string]uint32         // of these interfaces
	routed  *further.Routed           // nil: no endpoint lists any
}

func newCarriedSources(listed map[uint32][]netip.Prefix) (*carriedSources, error) {
	c := &carriedSources{listed: listed, numbers: map[string]uint32{}}
	if len(listed) == 0 {
		return c, nil
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list interfaces, to know whose flows are carried over: %w", err)
	}
	var list []further.Listed
	for _, i := range interfaces {
		for _, p := range listed[uint32(i.Index)] {
			list = append(list, further.Listed{Prefix: p, Interface: i.Name})
			c.numbers[i.Name] = uint32(i.Index)
		}
	}
	routes, err := attach.RoutesOut(attach.WatchOptions{}, further.Interfaces(list))
	if err != nil {
		return nil, err
	}
	c.routed = further.New(list, routes)
	return c, nil
}

// owner returns the interface of the endpoint that lists an address and has it by the node's route; 0: none.
func (c *carriedSources) owner(a netip.Addr) uint32 { return c.numbers[c.routed.Interface(a)] }

// stray reports whether an endpoint sends from an address that the node routes elsewhere.
func (c *carriedSources) stray(ifindex uint32, a netip.Addr) bool {
	return slices.ContainsFunc(c.listed[ifindex], func(p netip.Prefix) bool { return p.Contains(a) }) && c.owner(a) != ifindex
}
