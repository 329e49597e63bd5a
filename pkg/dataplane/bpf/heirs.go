package bpf

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// heirs has connections of former owners of addresses removed from the kernel's own table. Programs know whose a flow is. But for TCP in mid-flow,
// and for packets to Services and to the node, they ask that table, which knows addresses and not pods: the next pod with an address could answer
// what was asked of the former one, and be reached by answers to what that one has asked. So an endpoint is not opened on an interface before
// connections of the former owners of its addresses are removed, and if it is open already does not have the address before.
//
// The table is read beside all other work, once for all addresses that have come by then, in half of the time at most.
type heirs struct {
	tracks func() bool // the kernel has a table of connections
	// owners are the interfaces that have addresses, or have had them last: an address that comes back brings its flows.
	owners map[netip.Addr]uint32
	former former              // what is known of earlier agents
	due    map[netip.Addr]bool // addresses that wait for the next reading
	under  map[netip.Addr]bool // those of the reading under way
	ends   chan error          // delivers how that has ended; nil: none is under way
	began  time.Time
	rests  time.Time // until then no reading begins
}

// failureRest is how long no reading begins after one that has failed, at least.
const failureRest = time.Second

func newHeirs(tracks func() bool) *heirs {
	return &heirs{tracks: tracks, owners: map[netip.Addr]uint32{}, due: map[netip.Addr]bool{}, former: former{asked: map[netip.Addr]bool{}}}
}

// resume notes the owners that earlier agents have left. An agent that has ended before it was guarded has not had time to note all owners, so an
// address without one says nothing then, nor while another dataplane judges: earlier is zero. has reports whether the endpoint of an interface is in
// force and has an address; interfaces are those that there are.
func (h *heirs) resume(earlier Earlier, interfaces map[string]uint32, owners map[netip.Addr]uint32, has func(ifindex uint32, a netip.Addr) bool) {
	h.former.resume(earlier, interfaces)
	for a, ifindex := range owners {
		if has(ifindex, a) {
			h.owners[a] = ifindex
		} else {
			h.change(a)
		}
	}
}

// follow notes, after resume, that another dataplane judges, which knows whose addresses are: its flows are carried over without those of former
// owners. An earlier agent may have ended in a switch, before it had made endpoints of all addresses. So an address without an owner says nothing.
func (h *heirs) follow() {
	h.due = map[netip.Addr]bool{}
	h.former.resume(Earlier{}, nil)
}

// change notes that an address has another owner from here on, or none. If the kernel tracks no connections there are none of the former one.
func (h *heirs) change(a netip.Addr) {
	delete(h.owners, a)
	if h.tracks() {
		h.due[a] = true
	}
}

// lost notes that an endpoint has left an interface.
func (h *heirs) lost(ifindex uint32) {
	delete(h.former.others, ifindex)
	for a, owner := range h.owners {
		if owner == ifindex {
			h.release(a)
		}
	}
}

// left notes that an endpoint with these addresses has left.
func (h *heirs) left(addrs []netip.Addr) {
	for _, a := range addrs {
		h.release(a)
	}
}

// release notes that an address has no owner any more.
func (h *heirs) release(a netip.Addr) {
	if h.owners[a] != 0 {
		h.change(a)
	}
}

// claim notes that an endpoint is to be opened on an interface: its addresses may have connections of former owners.
func (h *heirs) claim(ifindex uint32, addrs []netip.Addr) {
	for _, a := range addrs {
		owner := h.owners[a]
		if owner == ifindex || owner == 0 && !h.former.asks(ifindex, a) {
			continue
		}
		h.change(a)
	}
}

// wait reports whether some of the addresses of an endpoint may have such connections.
func (h *heirs) wait(addrs []netip.Addr) bool {
	return slices.ContainsFunc(addrs, func(a netip.Addr) bool { return h.due[a] || h.under[a] })
}

// without returns the addresses that have none.
func (h *heirs) without(addrs []netip.Addr) []netip.Addr {
	if !h.wait(addrs) {
		return addrs
	}
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return h.wait([]netip.Addr{a}) })
}

// got notes that an endpoint has addresses on an interface.
func (h *heirs) got(ifindex uint32, addrs []netip.Addr) {
	for _, a := range h.without(addrs) {
		h.owners[a] = ifindex
		delete(h.former.asked, a)
	}
}

// ended notes how the reading under way has ended, if it has. Its addresses are due again if it has failed. complete: the first plan is in
// force.
func (h *heirs) ended(host Host, complete bool) error {
	if complete {
		h.former.complete(h.tracks())
	}
	select {
	case err := <-h.ends: // nil: never
		rest := time.Since(h.began)
		if err != nil {
			rest = max(rest, failureRest)
		}
		h.rests = time.Now().Add(rest)
		time.AfterFunc(rest, func() { host.Nudge(0) })
		return h.end(err)
	default:
		return nil
	}
}

// end notes the end of the reading under way.
func (h *heirs) end(err error) error {
	if err != nil {
		maps.Copy(h.due, h.under)
	}
	h.former.surveyed(err == nil)
	h.ends, h.under = nil, nil
	return err
}

// begin begins to remove the connections of addresses that are due. quiesce delivers when no packet is left that programs have let pass for a
// former owner.
func (h *heirs) begin(host Host, quiesce func() <-chan error) {
	if h.ends != nil || len(h.due) == 0 && !h.former.due || time.Now().Before(h.rests) {
		return
	}
	others := h.former.survey()
	of, passed, ends := h.due, quiesce(), make(chan error, 1)
	h.under, h.due, h.ends, h.began = of, map[netip.Addr]bool{}, ends, time.Now()
	go func() {
		err := <-passed
		if err == nil {
			err = host.EndConnections(of, others)
		}
		if err != nil {
			err = fmt.Errorf("end connections of former owners of %d addresses: %w", len(of), err)
		}
		ends <- err
		host.Nudge(0)
	}()
}

// close ends the connections of all addresses that are due, without a rest, and of those that their last owners do not have any more. The next
// agent does not know that these addresses had owners. A pod that gets one of them later would have the connections of the former pod.
func (h *heirs) close(host Host, quiesce func() <-chan error, has func(ifindex uint32, a netip.Addr) bool) error {
	if h.ends != nil {
		_ = h.end(<-h.ends) // what it has failed to end is due
	}
	for a, ifindex := range h.owners {
		if !has(ifindex, a) {
			h.change(a)
		}
	}
	h.rests, h.former.due = time.Time{}, false
	if h.begin(host, quiesce); h.ends == nil {
		return nil
	}
	return h.end(<-h.ends)
}
