// Package oracle is the second opinion on policy: evaluators written straight from docs/semantics.md that share no
// code with the product's calculation graph and compiler, for tests only. They are as naive as possible: for every
// packet they look at every tier, policy, rule and object again, with no index, no set and no cache.
//
// Cluster judges model objects (what package validate makes of resources). Kubernetes judges the typed objects of the
// Kubernetes API themselves, by what that API's documentation says.
//
// It is pure: no I/O, no goroutines, no clock.
package oracle

import (
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/margay-project/margay/pkg/model"
)

// Cluster is the current set of model objects. The zero value is an empty cluster. Not safe for concurrent use.
type Cluster struct {
	endpoints []endpoint
	profiles  map[string]*model.Profile
	tiers     map[string]*model.Tier
	policies  map[model.PolicyKey]*model.Policy
	netsets   map[model.NetworkSetID]*model.NetworkSet
	slices    map[model.EndpointSliceID]*model.EndpointSlice
	nodes     map[string]*model.Node
	services  map[model.ServiceKey]*model.Service
	asStaged  bool // judge as if staged policies were enforced
}

type endpoint struct {
	id model.EndpointID
	*model.Endpoint
}

// New returns a cluster that has had the updates applied, in order.
func New(updates []model.Update) *Cluster {
	c := &Cluster{
		profiles: map[string]*model.Profile{},
		tiers:    map[string]*model.Tier{},
		policies: map[model.PolicyKey]*model.Policy{},
		netsets:  map[model.NetworkSetID]*model.NetworkSet{},
		slices:   map[model.EndpointSliceID]*model.EndpointSlice{},
		nodes:    map[string]*model.Node{},
		services: map[model.ServiceKey]*model.Service{},
	}
	allow := []model.Rule{{Action: model.Allow}}
	c.profiles["projectcalico-default-allow"] = &model.Profile{Ingress: allow, Egress: allow}
	for _, u := range updates {
		c.apply(u)
	}
	return c
}

func (c *Cluster) apply(u model.Update) {
	switch u := u.(type) {
	case model.EndpointUpdate:
		c.endpoints = slices.DeleteFunc(c.endpoints, func(e endpoint) bool { return e.id == u.ID })
		if u.Endpoint != nil && !u.Endpoint.HostNetwork {
			c.endpoints = append(c.endpoints, endpoint{u.ID, u.Endpoint})
		}
	case model.ProfileUpdate:
		if u.Name == "projectcalico-default-allow" {
			return // built in
		}
		put(c.profiles, u.Name, u.Profile)
	case model.TierUpdate:
		put(c.tiers, u.Name, u.Tier)
	case model.PolicyUpdate:
		put(c.policies, u.Key, u.Policy)
	case model.NetworkSetUpdate:
		put(c.netsets, u.ID, u.Set)
	case model.EndpointSliceUpdate:
		put(c.slices, u.ID, u.Slice)
	case model.NodeUpdate:
		put(c.nodes, u.Name, u.Node)
	case model.ServiceUpdate:
		put(c.services, u.Key, u.Service) // policy matches backends, but no endpoint owns a Service's address
	case model.InSync: // there is no start-up here
	}
}

func put[K comparable, V any](m map[K]*V, k K, v *V) {
	if v == nil {
		delete(m, k)
		return
	}
	m[k] = v
}

// Endpoints returns the ids of all endpoints, ordered.
func (c *Cluster) Endpoints() []model.EndpointID {
	var ids []model.EndpointID
	for _, e := range c.endpoints {
		ids = append(ids, e.id)
	}
	slices.SortFunc(ids, model.EndpointID.Compare)
	return ids
}

// Judge answers for one endpoint and direction (semantics §5 for workload endpoints). An endpoint that is not known
// lets nothing pass (D-18): the zero Verdict. A packet from an address of the endpoint's own node counts as sent by
// that node itself (§15).
//
// What is not policy is not judged here: connection state, anti-spoofing, and encapsulation from workloads.
func (c *Cluster) Judge(id model.EndpointID, dir model.Direction, pkt model.Packet) model.Verdict {
	v := c.JudgeForwarded(id, dir, pkt)
	if e, ok := c.endpoint(id); ok && v.By.Point != model.AtSelf && dir == model.Ingress {
		if n := c.nodes[e.Node]; n != nil && slices.Contains(n.Addrs, pkt.Src) {
			return model.Verdict{Allow: true, By: model.RuleID{Point: model.AtHost, Direction: dir}}
		}
	}
	return v
}

