package calc

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

const thisNode = "node-1"

// world is a state of the datastore: the current object by the name of its key.
type world map[string]model.Update

func newWorld(updates ...model.Update) world {
	w := world{}
	for _, u := range updates {
		w.set(u)
	}
	return w
}

func (w world) set(u model.Update) {
	key, present := describe(u)
	if !present {
		delete(w, key)
		return
	}
	w[key] = u
}

func (w world) updates() []model.Update {
	var all []model.Update
	for _, key := range slices.Sorted(maps.Keys(w)) {
		all = append(all, w[key])
	}
	return all
}

// describe names the object and says whether the update has a value.
func describe(u model.Update) (key string, present bool) {
	switch u := u.(type) {
	case model.EndpointUpdate:
		return fmt.Sprintf("endpoint %d %s", u.ID.Kind, u.ID), u.Endpoint != nil
	case model.ProfileUpdate:
		return "profile " + u.Name, u.Profile != nil
	case model.TierUpdate:
		return "tier " + u.Name, u.Tier != nil
	case model.PolicyUpdate:
		return "policy " + u.Key.String(), u.Policy != nil
	case model.NetworkSetUpdate:
		return "networkset " + u.ID.String(), u.Set != nil
	case model.ServiceUpdate:
		return "service " + u.Key.String(), u.Service != nil
	case model.EndpointSliceUpdate:
		return "slice " + u.ID.Namespace + "/" + u.ID.Name, u.Slice != nil
	case model.NodeUpdate:
		return "node " + u.Name, u.Node != nil
	case model.RoutesUpdate:
		return "routes", u.Routes != nil
	}
	return "insync", true
}

