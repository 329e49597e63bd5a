package iptables

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/dataplane/plans"
	"github.com/margay-project/margay/pkg/further"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// fakeNode is a node whose kernel is in memory.
type fakeNode struct {
	*IPTables
	tables  *iptables.Fake
	sets    *ipsets.Fake
	flows   *fakeFlows
	graph   *calc.Graph
	addrs   []netip.Addr // the node's own
	keep    bool         // existing connections
	mask    uint32       // of marks; 0: the default
	prefix  string       // of workload interfaces; "": the default
	routes  []further.Route
	present []string              // interfaces that are there, as Kernel.Present knows them
	beside  bool                  // marks are replaced while the test goes on; else apply waits for that
	former  map[netip.Addr]string // owners by another dataplane; nil: there is none
}

// fakeFlows are connections' marks.
type fakeFlows struct {
	marks   []uint32
	ends    []netip.Addr // of further connections, one for each
	ending  func() error // called by DeleteAddresses, which returns its error; may be nil
	marking func() error // called by Remark before it changes anything, which returns its error; may be nil
}

func (f *fakeFlows) Remark(family conntrack.Family, filter conntrack.Filter, mask uint32, decide func(conntrack.Entry) (uint32, bool)) (int, error) {
	if f.marking != nil {
		if err := f.marking(); err != nil {
			return 0, err
		}
	}
	n := 0
	for i, m := range f.marks {
		if m&filter.Mask != filter.Mark {
			continue
		}
		if to, write := decide(conntrack.Entry{Mark: m}); write && family == conntrack.IPv4 {
			f.marks[i], n = m&^mask|to&mask, n+1
		}
	}
	return n, nil
}

func (f *fakeFlows) DeleteMarked(family conntrack.Family, filter conntrack.Filter) (int, error) {
	before := len(f.marks)
	if family == conntrack.IPv4 {
		f.marks = slices.DeleteFunc(f.marks, func(m uint32) bool { return m&filter.Mask == filter.Mark })
	}
	return before - len(f.marks), nil
}

func (f *fakeFlows) DeleteAddresses(family conntrack.Family, of func(netip.Addr) bool) (int, error) {
	if f.ending != nil {
		if err := f.ending(); err != nil {
			return 0, err
		}
	}
	before := len(f.ends)
	f.ends = slices.DeleteFunc(f.ends, func(a netip.Addr) bool { return a.Is4() == (family == conntrack.IPv4) && of(a) })
	return before - len(f.ends), nil
}

// quietNode has interfaces for every endpoint of the tests, and never wakes anybody.
type quietNode struct{ addrs []netip.Addr }

func (quietNode) Interfaces() map[string]uint32 {
	all := map[string]uint32{"calia": 1}
	for i := range 9 {
		all[fmt.Sprintf("cali%d", i)] = uint32(i + 2)
	}
	return all
}
func (n quietNode) Addrs() []netip.Addr { return n.addrs }
func (quietNode) Wake() <-chan struct{} { return nil }
func (quietNode) Nudge(time.Duration)   {}
func (quietNode) Close()                {}

func newFakeNode(t *testing.T) *fakeNode {
	t.Helper()
	n := &fakeNode{tables: iptables.NewFake(), sets: ipsets.NewFake(), flows: &fakeFlows{}}
	n.open(t)
	return n
}