// JudgeForwarded is Judge for a packet that no node has made, though it may have the address of one: a node puts its own in the
// place of the source of what comes by a NodePort (§15).
func (c *Cluster) JudgeForwarded(id model.EndpointID, dir model.Direction, pkt model.Packet) model.Verdict {
	e, ok := c.endpoint(id)
	if !ok {
		return model.Verdict{}
	}
	if c.has(e, pkt.Src) && c.has(e, pkt.Dst) {
		return model.Verdict{Allow: true, By: model.RuleID{Point: model.AtSelf, Direction: dir}}
	}
	return c.evaluate(e, dir, pkt)
}

func (c *Cluster) endpoint(id model.EndpointID) (endpoint, bool) {
	for _, e := range c.endpoints {
		if e.id == id {
			return e, true
		}
	}
	return endpoint{}, false
}

// Owns reports whether the address is the endpoint's, as far as objects say (D-19): of all that claim it the endpoint must
// be first, with no other claim as good, and the address must not be that of a node or the cluster address of a Service. Routes
// are not judged here.
func (c *Cluster) Owns(id model.EndpointID, addr netip.Addr) bool {
	e, ok := c.endpoint(id)
	return ok && c.has(e, addr)
}

func (c *Cluster) has(e endpoint, addr netip.Addr) bool {
	if !slices.Contains(e.Addrs, addr) {
		return false
	}
	for _, n := range c.nodes {
		if slices.Contains(n.Addrs, addr) {
			return false
		}
	}
	for _, s := range c.services {
		if slices.Contains(s.Cluster, addr) {
			return false
		}
	}
	return !slices.ContainsFunc(c.endpoints, func(o endpoint) bool {
		if o.id == e.id || !slices.Contains(o.Addrs, addr) {
			return false
		}
		if o.Terminating != e.Terminating {
			return e.Terminating
		}
		return o.Created <= e.Created
	})
}

// Flow is what the two ends of a flow say to its first packet. Nil: no endpoint has the address of that end.
type Flow struct{ Egress, Ingress *model.Verdict }

// Allow reports whether both legs allow the flow.
func (f Flow) Allow() bool {
	return (f.Egress == nil || f.Egress.Allow) && (f.Ingress == nil || f.Ingress.Allow)
}

// Flow judges both legs of a flow: egress of the endpoint that has the source address, ingress of the one that has
// the destination address.
func (c *Cluster) Flow(pkt model.Packet) Flow {
	var f Flow
	for _, id := range c.Endpoints() {
		e, _ := c.endpoint(id)
		if f.Egress == nil && c.has(e, pkt.Src) {
			v := c.Judge(id, model.Egress, pkt)
			f.Egress = &v
		}
		if f.Ingress == nil && c.has(e, pkt.Dst) {
			v := c.Judge(id, model.Ingress, pkt)
			f.Ingress = &v
		}
	}
	return f
}

// verdict of a rule walk that has not ended.
type walk struct {
	dir            model.Direction
	passed, logged []model.RuleID
}

func (w *walk) end(allow bool, by model.RuleID) model.Verdict {
	return model.Verdict{Allow: allow, By: by, Passed: w.passed, Logged: w.logged}
}

