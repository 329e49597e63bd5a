package compile

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// endpoint is one local endpoint.
type endpoint struct {
	id     model.EndpointID
	policy *model.EndpointPolicy // as it shall be; nil: it left
	folds  [2]*fold              // by direction; nil if policy is
	want   [2]*program           // nil if policy is, or if it could not be compiled and never could
	as     *model.EndpointPolicy // as it is in the kernel; nil: not there
	bound  [2]*program           // what judges it; nil if as is
}

func (e *endpoint) directionPolicy(d model.Direction) *model.DirectionPolicy {
	if d == model.Ingress {
		return e.policy.Ingress
	}
	return e.policy.Egress
}

func (c *Compiler) updateEndpoint(id model.EndpointID, policy *model.EndpointPolicy) {
	e := c.endpoints[id]
	if e == nil {
		if policy == nil {
			return
		}
		e = c.known(id, policy.Iface)
		c.endpoints[id] = e
	}
	was := e.policy
	e.policy = policy
	c.stale[id] = true
	for d := range e.folds {
		old := e.folds[d]
		e.folds[d] = nil
		if policy != nil {
			e.folds[d] = c.fold(e.directionPolicy(model.Direction(d)))
		}
		c.unfold(old)
	}
	c.claim(e, was)
}

// claim gives the endpoint its addresses. If several endpoints claim one address, the first by id has it.
func (c *Compiler) claim(e *endpoint, was *model.EndpointPolicy) {
	var old, now []netip.Prefix
	if was != nil {
		old = singles(was.Addrs)
	}
	if e.policy != nil {
		now = singles(e.policy.Addrs)
	}
	if was != nil && e.policy != nil && was.Iface == e.policy.Iface && slices.Equal(old, now) {
		return
	}
	for _, p := range slices.Compact(slices.SortedFunc(slices.Values(slices.Concat(old, now)), netip.Prefix.Compare)) {
		var first model.EndpointID
		ids := c.claims[p]
		if len(ids) > 0 {
			first = ids[0]
		}
		ids = slices.DeleteFunc(ids, func(id model.EndpointID) bool { return id == e.id })
		if slices.Contains(now, p) {
			ids = append(ids, e.id)
			slices.SortFunc(ids, model.EndpointID.Compare)
		}
		switch {
		case len(ids) == 0:
			delete(c.claims, p)
			c.classes.Disown(p)
			continue
		case ids[0] != first || first == e.id:
			c.classes.Own(p, ids[0])
		}
		c.claims[p] = ids
	}
}

func singles(addrs []netip.Addr) []netip.Prefix {
	var all []netip.Prefix
	for _, a := range addrs {
		if a.IsValid() {
			all = append(all, netip.PrefixFrom(a.WithZone(""), a.BitLen()))
		}
	}
	return all
}

// staleAll makes the next plan look at every endpoint.
func (c *Compiler) staleAll() {
	for id := range c.endpoints {
		c.stale[id] = true
	}
}

// staleLocal makes it look at the endpoints whose own addresses have joined or left sets.
func (c *Compiler) staleLocal() {
	some, all := c.classes.Local()
	if all {
		c.staleAll()
		return
	}
	for _, p := range some {
		for _, id := range c.claims[p] {
			c.stale[id] = true
		}
	}
}

// retarget finds out which programs the stale endpoints shall have, and returns those endpoints by id.
func (c *Compiler) retarget() []*endpoint {
	c.staleLocal()
	var all []*endpoint
	for id := range c.stale {
		all = append(all, c.endpoints[id])
	}
	clear(c.stale)
	slices.SortFunc(all, func(a, b *endpoint) int { return a.id.Compare(b.id) })
	for _, e := range all {
		c.target(e)
	}
	return all
}

func (c *Compiler) target(e *endpoint) {
	var want [2]*program
	l := c.localOf(e.policy)
	for d := range want {
		at := EndpointDirection{e.id, model.Direction(d)}
		delete(c.failed, at)
		if e.policy == nil {
			continue
		}
		prog, err := c.expandAll(e.folds[d], l)
		if err != nil {
			c.failed[at] = err
			if prog = e.bound[d]; errors.Is(err, ErrOwnAddresses) {
				prog = nil // what was enforced may have been for fewer addresses
			}
		}
		want[d] = prog
	}
	if want[0] == nil || want[1] == nil {
		want = [2]*program{}
	}
	for d, prog := range want {
		if prog != nil {
			prog.want++
		}
		if old := e.want[d]; old != nil {
			old.want--
		}
		e.want[d] = prog
	}
}
