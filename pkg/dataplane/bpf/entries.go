package bpf

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/model"
)

// entries are what the kernel has of endpoints, by interface: an entry each, with those of staged policies, further sources and shares
// that belong to it. They follow the record of an endpoint, and do not change it, but for its share.
type entries struct {
	kernel  *kernel
	tables  *tables
	staged  *stagedPolicies
	sources *sources
	shares  flowShares
	roster  *roster
}

// write brings the kernel's entry of an endpoint to its desired value.
func (e *entries) write(ep *endpoint, ifindex uint32) error {
	if err := e.shares.assign(ep, e.roster.bound); err != nil {
		return err
	}
	e.staged.write(ep.policy.ID, ifindex)
	if err := e.sources.write(ifindex, ep.policy.Sources); err != nil {
		return err
	}
	entry, ok := e.desired(ep, ifindex)
	if !ok {
		return errors.New("its policy is not in the kernel yet")
	}
	if err := e.kernel.endpoints.Set(entry); err != nil {
		return err
	}
	e.kernel.heirs.got(ifindex, ep.policy.Addrs)
	return nil
}

// desired is what the kernel is to have of an endpoint; not ok while one of its tables is not in the kernel.
func (e *entries) desired(ep *endpoint, ifindex uint32) (entry bpf.Endpoint, ok bool) {
	words, ok := e.words(ep)
	entry = bpf.Endpoint{
		Ifindex: ifindex, Id: ep.number,
		Flags:   bpf.EPReady | e.kernel.other.flags() | e.staged.flags(ep.policy.ID, ifindex) | e.sources.flags(ifindex),
		Ingress: words[model.Ingress], Egress: words[model.Egress],
		PeerIfindex: ep.peer.Ifindex, Mac: ep.peer.MAC, Mtu: ep.peer.MTU,
		Share: max(ep.share, 1) - 1,
	}
	if e.kernel.other.judges() {
		entry.PeerIfindex = 0 // the other dataplane is to see all packets
	}
	addrsOf(e.kernel.heirs.without(ep.policy.Addrs), &entry)
	if e.kernel.heirs.wait(ep.policy.Addrs) {
		entry.Flags &^= bpf.EPMoreAddrs // by that flag it would have all that the maps say are its own
	}
	return entry, ok
}

// addrsOf fills in the endpoint's own addresses: the first of each family directly, further ones by flag.
func addrsOf(addrs []netip.Addr, entry *bpf.Endpoint) {
	seen4, seen6 := false, false
	for _, a := range addrs {
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

// words are the endpoint's two policy words; not ok while one of its tables is not in the kernel.
func (e *entries) words(ep *endpoint) (words [2]uint64, ok bool) {
	for dir := range words {
		slot := e.tables.slot(ep.tables[dir])
		if slot == 0 || ep.gens[dir] == 0 {
			return words, false
		}
		words[dir] = bpfmaps.PolicyWord(slot, ep.gens[dir])
	}
	return words, true
}

// hasAddr reports whether an endpoint in the kernel has one of the addresses that the maps say are its own. It has not while connections of a
// former owner are removed.
func hasAddr(e bpf.Endpoint, a netip.Addr) bool {
	return e.Flags&bpf.EPMoreAddrs != 0 || a.Is4() && a.As4() == e.Addr4 || a.Is6() && a.As16() == e.Addr6
}

// inForce reports whether the endpoint of an interface is in force and has an address.
func (e *entries) inForce(ifindex uint32, a netip.Addr) bool {
	entry, ok := e.kernel.endpoints.Get(ifindex)
	if !ok || entry.Flags&bpf.EPReady == 0 || !hasAddr(entry, a) {
		return false
	}
	for _, ep := range e.roster.bound {
		if ep.ifindex == ifindex && ep.policy != nil {
			return slices.Contains(ep.policy.Addrs, a)
		}
	}
	return true // an earlier agent's
}

// flip publishes the tables and generations of an endpoint that is in the kernel, and changes nothing else there: an earlier agent may
// have written it, and this one's record of it may not be complete yet.
func (e *entries) flip(ep *endpoint) error {
	entry, ok := e.kernel.endpoints.Get(ep.ifindex)
	words, published := e.words(ep)
	if !ok || !published {
		return fmt.Errorf("interface %d: its endpoint or policy is not in the kernel", ep.ifindex)
	}
	entry.Ingress, entry.Egress = words[model.Ingress], words[model.Egress]
	return e.kernel.endpoints.Set(entry)
}

// remove removes the entry of an interface, and those that belong to it.
func (e *entries) remove(ifindex uint32) error {
	if err := e.kernel.endpoints.Remove(ifindex); err != nil {
		return err
	}
	e.staged.remove(ifindex)
	return e.sources.narrow(ifindex, nil)
}

// readdressed reports whether an endpoint that is in the kernel is about to get other addresses than it has there.
func (e *entries) readdressed(ep *endpoint, now *model.EndpointPolicy) bool {
	was, ok := e.kernel.endpoints.Get(ep.ifindex)
	if !ok || ep.ifindex == 0 {
		return false
	}
	if ep.policy != nil && !slices.Equal(ep.policy.Addrs, now.Addrs) {
		return true
	}
	var want bpf.Endpoint
	addrsOf(now.Addrs, &want)
	return was.Addr4 != want.Addr4 || was.Addr6 != want.Addr6
}

// hold adds the slots that entries in the kernel refer to, those of staged policies included.
func (e *entries) hold(held map[uint32]bool) {
	for _, entry := range e.kernel.endpoints.List() {
		for _, word := range []uint64{entry.Ingress, entry.Egress} {
			slot, _ := bpfmaps.SplitPolicyWord(word)
			held[slot] = true
		}
	}
	e.staged.hold(held)
}
