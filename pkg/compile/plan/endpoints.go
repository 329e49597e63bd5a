package plan

import (
	"errors"
	"slices"

	"github.com/margay-project/margay/pkg/model"
)

// endpoint is one local endpoint.
type endpoint struct {
	id      model.EndpointID
	desired desired
	applied applied
	prior   [2]*program // what judged it before the last plan, if that was another and is kept; see Withhold
}

// desired is how an endpoint is to be.
type desired struct {
	policy   *model.EndpointPolicy // nil: it left
	folds    [2]*fold              // by direction; nil if policy is
	programs [2]*program           // nil if policy is, or if it could not be compiled and never could
}

// applied is how an endpoint is in the kernel, once the last plan is written.
type applied struct {
	policy   *model.EndpointPolicy // nil: it is not there
	programs [2]*program           // what judges it; nil if policy is
}

func (e *endpoint) directionPolicy(d model.Direction) *model.DirectionPolicy {
	if d == model.Ingress {
		return e.desired.policy.Ingress
	}
	return e.desired.policy.Egress
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
	was := e.desired.policy
	e.desired.policy = policy
	c.unbar(id)
	c.stale[id] = true
	for d := range e.desired.folds {
		old := e.desired.folds[d]
		e.desired.folds[d] = nil
		if policy != nil {
			e.desired.folds[d] = c.fold(e.directionPolicy(model.Direction(d)))
		}
		c.unfold(old)
	}
	c.addrs.claim(id, was, policy)
}

// staleAll makes the next plan look at every endpoint.
func (c *Compiler) staleAll() {
	for id := range c.endpoints {
		c.stale[id] = true
	}
}

// staleLocal makes it look at the endpoints whose own addresses have joined or left sets.
func (c *Compiler) staleLocal() {
	some, all := c.addrs.moved()
	if all {
		c.staleAll()
		return
	}
	for _, id := range some {
		c.stale[id] = true
	}
}

// retarget finds out which programs the stale endpoints are to have, and returns those endpoints by id. What all of them
// had is given back first, so that none is refused for what another is about to leave. Those that
// are enforced come first, and those that were refused before last.
func (c *Compiler) retarget() []*endpoint {
	c.staleLocal()
	for id := range c.part {
		c.stale[id] = true
	}
	clear(c.part)
	if len(c.stale) > 0 {
		for id := range c.ledger.refused {
			c.stale[id] = true
		}
	}
	var all []*endpoint
	for id := range c.stale {
		all = append(all, c.endpoints[id])
	}
	clear(c.stale)
	slices.SortFunc(all, func(a, b *endpoint) int { return a.id.Compare(b.id) })
	for _, e := range all {
		c.release(e)
	}
	turns := slices.Clone(all)
	slices.SortStableFunc(turns, func(a, b *endpoint) int { return c.turn(a) - c.turn(b) })
	for _, e := range turns {
		c.target(e)
	}
	c.abandon()
	return all
}

// release gives back what the programs that an endpoint was to have are charged for.
func (c *Compiler) release(e *endpoint) {
	for _, prog := range e.desired.programs {
		if prog != nil {
			c.ledger.release(e.id.Namespace, prog)
		}
	}
}

// turn says who comes first where there may not be room for all.
func (c *Compiler) turn(e *endpoint) int {
	switch {
	case c.ledger.refused[e.id]:
		return 2
	case e.applied.policy == nil:
		return 1
	}
	return 0
}

func (c *Compiler) target(e *endpoint) {
	var want [2]*program
	l := c.localOf(e.desired.policy)
	if !c.prepare(e, l) { // until then it is to have what it was to have
		c.part[e.id] = true
		for _, prog := range e.desired.programs {
			if prog != nil {
				c.ledger.charge(e.id.Namespace, prog)
			}
		}
		return
	}
	delete(c.ledger.refused, e.id)
	for d := range want {
		delete(c.failed, EndpointDirection{e.id, model.Direction(d)})
		if e.desired.policy != nil {
			want[d] = c.aim(e, d, l)
		}
	}
	if want[0] == nil || want[1] == nil {
		for _, prog := range want {
			if prog != nil {
				c.ledger.release(e.id.Namespace, prog)
			}
		}
		want = [2]*program{}
	}
	for d, prog := range want {
		if prog != nil {
			prog.desired++
		}
		if old := e.desired.programs[d]; old != nil {
			old.desired--
		}
		e.desired.programs[d] = prog
	}
}

// aim returns the program that one direction of an endpoint is to have, and charges its namespace: the one it has if its
// policy cannot be compiled or is over a limit, or nil.
func (c *Compiler) aim(e *endpoint, d int, l *localAddrs) *program {
	at := EndpointDirection{e.id, model.Direction(d)}
	prog, err := (*program)(nil), c.back.barred[at]
	if err == nil {
		prog, err = c.expandAll(e.desired.folds[d], l, e.id.Namespace)
	}
	if err == nil {
		err = c.ledger.admit(e.id.Namespace, prog)
	}
	if err == nil {
		if prog.limited {
			c.failed[EndpointDirection{e.id, model.Direction(d)}] = outgrown(prog)
		}
		return prog
	}
	c.failed[at] = err
	if errors.Is(err, errNoRoom) {
		c.ledger.refused[e.id] = true
	}
	old := e.applied.programs[d]
	if old == nil || errors.Is(err, ErrOwnAddresses) || !e.sameAddrs() {
		return nil
	}
	c.ledger.charge(e.id.Namespace, old)
	return old
}

// isAsDesired reports whether the kernel needs no other binding for the endpoint.
func (e *endpoint) isAsDesired() bool {
	is, want := e.applied.policy, e.desired.policy
	return is != nil && want != nil && e.applied.programs == e.desired.programs && is.Iface == want.Iface && slices.Equal(is.Addrs, want.Addrs)
}

// sameAddrs reports whether the endpoint has the addresses that what judges it was compiled for, as far as is known: of
// one found in the kernel it is not.
func (e *endpoint) sameAddrs() bool {
	is := e.applied.policy
	return is != nil && (is.Addrs == nil || slices.Equal(is.Addrs, e.desired.policy.Addrs))
}
