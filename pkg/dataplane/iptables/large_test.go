package iptables

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/iptables"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// crowdedNode has interfaces of many pods that are not there.
type crowdedNode struct {
	labNode
	more map[string]uint32
}

func (n crowdedNode) Interfaces() map[string]uint32 {
	all := n.labNode.Interfaces()
	maps.Copy(all, n.more)
	return all
}

// cpu is the CPU time of this process and of the commands that it has started and waited for.
func cpu(t testing.TB) (sum time.Duration) {
	t.Helper()
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err != nil {
			t.Fatal(err)
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}

// largePolicy selects pod i, with so many rules; no other pod's policy has the same ones.
func largePolicy(i, rules int) model.Update {
	key := model.PolicyKey{Kind: model.KindNetworkPolicy, Namespace: fmt.Sprintf("ns-%d", i), Name: "large"}
	tcp := model.ProtoTCP
	p := &model.Policy{Tier: model.TierDefault, Order: 1, Selector: selector.Equal("pod", fmt.Sprint(i)), AppliesIngress: true}
	for r := range rules {
		port := uint16(1 + i + 61*r)
		p.Ingress = append(p.Ingress, model.Rule{Action: model.Allow, Index: r, Protocol: &tcp, Destination: model.Entity{Ports: []model.PortRange{{Lo: port, Hi: port}}}})
	}
	return model.PolicyUpdate{Key: key, Policy: p}
}

func largePod(i int) model.Update {
	a := netip.AddrFrom4([4]byte{10, 65, byte(100 + i/200), byte(1 + i%200)})
	return model.EndpointUpdate{ID: model.WorkloadID(fmt.Sprintf("ns-%d", i), "pod"),
		Endpoint: &model.Endpoint{Node: "n", Iface: fmt.Sprintf("cali-l%d", i), Addrs: []netip.Addr{a}, Labels: map[string]string{"pod": fmt.Sprint(i)}}}
}

// BenchmarkManyLargePolicies measures how long it takes until 100 policies of 1,000 rules each are enforced that come to pods of a node,
// and the longest Apply: others' changes wait that long at most.
func BenchmarkManyLargePolicies(b *testing.B) {
	for _, backend := range []iptables.Backend{iptables.Legacy, iptables.NFT} {
		n := newRealNode(b, backend)
		const pods, rules = 100, 1000
		node := crowdedNode{labNode: labNode{pods: []*lab.Pod{n.client, n.server, n.member}}, more: map[string]uint32{}}
		var come, large []model.Update
		for i := range pods {
			node.more[fmt.Sprintf("cali-l%d", i)] = uint32(10_000 + i)
			come, large = append(come, largePod(i)), append(large, largePolicy(i, rules))
		}
		n.kernel.Node = node
		n.start()
		n.apply(-1)
		n.graph.Apply(come)
		n.apply(-1)
		start, began := cpu(b), time.Now()
		n.graph.Apply(large)
		applies, longest := n.applyAll()
		for _, e := range n.agent.Endpoints() {
			if strings.HasPrefix(e.Iface, "cali-l") && e.Condition != dataplane.Enforced {
				b.Fatalf("%v is %v: %s", e.ID, e.Condition, e.Reason)
			}
		}
		b.Logf("%s: enforced after %v, %v of CPU, %d applies, the longest %v", backend, time.Since(began), cpu(b)-start, applies, longest)
	}
}

// applyAll applies what is desired until nothing of large policies is left.
func (n *realNode) applyAll() (applies int, longest time.Duration) {
	n.t.Helper()
	n.do(func() error {
		for ch := n.graph.Flush(); ; ch = (model.Changes{InSync: true}) {
			start := time.Now()
			if err := n.agent.Apply(context.Background(), ch); err != nil {
				return err
			}
			applies++
			if longest = max(longest, time.Since(start)); !n.agent.unfinished() {
				return nil
			}
		}
	})
	return applies, longest
}
