package iptables

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/ipsets"
)

// inside returns an error while policy is in force on interfaces outside of the prefix, by the worlds in force or by the dataplane before this
// one: packets of these interfaces would pass all chains of this world. Nothing is changed then. Interfaces that were only closed do not count:
// they are open under the present prefix.
func (i *inherited) inside(prefix string, kernel *Kernel) error {
	if i.allInside {
		return nil
	}
	enforced, err := i.enforced(kernel)
	if err != nil {
		return fmt.Errorf("find out whether an agent with another prefix enforces policy here: %w", err)
	}
	if err := dataplane.Inside(prefix, enforced, kernel.Present); err != nil {
		return err
	}
	i.allInside = true
	return nil
}

// enforced are the interfaces that have open endpoints.
func (i *inherited) enforced(kernel *Kernel) (map[string]bool, error) {
	names := map[string]bool{}
	note := func(_ netip.Addr, iface string) {
		if iface != "" {
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
	return names, nil
}
