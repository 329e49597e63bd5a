package iptables

import (
	"maps"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/margay-project/margay/internal/oracle"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
	"github.com/margay-project/margay/pkg/model"
)

// patience is how long what must happen may take on a busy machine.
const patience = time.Minute

// tenant is a pod with policies of its own, and the pod that connects to it, which is the next tenant's.
type tenant struct {
	i         int
	pod, peer *lab.Pod
	policy    tenantPolicy
	allowed   bool     // the peer's connections to portProbed, by policy
	live      net.Conn // one of those, open since they are allowed
	probed    *echo.Server
	denied    uint16 // the source port of the last attempt that policy denied
	witness   *traffic.Tap
	intruders atomic.Uint64 // SYNs of such attempts that have come to the pod
	flows     tenantFlows
}

// tenants are many of them on a real node.
type tenants struct {
	*realNode
	list []*tenant
	rand *rand.Rand
	tenantCounts
}

type tenantCounts struct {
	changes, flushes                int // those that were probed
	opened, refused, continued, cut atomic.Uint64
}

// newTenants makes a node with an agent and that many tenants, whose policies are in force.
func newTenants(t testing.TB, backend iptables.Backend, count int, seed uint64) *tenants {
	n := &tenants{realNode: newRealNode(t, backend), rand: rand.New(rand.NewPCG(seed, 2))}
	pods := make([]*lab.Pod, count)
	errs := make([]error, count)
	var group sync.WaitGroup
	for i := range pods {
		group.Go(func() { pods[i], errs[i] = n.AddPod("t", label(i)) })
	}
	group.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
		n.list = append(n.list, &tenant{i: i, pod: pods[i], peer: pods[(i+1)%count], denied: firstDenied,
			policy: tenantPolicy{a: model.Deny, b: model.Allow, e: model.Allow}, allowed: true})
	}
	n.kernel.Node = labNode{pods: append(pods, n.client, n.server, n.member)}
	n.start()
	n.graph.Apply(n.objects())
	n.apply(-1)
	if _, err := echo.ListenTCP(n.server.Host, portFriends); err != nil {
		t.Fatal(err)
	}
	for _, x := range n.list {
		if err := x.start(); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// objects are the objects of all tenants.
func (n *tenants) objects() []model.Update {
	list := []model.Update{model.TierUpdate{Name: tierFront, Tier: &model.Tier{Order: 1, Default: model.Pass}}}
	for i, x := range n.list {
		before := n.list[(i+len(n.list)-1)%len(n.list)]
		list = append(append(list, x.policy.updates(i, x.peer.Addrs())...), x.endpoint(before.policy.labels(before.i)))
	}
	return list
}

// endpoint is the tenant's pod, with these labels and its own.
func (x *tenant) endpoint(labels map[string]string) model.Update {
	all := map[string]string{"server": label(x.i)}
	maps.Copy(all, labels)
	return model.EndpointUpdate{ID: model.WorkloadID("t", label(x.i)),
		Endpoint: &model.Endpoint{Node: "n", Iface: x.pod.Iface(), Addrs: x.pod.Addrs(), Labels: all}}
}

// packet is the first one of a connection of the peer to portProbed.
func (x *tenant) packet(v6 bool) model.Packet {
	return model.Packet{Src: x.peer.Addr(v6), Dst: x.pod.Addr(v6), Protocol: model.ProtoTCP, SrcPort: 40000, DstPort: portProbed}
}

// change changes one object of a tenant so that its verdict becomes the other one.
func (n *tenants) change(x *tenant) {
	n.t.Helper()
	next := n.list[(x.i+1)%len(n.list)]
	choices := x.policy.neighbours(n.rand)
	n.rand.Shuffle(len(choices), func(i, k int) { choices[i], choices[k] = choices[k], choices[i] })
	for _, policy := range choices {
		tier := model.TierUpdate{Name: tierFront, Tier: &model.Tier{Order: 1, Default: model.Pass}}
		updates := append(policy.updates(x.i, x.peer.Addrs()), tier, x.endpoint(nil), next.endpoint(policy.labels(x.i)))
		if c := oracle.New(updates); c.Flow(x.packet(false)).Allow() != x.allowed && c.Flow(x.packet(true)).Allow() != x.allowed {
			x.policy, x.allowed = policy, !x.allowed
			return
		}
	}
	n.t.Fatalf("no change of one object changes the verdict of %+v", x.policy)
}

// round has some tenants' policies change, and demands the verdicts of all tenants.
func (n *tenants) round() {
	n.t.Helper()
	some := len(n.list)
	if n.rand.IntN(4) == 0 {
		some = 1 + n.rand.IntN(3)
	}
	for _, i := range n.rand.Perm(len(n.list))[:some] {
		n.change(n.list[i])
	}
	n.next()
	n.graph.Apply(n.objects())
	n.apply(-1)
	n.probe()
	n.changes += some
	n.flushes++
}