// open starts an agent on what the kernel has.
func (n *fakeNode) open(t *testing.T) {
	t.Helper()
	tools := n.tables.Tools(iptables.Legacy)
	config := dataplane.Defaults()
	config.KeepExisting = n.keep
	if n.prefix != "" {
		config.InterfacePrefix = n.prefix
	}
	if n.mask != 0 {
		config.IptablesMarkMask = n.mask
	}
	routes := func(interfaces map[string]bool) ([]further.Route, error) {
		list := slices.Clone(n.routes)
		for i := range list {
			if !interfaces[list[i].Interface] {
				list[i].Interface = ""
			}
		}
		return list, nil
	}
	present := func(names map[string]bool) (map[string]bool, error) {
		there := map[string]bool{}
		for _, name := range n.present {
			there[name] = names[name]
		}
		maps.DeleteFunc(there, func(_ string, asked bool) bool { return !asked })
		return there, nil
	}
	d, err := Open(context.Background(), config, Kernel{Tools: tools, Sets: n.sets, Flows: n.flows, Node: quietNode{n.addrs}, Routes: routes, Present: present,
		Former: func() map[netip.Addr]string { return n.former }}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	d.state.world.unseen.waiting = func(context.Context) error { return nil }
	d.state.endpoints.heirs.patience = time.Minute
	// A retry is due only after Room: by the wall clock it could be due within the Apply whose write was refused.
	opened := time.Now()
	d.state.refusals.Retry = plans.NewBackoff(func() time.Time { return opened })
	n.IPTables, n.graph = d, calc.New("n")
}

func (n *fakeNode) apply(updates ...model.Update) error {
	n.graph.Apply(updates)
	err := n.Apply(context.Background(), n.graph.Flush())
	if !n.beside {
		n.state.static.generation.wait() // it uses the fakes
	}
	return err
}

func (n *fakeNode) mustApply(t *testing.T, updates ...model.Update) {
	t.Helper()
	if err := n.apply(updates...); err != nil {
		t.Fatal(err)
	}
}

// stage is one state of a small datastore: who may reach endpoint a on which ports.
type stage struct {
	role  string // of the source at 10.0.0.1
	allow []string
	ports []uint16
	more  int // further endpoints like a
}

func (s stage) updates() []model.Update {
	tcp := model.ProtoTCP
	policy := &model.Policy{Tier: model.TierDefault, Order: 1, Selector: selector.Equal("app", "a"), AppliesIngress: true}
	for i, role := range s.allow {
		rule := model.Rule{Action: model.Allow, Index: i, Protocol: &tcp, Source: model.Entity{Selector: selector.Equal("role", role)}}
		for _, p := range s.ports {
			rule.Destination.Ports = append(rule.Destination.Ports, model.PortRange{Lo: p, Hi: p})
		}
		policy.Ingress = append(policy.Ingress, rule)
	}
	list := []model.Update{
		endpointAt("a", "calia", "10.0.0.10", map[string]string{"app": "a"}),
		endpointAt("src", "", "10.0.0.1", map[string]string{"role": s.role}),
		endpointAt("other", "", "10.0.0.2", map[string]string{"role": "other"}),
		model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "p"}, Policy: policy},
	}
	for i := range s.more {
		list = append(list, endpointAt(fmt.Sprintf("a%d", i), fmt.Sprintf("cali%d", i), fmt.Sprintf("10.0.2.%d", i+1), map[string]string{"app": "a"}))
	}
	return append(list, model.InSync{})
}

func endpointAt(name, iface, addr string, labels map[string]string) model.EndpointUpdate {
	node := "n"
	if iface == "" {
		node = "elsewhere"
	}
	return model.EndpointUpdate{ID: model.WorkloadID("t", name),
		Endpoint: &model.Endpoint{Node: node, Iface: iface, Addrs: []netip.Addr{netip.MustParseAddr(addr)}, Labels: labels}}
}

// contents are the chains and sets of the kernel as text, in order; worlds, numbers of generations and counters apart.
func (n *fakeNode) contents(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, table := range tableNames {
		for _, family := range families {
			lines := strings.Split(n.tables.Save(iptables.Family(family), table), "\n")
			slices.Sort(lines)
			b.WriteString(strings.Join(lines, "\n"))
		}
	}
	for _, set := range n.state.sets.all() {
		var lines []string
		err := n.sets.List(set.Spec(), func(e ipsets.Entry) { lines = append(lines, fmt.Sprintf("%s %v %#x", set.Spec().Name, e.Key, e.Mark)) })
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(lines)
		b.WriteString(strings.Join(lines, "\n"))
	}
	return b.String()
}

// worlds are the names that FORWARD of table mangle leads to, and those of which there are chains or sets.
func (n *fakeNode) worlds(t *testing.T) (inForce, there []string) {
	t.Helper()
	saved := n.tables.Save(iptables.V4, "mangle")
	names, err := n.sets.Names("mgy")
	if err != nil {
		t.Fatal(err)
	}
	for _, world := range []string{"mgyA", "mgyB"} {
		if strings.Contains(saved, "-A FORWARD -j "+world+"-FORWARD") {
			inForce = append(inForce, world)
		}
		if strings.Contains(saved, ":"+world+"-") || slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, world) }) {
			there = append(there, world)
		}
	}
	return inForce, there
}
