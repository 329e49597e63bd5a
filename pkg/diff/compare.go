package diff

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/explain"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/verify"
)

// comparing is one comparison under way.
type comparing struct {
	before, after *state
	pods          []model.EndpointID
	owners        map[netip.Addr][2]owner // before and after the change
	between       *verify.Between
	done          map[combination]*outcome
	kinds         map[pair]func(netip.Addr) verify.Signature
	lines         []*line
	at            map[string]int // index in lines
	changed       int            // lines of pods
	report        *Report
}

// owner is the pod or node that has an address; zero: none.
type owner struct {
	pod  model.EndpointID
	node string // of the node, if it is one
}

func (o owner) String() string {
	if o.node != "" {
		return "node " + o.node
	}
	return o.pod.String()
}

// pair are the policies of one direction before and after the change.
type pair [2]*model.DirectionPolicy

// combination identifies what the outcome of a comparison depends on.
type combination struct {
	pair
	own    string // kind of the own address
	family uint8
}

// outcome is the outcome of a comparison. Pods with equal policies share it.
type outcome struct {
	rows []row
	err  error
}

// row is one kind of remote addresses, with those of them that belong to pods and nodes.
type row struct {
	verify.Shifts
	owned []netip.Addr
	cidr  netip.Prefix // the narrowest CIDR of a rule around the others
}

// named is the set of all addresses that belong to a pod or a node in either state. So a kind has only such addresses, all of which are
// named, or none of them.
const named model.SetID = "named"

// examples are addresses that people know for examples, of each family.
var examples = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}

func (c *comparing) findOwners() {
	c.owners = map[netip.Addr][2]owner{}
	ids := map[model.EndpointID]bool{}
	for i, s := range []*state{c.before, c.after} {
		own := func(a netip.Addr, o owner) {
			of := c.owners[a]
			of[i] = o
			c.owners[a] = of
		}
		for name, addrs := range s.graph.AllNodeAddrs() {
			for _, a := range addrs {
				own(a, owner{node: name})
			}
		}
		for id := range s.graph.EndpointIDs() {
			ep, _ := s.graph.FindEndpoint(id)
			for _, a := range ep.Addrs {
				own(a, owner{pod: id})
			}
			ids[id] = true
		}
	}
	c.pods = slices.SortedFunc(maps.Keys(ids), model.EndpointID.Compare)
}

// prepare divides all addresses into kinds.
func (c *comparing) prepare() error {
	atoms := verify.NewAtoms()
	atoms.AddSet(named)
	for _, id := range c.pods {
		for _, own := range c.ownAddrs(id) {
			for _, d := range []model.Direction{model.Ingress, model.Egress} {
				for _, s := range []*state{c.before, c.after} {
					if p := s.policy(id, d, own); !s.seen[p] {
						s.seen[p] = true
						atoms.AddPolicy(p)
					}
				}
			}
		}
	}
	r := verify.NewRegions(atoms, func() error { return nil })
	for _, id := range atoms.Sets() {
		for _, s := range []*state{c.before, c.after} {
			if of, is := s.set(id); is {
				r.AddMembers(id, s.graph.Members(of))
			}
		}
	}
	r.AddEntries([]verify.Entry{{Prefix: netip.MustParsePrefix("0.0.0.0/0")}, {Prefix: netip.MustParsePrefix("::/0")}})
	var all []netip.Prefix
	for a := range c.owners {
		all = append(all, netip.PrefixFrom(a, a.BitLen()))
		r.Ask(a)
	}
	r.AddMembers(named, all)
	for _, a := range examples {
		r.Ask(a)
	}
	pairs, err := r.Pairs()
	c.between = &verify.Between{Atoms: atoms, Pairs: pairs, Of: r.Of, Keep: []model.SetID{named}}
	return err
}

// ownAddrs are the addresses of a pod in either state.
func (c *comparing) ownAddrs(id model.EndpointID) []netip.Addr {
	all := slices.Concat(c.before.addrs(id), c.after.addrs(id))
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// pod compares one direction of a pod.
func (c *comparing) pod(id model.EndpointID, d model.Direction) error {
	if d == model.Egress {
		c.report.Pods++
	}
	for _, own := range c.ownAddrs(id) {
		policies := pair{c.before.policy(id, d, own), c.after.policy(id, d, own)}
		for _, p := range policies {
			if why := refused(p); why != "" {
				c.notCompared(id, d, why)
				return nil
			}
		}
		o := c.outcome(policies, own)
		if errors.Is(o.err, verify.ErrTooMany) {
			c.notCompared(id, d, o.err.Error())
			return nil
		}
		if o.err != nil {
			return o.err
		}
		if err := c.note(id, d, own, o); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparing) notCompared(id model.EndpointID, d model.Direction, why string) {
	c.report.NotCompared = append(c.report.NotCompared, NotCompared{id.String(), d.String(), why})
}

// outcome compares two policies for an own address, unless that has been done.
func (c *comparing) outcome(policies pair, own netip.Addr) *outcome {
	kinds := c.kinds[policies]
	if kinds == nil {
		kinds = c.between.Kinds(policies[0], policies[1])
		c.kinds[policies] = kinds
	}
	at := combination{policies, kinds(own).Key(), verify.Family(own)}
	if o := c.done[at]; o != nil {
		return o
	}
	shifts, packets, err := c.between.Compare(policies[0], policies[1], own)
	o := &outcome{err: err}
	c.done[at] = o
	c.report.Packets += packets
	if len(shifts) == 0 {
		return o
	}
	owned := map[string][]netip.Addr{}
	for a := range c.owners {
		if verify.Family(a) == at.family {
			key := kinds(a).Key()
			owned[key] = append(owned[key], a)
		}
	}
	for _, s := range shifts {
		key := s.Kind.Key()
		for _, a := range examples {
			if verify.Family(a) == at.family && kinds(a).Key() == key {
				s.Some = []netip.Addr{a}
			}
		}
		slices.SortFunc(owned[key], netip.Addr.Compare)
		o.rows = append(o.rows, row{s, owned[key], narrowest(policies, s.Some[0])})
	}
	return o
}

// narrowest is the narrowest CIDR in the rules of two policies that contains an address, unless it contains all; zero: there is none.
func narrowest(policies pair, a netip.Addr) (cidr netip.Prefix) {
	for _, p := range policies {
		for _, n := range verify.Nets(p) {
			if n.Contains(a) && n.Bits() > max(0, cidr.Bits()) {
				cidr = n
			}
		}
	}
	return cidr
}

// decision is the verdict of one state about a packet.
func (s *state) decision(of explain.End, d model.Direction, p model.Packet, allow bool, by model.RuleID) (Decision, error) {
	if s.policy(of.Endpoint, d, of.Addr) == closed[d] {
		return Decision{explain.VerdictDeny, "", fmt.Sprintf("there is no pod %s with the address %s", of.Endpoint, of.Addr)}, nil
	}
	side, err := s.Side(of, d, p)
	if err != nil {
		return Decision{}, err
	}
	if (side.Verdict == explain.VerdictAllow) != allow {
		return Decision{}, fmt.Errorf("compare %s of %s: two evaluations differ about %+v, which is a defect of this program: please report it", d, of, p)
	}
	return Decision{side.Verdict, by.String(), side.Reason}, nil
}