// to returns the updates that lead from w to next, deletions first.
func (w world) to(next world) []model.Update {
	var all []model.Update
	for _, key := range slices.Sorted(maps.Keys(w)) {
		if next[key] == nil {
			all = append(all, model.Absent(w[key]))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(next)) {
		if w[key] == nil || !reflect.DeepEqual(w[key], next[key]) {
			all = append(all, next[key])
		}
	}
	return all
}

// dataplane is what all Changes of a graph amount to.
type dataplane struct {
	Endpoints map[model.EndpointID]*model.EndpointPolicy
	Sets      map[model.SetID]map[netip.Prefix]bool
}

func newDataplane() *dataplane {
	return &dataplane{
		Endpoints: map[model.EndpointID]*model.EndpointPolicy{},
		Sets:      map[model.SetID]map[netip.Prefix]bool{},
	}
}

// apply carries out the changes and returns what is wrong with them.
func (d *dataplane) apply(c model.Changes) error {
	for id, change := range c.Sets {
		if err := d.applySet(id, change); err != nil {
			return fmt.Errorf("set %s: %w", id, err)
		}
	}
	for id, ep := range c.Endpoints {
		was := d.Endpoints[id]
		switch {
		case ep == nil && was == nil:
			return fmt.Errorf("endpoint %s left but was never there", id)
		case ep == nil:
			delete(d.Endpoints, id)
		case was != nil && reflect.DeepEqual(was, ep):
			return fmt.Errorf("endpoint %s changed without a difference", id)
		default:
			d.Endpoints[id] = ep
		}
	}
	return d.checkReferences()
}

func (d *dataplane) applySet(id model.SetID, c *model.SetChange) error {
	members, known := d.Sets[id]
	if c.Gone {
		defer delete(d.Sets, id)
	}
	if !known {
		if c.Gone {
			return fmt.Errorf("removed but never announced")
		}
		members = map[netip.Prefix]bool{}
		d.Sets[id] = members
	} else if len(c.Added)+len(c.Removed) == 0 && !c.Gone {
		return fmt.Errorf("empty change of a known set")
	}
	if !slices.IsSortedFunc(c.Added, netip.Prefix.Compare) || !slices.IsSortedFunc(c.Removed, netip.Prefix.Compare) {
		return fmt.Errorf("not sorted: %v", c)
	}
	for _, p := range c.Added {
		if members[p] || p != p.Masked() || !p.IsValid() {
			return fmt.Errorf("%s added: already a member, or not masked", p)
		}
		members[p] = true
	}
	for _, p := range c.Removed {
		if !members[p] || slices.Contains(c.Added, p) {
			return fmt.Errorf("%s removed but not a member before", p)
		}
		delete(members, p)
	}
	return nil
}

// checkReferences: sets are there exactly while something refers to them.
func (d *dataplane) checkReferences() error {
	used := map[model.SetID]bool{model.SetServiceAddrs: true, model.SetNodeAddrs: true}
	for _, ep := range d.Endpoints {
		if len(ep.Sources) > 0 {
			used[model.SetOwnedAddrs] = true
		}
		for _, dir := range []*model.DirectionPolicy{ep.Ingress, ep.Egress} {
			for _, rules := range allRules(dir) {
				for i := range rules.Rules {
					for _, id := range setsOf(&rules.Rules[i]) {
						used[id] = true
					}
				}
			}
		}
	}
	for id := range used {
		if _, ok := d.Sets[id]; !ok {
			return fmt.Errorf("set %s is referred to but not there", id)
		}
		if len(id) > 64 {
			return fmt.Errorf("set id %q is longer than 64", id)
		}
	}
	for id := range d.Sets {
		if !used[id] && !id.IsPast() {
			return fmt.Errorf("set %s is there but nothing refers to it", id)
		}
	}
	return nil
}

func allRules(d *model.DirectionPolicy) []*model.PolicyRules {
	var all []*model.PolicyRules
	for _, t := range d.Tiers {
		all = append(all, t.Policies...)
	}
	return append(all, d.Profiles...)
}

func setsOf(r *model.MatchRule) []model.SetID {
	var ids []model.SetID
	for _, side := range []model.Side{r.Source, r.Destination} {
		ids = append(ids, side.In...)
		ids = append(ids, side.NotIn...)
		for _, m := range []*model.PortMatch{side.Ports, side.NotPorts} {
			if m != nil {
				for _, n := range m.Named {
					ids = append(ids, n.Set)
				}
			}
		}
	}
	return ids
}

// fresh is the dataplane of a new graph that is given the world at once.
func fresh(t tb, node string, w world) *dataplane {
	t.Helper()
	g := newGraph(node)
	g.Apply(append(w.updates(), model.InSync{}))
	d := newDataplane()
	if err := d.apply(g.Flush()); err != nil {
		t.Fatalf("fresh graph: %v", err)
	}
	return d
}

// tb is what *testing.T and *rapid.T have in common.
type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

var byValue = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})

// requireSame fails unless both dataplanes are equal.
func requireSame(t tb, want, got *dataplane) {
	t.Helper()
	if !reflect.DeepEqual(want, got) {
		t.Fatalf("the path made a difference (-fresh +got):\n%s", cmp.Diff(want, got, byValue))
	}
}

// rig is a graph in sync, with the dataplane that carries out its changes.
type rig struct {
	t     *testing.T
	graph *Graph
	dp    *dataplane
	world world
}

// newGraph is New, but the way to a state makes no difference at all.
func newGraph(node string) *Graph {
	g := New(node)
	g.sets.owned.patience = 0
	return g
}

func newRig(t *testing.T, updates ...model.Update) *rig {
	t.Helper()
	r := &rig{t: t, graph: newGraph(thisNode), dp: newDataplane(), world: world{}}
	r.apply(append(updates, model.InSync{})...)
	return r
}

// apply applies and flushes, and checks the result against a fresh graph.
func (r *rig) apply(updates ...model.Update) model.Changes {
	r.t.Helper()
	for _, u := range updates {
		if _, isInSync := u.(model.InSync); !isInSync {
			r.world.set(u)
		}
	}
	r.graph.Apply(updates)
	c := r.graph.Flush()
	if err := r.dp.apply(c); err != nil {
		r.t.Fatalf("illegal changes: %v", err)
	}
	requireSame(r.t, fresh(r.t, r.graph.node, r.world), r.dp)
	return c
}

