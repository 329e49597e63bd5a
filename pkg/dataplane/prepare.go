package dataplane

// Attaching a program takes the kernel a grace period of RCU, 5 to 20 ms on a busy machine, and it attaches one at a
// time; an interface has two. When many pods come at once, that is nearly all there is to wait for. A pod's interface is
// there before its address is known, so it gets its programs then: they let nothing pass before the endpoint is
// programmed, and neither does the guard (D-18).

// attachAhead attaches programs to one interface that is no endpoint's yet, and wakes the loop if there may be more: what
// is to be enforced waits for one at most. What fails is left to the endpoint, if there ever is one.
func (d *BPF) attachAhead() {
	if !d.guarded || len(d.older) > 0 {
		return // what is enforced comes first
	}
	taken := map[string]bool{}
	for _, ep := range d.bound {
		if ep.policy != nil {
			taken[ep.policy.Iface] = true
		}
	}
	next := ""
	for name, ifindex := range d.interfaces {
		_, done := d.prepared[ifindex]
		if !done && !taken[name] && !d.leaving[ifindex] && (next == "" || name < next) {
			next = name
		}
	}
	if next == "" {
		return
	}
	ifindex := d.interfaces[next]
	d.prepared[ifindex] = d.host.Ensure(next, ifindex) == nil
	d.host.Nudge()
}

// reprepare takes note of prepared interfaces that have vanished, whose links are to be removed, or may be others now.
func (d *BPF) reprepare(touched []uint32) {
	if len(d.prepared) == 0 {
		return
	}
	there := make(map[uint32]bool, len(d.interfaces))
	for _, ifindex := range d.interfaces {
		there[ifindex] = true
	}
	for ifindex, attached := range d.prepared {
		if !there[ifindex] {
			delete(d.prepared, ifindex)
			if attached {
				d.leaving[ifindex] = true
			}
		}
	}
	for _, ifindex := range touched {
		if d.prepared[ifindex] {
			delete(d.prepared, ifindex)
		}
	}
}

// meetPeers finds out about the pods' sides of interfaces, which the shortcut needs and nothing else. Asking the kernel
// may take longer than all that an endpoint needs, while interfaces come and go.
func (d *BPF) meetPeers() {
	for id := range d.peerless {
		ep := d.bound[id]
		if ep != nil && ep.policy != nil && (ep.ifindex == 0 || ep.ensured != ep.ifindex) {
			continue // not yet
		}
		delete(d.peerless, id)
		if ep == nil || ep.policy == nil {
			continue
		}
		if peer, _ := d.host.Peer(ep.ifindex); peer != ep.peer {
			ep.peer = peer
			if d.write(ep, ep.ifindex) != nil { // Apply tries again and tells
				d.dirty[id] = true
				d.host.Nudge()
			}
		}
	}
}
