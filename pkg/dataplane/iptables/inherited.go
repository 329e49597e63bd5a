package iptables

import (
	"errors"
	"maps"
	"net/netip"
)

// inherited has which interfaces are ready by the worlds in force, before packets go to the world of this agent.
type inherited struct {
	worlds []*inForce
	there  map[string]uint32 // the interfaces as of the last answer; nil: there is none
	ready  map[string]bool   // that answer
	failed bool              // the last attempt; the log has it

	allInside bool // no open endpoint is on an interface outside of the prefix, or was when this agent began to write
}

// inherit notes the worlds in force when this one was begun.
func (w *world) inherit(worlds []*inForce) { w.inherited.worlds = worlds }

// note notes an answer, or that there is none. It reports whether the failure is a new one.
func (i *inherited) note(there map[string]uint32, ready map[string]bool, err error) (fails bool) {
	fails = err != nil && !i.failed
	i.failed = err != nil
	if i.failed {
		there, ready = nil, nil
	}
	i.there, i.ready = there, ready
	return fails
}

// Ready implements dataplane.Dataplane. Sets know interfaces by name only, so an interface is ready if it is there and the node routes each
// address that it has in the sets to it: a pod that was made again under its name has other addresses, or no routes yet. As long as
// interfaces do not change, the answer does not, until packets go to the world of this agent.
func (d *IPTables) Ready() map[string]bool {
	i, there := &d.state.world.inherited, d.kernel.Node.Interfaces()
	own := d.state.world.inForce
	if !own && i.there != nil && maps.Equal(i.there, there) {
		return maps.Clone(i.ready)
	}
	ready, err := d.readyOf(own, there)
	if i.note(there, ready, err) {
		d.log.Warn("which interfaces an earlier agent has left open is not known: files for the CNI plugin stay until policy is enforced", "err", err)
	}
	return maps.Clone(i.ready)
}

// readyOf returns the interfaces that are ready by the world of this agent, or else by those in force.
func (d *IPTables) readyOf(own bool, there map[string]uint32) (map[string]bool, error) {
	if d.kernel.Routes == nil {
		return nil, errors.New("routes to endpoints cannot be read")
	}
	owners := map[netip.Addr]string{}
	for k, open := range d.state.endpoints.open {
		if open {
			owners[k.Prefix.Addr()] = k.Interface
		}
	}
	if !own {
		e, err := readWorlds(d.state.world.inherited.worlds, d.kernel.Sets)
		if err != nil {
			return nil, err
		}
		owners = e.Locals
	}
	ready := map[string]bool{}
	for _, name := range owners {
		if there[name] != 0 {
			ready[name] = true
		}
	}
	routes, err := d.kernel.Routes(ready)
	if err != nil {
		return nil, err
	}
	routed := map[netip.Prefix]string{}
	for _, r := range routes {
		if _, known := routed[r.Prefix]; !known { // of several routes the kernel uses the first
			routed[r.Prefix] = r.Interface
		}
	}
	for addr, name := range owners {
		if routed[single(addr)] != name {
			delete(ready, name)
		}
	}
	return ready, nil
}
