package dataplane

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/attach"
	"github.com/margay-project/margay/pkg/compile"
	"github.com/margay-project/margay/pkg/model"
)

// Programming endpoints: putting into the kernel what the plan has bound, and following interfaces that come, go, and
// come again under another number.

// observe takes note of interfaces that changed and of the node's addresses.
func (d *BPF) observe() {
	d.compiler.HostAddrs(d.host.Addrs())
	d.interfaces = d.host.Interfaces()
	touched := d.host.Touched()
	d.reprepare(touched)
	for id, ep := range d.bound {
		if ep.ensured != 0 && slices.Contains(touched, ep.ensured) {
			ep.ensured = 0
			d.dirty[id] = true
		}
		if ep.policy != nil && d.interfaces[ep.policy.Iface] != ep.ifindex {
			d.dirty[id] = true
		}
	}
}

// update writes the endpoints that are in the kernel already: the order of the steps matters to them. Whatever else
// they need, and all others, is done by program. One that cannot be written is closed: the tables that it refers to are
// about to go.
func (d *BPF) update() error {
	errs := []error{d.leave()}
	for _, id := range d.dirtyIDs() {
		ep := d.bound[id]
		if ep == nil || ep.policy == nil || ep.ifindex == 0 {
			continue
		}
		if err := d.write(ep, ep.ifindex); err != nil {
			errs = append(errs, d.shut(ep, err))
		}
	}
	return errors.Join(errs...)
}

// attach programs every endpoint that needs it. What fails there is said and tried again at the end of each Apply: the
// other endpoints need not wait for it.
func (d *BPF) attach() error {
	_ = d.program()
	return nil
}

// program programs every endpoint that needs it.
func (d *BPF) program() error {
	// First those that leave an interface: it may be another endpoint's by now.
	errs := []error{d.leave()}
	for _, id := range d.dirtyIDs() {
		ep := d.bound[id]
		if ep == nil || ep.policy == nil {
			delete(d.dirty, id)
			continue
		}
		if _, ok := d.words(ep); !ok {
			continue // the compiler knows of it, or the plan has not got that far
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
// wakes us; until we are done with it the interface is closed (D-18). Its policy comes first if it is there already:
// that does not depend on what is attached.
func (d *BPF) programOne(ep *endpoint) error {
	ifindex := d.interfaces[ep.policy.Iface]
	if ifindex == 0 {
		return nil
	}
	if why := d.out.closed[ep.policy.ID]; why != "" {
		return errors.New(why)
	}
	if ep.ifindex == ifindex || len(d.older) > 0 {
		if err := d.write(ep, ifindex); err != nil {
			return err
		}
	}
	if ep.ensured != ifindex {
		if d.leaving[ifindex] { // another endpoint's so far
			if err := d.maps.ForgetDrops(ifindex); err != nil {
				return err
			}
			delete(d.leaving, ifindex)
		}
		err := d.host.Ensure(ep.policy.Iface, ifindex)
		if errors.Is(err, attach.ErrGone) {
			return nil // we are about to be told
		}
		if err != nil {
			return err
		}
		delete(d.prepared, ifindex)
		ep.ensured = ifindex
		d.peerless[ep.policy.ID] = true
		if ep.ifindex != ifindex {
			ep.peer = Peer{}
		}
	}
	if err := d.write(ep, ifindex); err != nil || ep.ifindex == ifindex {
		return err
	}
	ep.ifindex = ifindex
	return d.rewriteAddrs(ep.policy)
}

// write makes the kernel's entry of an endpoint what it shall be.
func (d *BPF) write(ep *endpoint, ifindex uint32) error {
	if err := d.giveShare(ep); err != nil {
		return err
	}
	entry, ok := d.entry(ep, ifindex)
	if !ok {
		return errors.New("its policy is not in the kernel yet")
	}
	return d.endpoints.Set(entry)
}

// entry is what the kernel shall have of an endpoint; not ok while one of its tables is not in the kernel.
func (d *BPF) entry(ep *endpoint, ifindex uint32) (entry bpf.Endpoint, ok bool) {
	words, ok := d.words(ep)
	entry = bpf.Endpoint{
		Ifindex: ifindex, Flags: bpf.EPReady, Ingress: words[model.Ingress], Egress: words[model.Egress], Id: ep.number,
		PeerIfindex: ep.peer.Ifindex, Mac: ep.peer.MAC, Mtu: ep.peer.MTU,
		Share: max(ep.share, 1) - 1,
	}
	addrsOf(ep.policy, &entry)
	return entry, ok
}

// flip publishes an endpoint's tables and generations, if it is in the kernel, and changes nothing else there: an
// earlier agent may have written it, and what this one knows of it may not be complete yet.
func (d *BPF) flip(ep *endpoint) error {
	if ep.ifindex == 0 {
		return nil
	}
	entry, ok := d.endpoints.Get(ep.ifindex)
	words, published := d.words(ep)
	if !ok || !published {
		return fmt.Errorf("interface %d: its endpoint or policy is not in the kernel", ep.ifindex)
	}
	entry.Ingress, entry.Egress = words[model.Ingress], words[model.Egress]
	return d.endpoints.Set(entry)
}

// addrsOf fills in the endpoint's own addresses: the first of each family directly, further ones by flag.
func addrsOf(policy *model.EndpointPolicy, entry *bpf.Endpoint) {
	seen4, seen6 := false, false
	for _, a := range policy.Addrs {
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
func (d *BPF) rewriteAddrs(policy *model.EndpointPolicy) error {
	var changes []compile.AddrChange
	for _, a := range policy.Addrs {
		if c, ok := d.owners[netip.PrefixFrom(a.WithZone(""), a.BitLen())]; ok && c.Endpoint == policy.ID {
			changes = append(changes, c)
		}
	}
	return d.writeAddrs(changes)
}

// withdraw closes an endpoint's interface, as far as it is there. The guard keeps it closed from here on if it is a
// workload's; detach does the rest.
func (d *BPF) withdraw(ep *endpoint) error {
	if ep.ifindex == 0 {
		return nil
	}
	if err := d.endpoints.Remove(ep.ifindex); err != nil {
		return err
	}
	d.leaving[ep.ifindex] = true
	d.prepared[ep.ifindex] = false // if it is there still, it is about to go
	ep.ifindex, ep.ensured = 0, 0
	return nil
}

// detach takes the programs off interfaces that are no endpoint's any more.
func (d *BPF) detach() error {
	var errs []error
	for ifindex := range d.leaving {
		if err := errors.Join(d.host.Detach(ifindex), d.maps.ForgetDrops(ifindex)); err != nil {
			errs = append(errs, fmt.Errorf("leave interface %d: %w", ifindex, err))
			continue
		}
		delete(d.leaving, ifindex)
	}
	return errors.Join(errs...)
}

// firstGuard closes workload interfaces that are no endpoint, from the moment the first plan has opened those that are.
// As attach, it holds nobody up.
func (d *BPF) firstGuard() error {
	d.ready = true
	_ = d.guard()
	return d.limitGrace()
}

func (d *BPF) guard() error {
	if !d.ready || d.guarded {
		return nil
	}
	err := d.host.Guard()
	d.guarded = err == nil
	return err
}