// evaluate is §5's algorithm from "for tier in sorted_tiers" on.
func (c *Cluster) evaluate(e endpoint, dir model.Direction, pkt model.Packet) model.Verdict {
	w := &walk{dir: dir}
	for _, tier := range c.tierOrder() {
		enforced := c.policiesOf(tier, e, dir)
		if len(enforced) == 0 {
			continue
		}
		action := model.Action(0)
		for _, key := range enforced {
			at := model.RuleID{Tier: tier, Policy: key}
			var by model.RuleID
			if action, by = c.rules(w, at, directionRules(c.policies[key], dir), pkt); action != 0 {
				if action == model.Pass {
					break
				}
				return w.end(action == model.Allow, by)
			}
		}
		if action == model.Pass {
			continue
		}
		end := model.RuleID{Point: model.AtEndOfTier, Direction: dir, Tier: tier, Policy: enforced[0]}
		if c.defaultAction(tier) != model.Pass {
			return w.end(false, end)
		}
		w.passed = append(w.passed, end)
	}
	for i, name := range e.Profiles {
		p := c.profiles[name]
		if p == nil || slices.Contains(e.Profiles[:i], name) { // a profile that is listed again adds nothing
			continue
		}
		rules := p.Ingress
		if dir == model.Egress {
			rules = p.Egress
		}
		at := model.RuleID{Policy: model.PolicyKey{Kind: model.KindProfile, Name: name}}
		if action, by := c.rules(w, at, rules, pkt); action == model.Allow || action == model.Deny {
			return w.end(action == model.Allow, by)
		}
	}
	return w.end(false, model.RuleID{Point: model.AtNoProfile, Direction: dir})
}

// rules walks one policy's or profile's rules. It returns Allow, Deny or Pass and the rule that said so, or 0 if none
// did. Logs and passes are noted in w.
func (c *Cluster) rules(w *walk, at model.RuleID, rules []model.Rule, pkt model.Packet) (model.Action, model.RuleID) {
	for i := range rules {
		r := &rules[i]
		by := at
		by.Point, by.Direction, by.Index = model.AtRule, w.dir, r.Index
		switch action := c.applies(r, pkt); action {
		case 0:
		case model.Log:
			w.logged = append(w.logged, by)
		case model.Pass:
			w.passed = append(w.passed, by)
			return model.Pass, by
		default:
			return action, by
		}
	}
	return 0, model.RuleID{}
}

func directionRules(p *model.Policy, dir model.Direction) []model.Rule {
	if dir == model.Egress {
		return p.Egress
	}
	return p.Ingress
}

// policiesOf lists the policies of the tier that are enforced on the endpoint in the direction, in order (§3, §4).
func (c *Cluster) policiesOf(tier string, e endpoint, dir model.Direction) []model.PolicyKey {
	var keys []model.PolicyKey
	for k, p := range c.policies {
		applies := p.AppliesIngress
		if dir == model.Egress {
			applies = p.AppliesEgress
		}
		applies = applies && p.Selector.Matches(c.labels(e.Labels, e.Profiles))
		if p.Tier == tier && applies && c.counts(k) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b model.PolicyKey) int {
		switch oa, ob := c.policies[a].Order, c.policies[b].Order; {
		case oa < ob:
			return -1
		case oa > ob:
			return 1
		}
		return strings.Compare(a.SortKey(), b.SortKey())
	})
	return keys
}

// tierOrder lists every tier that exists or that a policy names, in evaluation order (D-15); the latter last (D-2).
func (c *Cluster) tierOrder() []string {
	names := []string{model.TierKubeAdmin, model.TierDefault, model.TierKubeBaseline}
	for name := range c.tiers {
		names = append(names, name)
	}
	for _, p := range c.policies {
		names = append(names, p.Tier)
	}
	slices.SortFunc(names, func(a, b string) int {
		ta, oka := c.tier(a)
		tb, okb := c.tier(b)
		switch {
		case oka && !okb:
			return -1
		case !oka && okb:
			return 1
		case ta.Order < tb.Order:
			return -1
		case ta.Order > tb.Order:
			return 1
		}
		return strings.Compare(a, b)
	})
	return slices.Compact(names)
}

// tier returns the tier as it exists. What is built in is not changed by objects (§2).
func (c *Cluster) tier(name string) (model.Tier, bool) {
	switch name {
	case model.TierKubeAdmin:
		return model.Tier{Order: 1000, Default: model.Pass}, true
	case model.TierDefault:
		return model.Tier{Order: 1e6, Default: model.Deny}, true
	case model.TierKubeBaseline:
		return model.Tier{Order: 1e7, Default: model.Pass}, true
	}
	if t := c.tiers[name]; t != nil {
		return *t, true
	}
	return model.Tier{Order: math.Inf(1), Default: model.Deny}, false
}

func (c *Cluster) defaultAction(tier string) model.Action {
	t, _ := c.tier(tier)
	return t.Default
}
