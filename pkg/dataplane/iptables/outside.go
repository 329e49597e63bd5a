package iptables

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/ipsets"
)

// inside returns an error while policy is in force on interfaces outside of the prefix, by the worlds in force or by the dataplane before this
// one: packets of these interfaces would pass all chains of this world. Either prefix may be the wrong one. The present one is taken for it, and
// nothing is changed. Interfaces that were only closed do not count: they are open under the present prefix.
func (i *inherited) inside(prefix string, kernel *Kernel) error {
	if i.allInside {
		return nil
	}
	outside, err := i.outside(prefix, kernel)
	if err != nil {
		return fmt.Errorf("find out whether an agent with another prefix enforces policy here: %w", err)
	}
	if i.allInside = len(outside) == 0; i.allInside {
		return nil
	}
	return dataplane.OtherPrefix(prefix, "enforces", slices.Collect(maps.Keys(outside)))
}

// outside are the interfaces without the prefix that have open endpoints and are there. One that is there has routes.
func (i *inherited) outside(prefix string, kernel *Kernel) (map[string]bool, error) {
	names := map[string]bool{}
	note := func(_ netip.Addr, iface string) {
		if iface != "" && !strings.HasPrefix(iface, prefix) {
			names[iface] = true
		}
	}
	for _, w := range i.worlds {
		for family, world := range w.names {
			if err := listLocals(kernel.Sets, family, world, note); err != nil && !errors.Is(err, ipsets.ErrNoSet) { // without it no endpoint is open
				return nil, err
			}
		}
	}
	for a, iface := range formerOwners(*kernel) {
		note(a, iface)
	}
	if len(names) == 0 || kernel.Routes == nil {
		return names, nil
	}
	routes, err := kernel.Routes(names)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, r := range routes {
		if names[r.Interface] {
			there[r.Interface] = true
		}
	}
	return there, nil
}
