package dataplane

import (
	"errors"
	"fmt"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/model"
)

// Programming endpoints: putting into the kernel what the plan has bound, and following interfaces that come, go, and
// come again under another number.

// observe takes note of interfaces that changed and of the node's addresses.
func (d *BPF) observe() {
	d.compiler.HostAddrs(d.host.Addrs())
	d.interfaces = d.host.Interfaces()
	for id, ep := range d.bound {
		if ep.policy != nil && d.interfaces[ep.policy.Iface] != ep.ifindex {
			d.dirty[id] = true
		}
	}
}

// programKnown writes the endpoints that are in the kernel already and whose interface is unchanged.
func (d *BPF) programKnown() error {
	return d.programAll(func(ep *endpoint) bool { return ep.ifindex != 0 && d.interfaces[ep.policy.Iface] == ep.ifindex })
}

// program writes every endpoint that needs it. What fails is tried again with the next Apply; the others go on.
func (d *BPF) program() error {
	return d.programAll(func(*endpoint) bool { return true })
}

func (d *BPF) programAll(wanted func(*endpoint) bool) error {
	// First those that leave an interface: it may be another endpoint's by now.
	errs := []error{d.leave()}
	for _, id := range d.dirtyIDs() {
		ep := d.bound[id]
		if ep == nil || ep.policy == nil {
			delete(d.dirty, id)
			continue
		}
		if !wanted(ep) {
			continue
		}
		ep.failure = ""
		if err := d.programOne(ep); err != nil {
			ep.failure = err.Error()
			errs = append(errs, fmt.Errorf("endpoint %s on %s: %w", id, ep.policy.Iface, err))
			continue
		}
		delete(d.dirty, id)
	}
	return errors.Join(errs...)
}

// leave withdraws endpoints from interfaces that are theirs no more.
func (d *BPF) leave() error {
	var errs []error
	for _, id := range d.dirtyIDs() {
		ep := d.bound[id]
		if ep == nil || ep.policy == nil || ep.ifindex == 0 || ep.ifindex == d.interfaces[ep.policy.Iface] {
			continue
		}
		if err := d.withdraw(ep); err != nil {
			errs = append(errs, fmt.Errorf("endpoint %s: %w", id, err))
		}
	}
	return errors.Join(errs...)
}

func (d *BPF) dirtyIDs() []model.EndpointID {
	ids := make([]model.EndpointID, 0, len(d.dirty))
	for id := range d.dirty {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, model.EndpointID.Compare)
	return ids
}

// programOne brings one endpoint into the kernel. Without its interface there is nothing to do until that comes, which
// wakes us; until we are done with it the interface is closed (D-18).
func (d *BPF) programOne(ep *endpoint) error {
	ifindex := d.interfaces[ep.policy.Iface]
	if ifindex == 0 {
		return nil
	}
	words, ok := d.words(ep)
	if !ok {
		return errors.New("its policy is not in the kernel yet")
	}
	if ep.ensured != ifindex {
		if err := d.host.Ensure(ep.policy.Iface, ifindex); err != nil {
			return err
		}
		ep.peer, _ = d.host.Peer(ifindex)
		ep.ensured = ifindex
	}
	entry := bpf.Endpoint{
		Ifindex: ifindex, Flags: bpf.EPReady, Ingress: words[model.Ingress], Egress: words[model.Egress], Id: ep.number,
		PeerIfindex: ep.peer.Ifindex, Mac: ep.peer.MAC, Mtu: ep.peer.MTU,
	}
	d.addrsOf(ep, &entry)
	if err := d.endpoints.Set(entry); err != nil {
		return err
	}
	if ep.ifindex == ifindex {
		return nil
	}
	ep.ifindex = ifindex
	return d.rewriteAddrs(ep.policy.ID)
}

// addrsOf fills in the endpoint's own addresses: the first of each family directly, further ones by flag.
func (d *BPF) addrsOf(ep *endpoint, entry *bpf.Endpoint) {
	seen4, seen6 := false, false
	for _, a := range ep.policy.Addrs {
		switch {
		case a.Is4() && !seen4:
			entry.Addr4, seen4 = a.As4(), true
		case a.Is6() && !seen6:
			entry.Addr6, seen6 = a.As16(), true
		default:
			entry.Flags |= bpf.EPMoreAddrs
		}
	}
}

// rewriteAddrs writes an endpoint's addresses again: its interface has another number now.
func (d *BPF) rewriteAddrs(id model.EndpointID) error {
	for _, c := range d.owners {
		if c.Endpoint == id {
			d.setAddr(c)
		}
	}
	return d.writeAddrs(nil)
}

// withdraw closes an endpoint's interface, as far as it is there.
func (d *BPF) withdraw(ep *endpoint) error {
	if ep.ifindex == 0 {
		return nil
	}
	if err := d.endpoints.Remove(ep.ifindex); err != nil {
		return err
	}
	ifindex := ep.ifindex
	ep.ifindex, ep.ensured = 0, 0
	// The guard keeps the interface closed from here on if it is a workload's.
	return errors.Join(d.host.Detach(ifindex), d.maps.ForgetDrops(ifindex))
}

// guard closes workload interfaces that are no endpoint, from the moment the first plan has opened those that are.
func (d *BPF) guard() error { return d.host.Guard() }
