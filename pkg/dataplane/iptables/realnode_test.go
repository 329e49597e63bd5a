package iptables

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/compile/chains"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/ipsets"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// Ports of the pod server: open always, never, and to its friends.
const portOpen, portClosed, portFriends = 80, 81, 82

// realNode is a node of a lab whose agent is in this process.
type realNode struct {
	*lab.Node
	t                      testing.TB
	kernel                 Kernel
	client, server, member *lab.Pod
	agent                  *IPTables
	graph                  *calc.Graph
	rounds                 int
}

// labNode is what an agent asks of its machine.
type labNode struct {
	quietNode
	pods []*lab.Pod
}

func (n labNode) Interfaces() map[string]uint32 {
	all := map[string]uint32{}
	for _, p := range n.pods {
		all[p.Iface()] = uint32(p.IfIndex())
	}
	return all
}

func newRealNode(t testing.TB, backend iptables.Backend) *realNode {
	testutil.Privileged(t)
	testutil.OwnTablesLock(t)
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	testutil.RequireCommand(t, "iptables-legacy-restore")
	testutil.RequireCommand(t, "iptables-nft-restore")
	n := &realNode{t: t}
	if n.Node, err = l.AddNode("n"); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]**lab.Pod{"client": &n.client, "server": &n.server, "member": &n.member} {
		if *to, err = n.AddPod("t", name); err != nil {
			t.Fatal(err)
		}
	}
	n.do(func() (err error) {
		if n.kernel.Tools, err = iptables.Find(t.Context(), backend); err != nil {
			return err
		}
		var all []*iptables.Tools
		for _, b := range []iptables.Backend{iptables.Legacy, iptables.NFT} {
			tools, err := iptables.Find(t.Context(), b)
			if err != nil {
				return err
			}
			all = append(all, tools)
		}
		n.kernel.Others = func(context.Context) []*iptables.Tools { return all }
		sets, err := ipsets.Open()
		if err != nil {
			return err
		}
		flows, err := conntrack.Open()
		n.kernel.Sets, n.kernel.Flows, n.kernel.Node = sets, flows, labNode{quietNode{[]netip.Addr{n.Addr(false), n.Addr(true)}}, []*lab.Pod{n.client, n.server, n.member}}
		t.Cleanup(func() { _, _ = sets.Close(), flows.Close() })
		return err
	})
	return n
}

func (n *realNode) do(f func() error) {
	n.t.Helper()
	if err := n.Do(f); err != nil {
		n.t.Fatal(err)
	}
}

// start begins an agent that knows nothing of earlier ones.
func (n *realNode) start() {
	n.t.Helper()
	n.do(func() (err error) {
		n.agent, err = Open(context.Background(), dataplane.Defaults(), n.kernel, slog.New(slog.DiscardHandler))
		return err
	})
	n.graph = calc.New("n")
	n.graph.Apply(n.desired())
}

// desired is what the datastore has: each round another pod is a friend of the server, and another one comes and goes.
func (n *realNode) desired() []model.Update {
	tcp := model.ProtoTCP
	rule := func(role string, port uint16) model.Rule {
		r := model.Rule{Action: model.Allow, Protocol: &tcp, Destination: model.Entity{Ports: []model.PortRange{{Lo: port, Hi: port}}}}
		if role != "" {
			r.Source.Selector = selector.Equal("role", role)
		}
		return r
	}
	datagrams := rule("", portOpen)
	datagrams.Protocol = new(model.ProtoUDP)
	friend := n.rounds%2 == 1
	policy := &model.Policy{Tier: model.TierDefault, Order: 1, Selector: selector.Equal("app", "server"), AppliesIngress: true,
		Ingress: []model.Rule{rule("", portOpen), rule("friend", portFriends), rule("", 1000+uint16(n.rounds%50)), datagrams}}
	egress := &model.Policy{Tier: model.TierDefault, Order: 2, Selector: selector.Equal("from", "here"), AppliesEgress: true, Egress: []model.Rule{{Action: model.Allow}}}
	list := []model.Update{model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "egress"}, Policy: egress}, model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "p"}, Policy: policy}}
	endpoint := func(name, iface string, addrs []netip.Addr, labels map[string]string) {
		labels["from"] = "here"
		list = append(list, model.EndpointUpdate{ID: model.WorkloadID("t", name), Endpoint: &model.Endpoint{Node: "n", Iface: iface, Addrs: addrs, Labels: labels}})
	}
	role := map[bool]string{true: "friend", false: "stranger"}
	endpoint("client", n.client.Iface(), n.client.Addrs(), map[string]string{"role": role[friend]})
	endpoint("member", n.member.Iface(), n.member.Addrs(), map[string]string{"role": role[!friend]})
	endpoint("server", n.server.Iface(), n.server.Addrs(), map[string]string{"app": "server"})
	come, go_ := "odd", "even"
	if !friend {
		come, go_ = go_, come
	}
	endpoint(come, "cali-"+come, []netip.Addr{netip.MustParseAddr("10.65.77.7")}, map[string]string{"app": "server", "x": come})
	return append(list, model.EndpointUpdate{ID: model.WorkloadID("t", go_)}, model.InSync{})
}

// next makes the next round what is desired.
func (n *realNode) next() {
	n.rounds++
	n.graph.Apply(n.desired())
}

var errKilled = errors.New("killed")

// apply applies what is desired. The agent is killed before the step of the order with that number, if it is not below 0: what it has
// written remains, and nothing else of it. It reports whether it was.
func (n *realNode) apply(step int) (killed bool) {
	n.t.Helper()
	if step >= 0 {
		saved := slices.Clone(order)
		order[step].do = func(*state) error { panic(errKilled) }
		defer func() { copy(order, saved) }()
	}
	changes := n.graph.Flush()
	n.do(func() (err error) {
		defer func() {
			if r := recover(); r == errKilled {
				killed = true
			} else if r != nil {
				panic(r)
			}
		}()
		if err = n.agent.Apply(context.Background(), changes); err == nil {
			err = n.agent.Apply(context.Background(), model.Changes{InSync: true}) // what is left to be cleaned up
		}
		return err
	})
	return killed
}

// check demands that what is desired is enforced, by chains and sets of one world.
func (n *realNode) check(when string) {
	n.t.Helper()
	want := map[bool]echo.Outcome{true: echo.Connected, false: echo.Timeout}[n.rounds%2 == 1]
	timeout := map[echo.Outcome]time.Duration{echo.Connected: 20 * time.Second, echo.Timeout: 100 * time.Millisecond}[want]
	if got := echo.DialTCP(n.client.Host, netip.AddrPortFrom(n.server.Addr4(), portFriends), timeout); got.Outcome != want {
		n.t.Errorf("%s: port %d is %v, want %v", when, portFriends, got.Outcome, want)
	}
	names, err := n.kernel.Sets.Names("mgy")
	if err != nil || len(names) != 10 {
		n.t.Errorf("%s: sets %q, %v", when, names, err)
	}
	worlds := 0
	for _, tools := range n.kernel.Others(context.Background()) {
		saved, err := n.Run(context.Background(), "", "iptables-"+string(tools.Backend)+"-save")
		if err != nil {
			n.t.Error(err)
		}
		for _, world := range chains.Worlds {
			if strings.Contains(saved, ":"+chains.Names{World: world}.Chain("")) {
				worlds++
			}
		}
	}
	if worlds != 1 {
		n.t.Errorf("%s: there are chains of %d worlds", when, worlds)
	}
}
