package calc

import (
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// distinctions are the properties by which policies distinguish endpoints, besides their profiles and ports.
type distinctions struct {
	labels   map[string]bool       // names
	prefixes map[netip.Prefix]bool // of rules that say something of the address of the endpoint itself
	bits     map[int]bool          // their lengths
}

// distinctions returns what the policies, and the profiles of the cluster, tell endpoints apart by.
func (g *Graph) distinctions(policies []*policy) distinctions {
	d := distinctions{map[string]bool{}, map[netip.Prefix]bool{}, map[int]bool{}}
	own := false
	for _, p := range policies {
		p.selection.Selector().LabelNames(d.labels)
		own = d.rules(g.dirty.policyRules(p)) || own
	}
	for p := range g.profiles.All() {
		own = d.rules(g.dirty.profileRules(p)) || own
	}
	if !own {
		return d
	}
	for _, ns := range g.networkSets {
		d.nets(slices.Values(ns.Value.extra.nets.list()))
		d.nets(slices.Values(ns.Value.extra.cover))
	}
	for _, s := range g.sets.services.backends.slices {
		if s.crowded {
			d.nets(slices.Values(s.prefixes()))
		}
		d.nets(slices.Values(s.cover))
		for _, a := range s.Addrs {
			if p, ok := hostPrefix(a); ok {
				d.nets(slices.Values([]netip.Prefix{p}))
			}
		}
	}
	return d
}

// rules notes the properties that rules distinguish, and reports whether a rule tests if the endpoint itself is in a
// set: the destination of ingress, the source of egress.
func (d *distinctions) rules(lists [2][]model.Rule) (own bool) {
	for direction, rules := range lists {
		for i := range rules {
			for _, e := range []*model.Entity{&rules[i].Source, &rules[i].Destination} {
				for _, s := range []*selector.Selector{e.Selector, e.NotSelector} {
					if s != nil {
						s.LabelNames(d.labels)
					}
				}
			}
			e := &rules[i].Destination
			if model.Direction(direction) == model.Egress {
				e = &rules[i].Source
			}
			d.nets(slices.Values(e.Nets))
			d.nets(slices.Values(e.NotNets))
			own = own || e.Selector != nil || e.NotSelector != nil || e.Service != nil || e.Nodes != nil
		}
	}
	return own
}

func (d *distinctions) nets(nets iter.Seq[netip.Prefix]) {
	for n := range nets {
		d.prefixes[n.Masked()] = true
		d.bits[n.Bits()] = true
	}
}

// keyText is a text that is equal if what it was made of is.
type keyText []byte

func (t *keyText) uint(n uint64) { *t = binary.AppendUvarint(*t, n) }

func (t *keyText) string(s string) {
	t.uint(uint64(len(s)))
	*t = append(*t, s...)
}

// group is equal for groups that policies do not tell apart.
func (d *distinctions) group(g *group) string {
	var p keyText
	for name := range g.Parents() {
		p.uint(1)
		p.string(name)
	}
	p.uint(0)
	p.uint(uint64(len(g.Ports())))
	for _, port := range g.Ports() {
		p.string(port.Name)
		p.uint(uint64(port.Protocol))
		p.uint(uint64(port.Port))
	}
	for name, value := range g.Own() {
		if d.labels[name] {
			p.string(name)
			p.string(value)
		}
	}
	return string(p)
}

// addrs is equal for items whose addresses policies do not tell apart, given that they do not tell the groups apart.
func (d *distinctions) addrs(it *contents) string {
	if len(d.prefixes) == 0 && it.shape != unpacked {
		return [...]string{noAddr: "", only4: "4", only6: "6", first4: "46", first6: "46"}[it.shape]
	}
	var families [2]bool
	var in []string
	for a := range it.addrs() {
		families[0], families[1] = families[0] || a.Is4(), families[1] || a.Is6()
		for bits := range d.bits {
			if p, err := a.Prefix(bits); err == nil && d.prefixes[p] {
				in = append(in, p.String())
			}
		}
	}
	slices.Sort(in)
	return fmt.Sprint(families, in)
}
