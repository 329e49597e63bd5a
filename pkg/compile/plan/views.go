package plan

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/compile/classes"
	"github.com/margay-project/margay/pkg/compile/table"
	"github.com/margay-project/margay/pkg/model"
)

// The views show the state that the kernel is in once the last Plan has been carried out. Their results belong to
// the Compiler and changes with the next Update; the caller must not change it.

// EndpointView is one endpoint in the kernel.
type EndpointView struct {
	Policy *model.EndpointPolicy
	// Ingress and Egress judge it. Of a table found in the kernel after a restart that no endpoint desires any more,
	// the Program's IDs are not known.
	Ingress, Egress *table.Table
}

// Endpoint returns one endpoint; not ok if it is not bound.
func (c *Compiler) Endpoint(id model.EndpointID) (EndpointView, bool) {
	e := c.endpoints.get(id)
	if e == nil || e.applied.policy == nil {
		return EndpointView{}, false
	}
	ingress, egress := e.applied.programs[model.Ingress], e.applied.programs[model.Egress]
	if ingress == nil || egress == nil || ingress.table == nil || egress.table == nil {
		return EndpointView{}, false
	}
	return EndpointView{Policy: e.applied.policy, Ingress: ingress.table, Egress: egress.table}, true
}

// Endpoints returns the ids of all bound endpoints, in order.
func (c *Compiler) Endpoints() []model.EndpointID {
	var all []model.EndpointID
	for _, e := range c.endpoints.sorted() {
		if e.applied.policy != nil && !isShadow(e.id) {
			all = append(all, e.id)
		}
	}
	return all
}

// Failed returns the endpoint-directions whose present policy could not be compiled, and why. With ErrTooManyRules and
// ErrOverLimit they keep the policy they had; a new endpoint is not bound, so that nothing passes, and with
// ErrOwnAddresses no endpoint is.
func (c *Compiler) Failed() map[EndpointDirection]error {
	all := c.failures.all()
	c.endpoints.addShort(all)
	maps.DeleteFunc(all, func(at EndpointDirection, _ error) bool { return isShadow(at.Endpoint) })
	return all
}

// AddressView describes one address.
type AddressView struct {
	// Entry is what a lookup in the kernel finds; without Prefix if it finds none.
	Entry classes.AddrChange
	Class classes.Class
	// Sets are all sets the address is a member of, by name. The class has only those that a Program refers to: others
	// just tell policies of this address's own endpoint apart.
	Sets []model.SetID
}

// Address returns the view of an address.
func (c *Compiler) Address(a netip.Addr) AddressView {
	v := AddressView{Entry: c.classes.Lookup(a)}
	v.Class, _ = c.classes.Class(v.Entry.Class)
	for _, num := range c.sets.of(a) {
		v.Sets = append(v.Sets, c.sets.Key(num))
	}
	slices.Sort(v.Sets)
	return v
}

// ClassOf returns the class that a lookup of an address in the kernel finds.
func ClassOf(c *Compiler, a netip.Addr) classes.Class {
	class, _ := c.classes.Class(c.classes.Lookup(a).Class)
	return class
}

// Sets returns the names of the sets in the kernel by their numbers.
func (c *Compiler) Sets() map[uint32]model.SetID { return c.sets.named() }

// Rules returns the rules in the kernel by their numbers.
func (c *Compiler) Rules() map[uint32]model.RuleID { return c.rules.Held() }

// Classes returns all classes whose sets are known.
func (c *Compiler) Classes() classes.List { return c.classes.All() }

// Tables returns all tables in the kernel, by ascending id.
func (c *Compiler) Tables() []*table.Table { return c.programs.tables() }