func (r *rig) endpoint(name string) *model.EndpointPolicy {
	r.t.Helper()
	ep, ok := r.graph.LocalEndpoint(id(name))
	if !ok {
		r.t.Fatalf("endpoint %s is not local", name)
	}
	return ep
}

// sets returns members by description.
func (r *rig) sets() map[string]string {
	out := map[string]string{}
	for id := range r.dp.Sets {
		if strings.HasPrefix(string(id), "@") {
			continue
		}
		text, ok := r.graph.SetText(id)
		members, known := r.graph.SetMembers(id)
		if !ok || !known {
			r.t.Fatalf("set %s is not known to the views", id)
		}
		out[text] = fmt.Sprint(members)
	}
	return out
}

// id is the endpoint "ns/name".
func id(name string) model.EndpointID {
	ns, pod, _ := strings.Cut(name, "/")
	return model.WorkloadID(ns, pod)
}

// pod is an endpoint update that options change.
func pod(name, addr string, options ...func(*model.Endpoint)) model.EndpointUpdate {
	ep := &model.Endpoint{
		Node:     thisNode,
		Iface:    "cali-" + name,
		Labels:   map[string]string{"projectcalico.org/namespace": id(name).Namespace},
		Profiles: []string{"kns." + id(name).Namespace},
	}
	for _, a := range strings.Fields(addr) {
		ep.Addrs = append(ep.Addrs, netip.MustParseAddr(a))
	}
	for _, o := range options {
		o(ep)
	}
	return model.EndpointUpdate{ID: id(name), Endpoint: ep}
}

func on(node string) func(*model.Endpoint) { return func(ep *model.Endpoint) { ep.Node = node } }

func terminating(ep *model.Endpoint) { ep.Terminating = true }

func unconfirmed(ep *model.Endpoint) { ep.Unconfirmed = true }

func created(at uint32) func(*model.Endpoint) { return func(ep *model.Endpoint) { ep.Created = at } }

func iface(name string) func(*model.Endpoint) { return func(ep *model.Endpoint) { ep.Iface = name } }

func label(k, v string) func(*model.Endpoint) {
	return func(ep *model.Endpoint) { ep.Labels[k] = v }
}

func port(name string, protocol uint8, number uint16) func(*model.Endpoint) {
	return func(ep *model.Endpoint) {
		ep.Ports = append(ep.Ports, model.NamedPort{Name: name, Protocol: protocol, Port: number})
	}
}

func profiles(names ...string) func(*model.Endpoint) {
	return func(ep *model.Endpoint) { ep.Profiles = names }
}

func sel(text string) *selector.Selector {
	s, err := selector.Parse(text)
	if err != nil {
		panic(err) // a typo in a test
	}
	return s
}

func gnp(name string) model.PolicyKey {
	return model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: name}
}

// policyOf is a policy with ingress rules.
func policyOf(name, text string, ingress ...model.Rule) model.PolicyUpdate {
	return model.PolicyUpdate{Key: gnp(name), Policy: &model.Policy{
		Tier:           model.TierDefault,
		Order:          10,
		Selector:       sel(text),
		AppliesIngress: true,
		Ingress:        ingress,
	}}
}

func tcp() *uint8 { p := model.ProtoTCP; return &p }

func fromSelector(text string) model.Rule {
	return model.Rule{Action: model.Allow, Source: model.Entity{Selector: sel(text)}}
}

func toNamedPort(name, text string) model.Rule {
	r := model.Rule{Action: model.Allow, Protocol: tcp(), Destination: model.Entity{NamedPorts: []string{name}}}
	if text != "" {
		r.Destination.Selector = sel(text)
	}
	return r
}

func nets(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func addrs(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func namespace(name string, labels ...string) model.ProfileUpdate {
	p := &model.Profile{
		Labels:  map[string]string{"pcns.projectcalico.org/name": name},
		Ingress: []model.Rule{{Action: model.Allow}},
		Egress:  []model.Rule{{Action: model.Allow}},
	}
	for i := 0; i+1 < len(labels); i += 2 {
		p.Labels["pcns."+labels[i]] = labels[i+1]
	}
	return model.ProfileUpdate{Name: "kns." + name, Profile: p}
}
