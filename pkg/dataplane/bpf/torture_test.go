package bpf

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

// TestFlipsUnderPackets is P10: a million publications with members coming and going, while packets of an allowed flow
// and of a denied one are judged without a pause. Not one of the first may be dropped, not one of the second may pass.
func TestFlipsUnderPackets(t *testing.T) {
	testutil.Privileged(t)
	flips, changes := 1_000_000, 400
	if testing.Short() {
		flips, changes = 50_000, 20
	}
	w := newTorture(t)
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- w.send(stop) }()
	for change := range changes {
		w.change(t, change)
		for n := range flips / changes {
			w.flip(t, n)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if w.lost != 0 || w.passed != 0 {
		t.Errorf("packets of the allowed flow dropped: %d, of the denied flow passed: %d", w.lost, w.passed)
	}
	t.Logf("%d flips, %d policy and member changes, %d packets of an allowed flow, %d of a denied one", flips, changes, w.allowed, w.denied)
}

const loopback = 1

type torture struct {
	dp    *BPF
	graph *calc.Graph
	host  *FakeHost
	slots [2]uint32 // of the policies of a and b

	allowed, denied, lost, passed uint64 // written by send, read when it is done
}

var (
	tortureA = model.WorkloadID("t", "a")
	tortureB = model.WorkloadID("t", "b")
)

func newTorture(t *testing.T) *torture {
	c := dataplane.Defaults()
	c.BPFFS, c.NoShortcut, c.EventRate = testutil.BPFFS(t), true, 0
	c.MapSizes = map[string]uint32{bpf.MargayMapIp4Host: 4096, bpf.MargayMapIp6Host: 64, bpf.MargayMapCt4: 2048,
		bpf.MargayMapCt6: 2048}
	w := &torture{graph: calc.New("n"), host: NewFakeHost()}
	w.host.Ifaces = map[string]uint32{"calia": loopback, "calib": 1001}
	dp, err := OpenBPF(c, w.host, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dp.Close(); err != nil {
			t.Error(err)
		}
	})
	w.dp = dp
	w.graph.Apply([]model.Update{
		endpoint4("a", "calia", "10.0.0.10", map[string]string{"app": "a"}),
		endpoint4("b", "calib", "10.0.0.11", map[string]string{"app": "b"}),
		endpoint4("friend", "", "10.0.0.1", map[string]string{"role": "friend"}),
		endpoint4("stranger", "", "10.0.0.2", map[string]string{"role": "stranger"}),
		model.InSync{},
	})
	w.change(t, 0)
	return w
}

// endpoint4 is an endpoint of node n, or, without an interface, of another one.
func endpoint4(name, iface, addr string, labels map[string]string) model.EndpointUpdate {
	node := "n"
	if iface == "" {
		node = "elsewhere"
	}
	return model.EndpointUpdate{
		ID:       model.WorkloadID("t", name),
		Endpoint: &model.Endpoint{Node: node, Iface: iface, Addrs: []netip.Addr{netip.MustParseAddr(addr)}, Labels: labels},
	}
}

// change gives both endpoints other policies, which agree only in what they say of friend and stranger, and moves
// another endpoint into or out of their sets. The packets go to a, which has its own policy meanwhile.
func (w *torture) change(t *testing.T, n int) {
	t.Helper()
	if n > 0 {
		w.flip(t, 0)
	}
	role := []string{"friend", "stranger", "nobody"}[n%3]
	w.graph.Apply([]model.Update{
		torturePolicy("a", 10+n%37), torturePolicy("b", 60+n%23),
		endpoint4("guest", "", fmt.Sprintf("10.0.1.%d", n%5), map[string]string{"role": role}),
	})
	if err := w.dp.Apply(context.Background(), w.graph.Flush()); err != nil {
		t.Fatal(err)
	}
	w.slots = [2]uint32{w.slot(t, tortureA), w.slot(t, tortureB)}
}

func (w *torture) slot(t *testing.T, id model.EndpointID) uint32 {
	t.Helper()
	entry, ok := w.dp.Kernel(id)
	if !ok {
		t.Fatalf("%s is not in the kernel", id)
	}
	slot, _ := bpfmaps.SplitPolicyWord(entry.Ingress)
	return slot
}

// torturePolicy allows friends to port 80, behind any number of other rules.
func torturePolicy(name string, rules int) model.PolicyUpdate {
	tcp := model.ProtoTCP
	p := &model.Policy{Tier: model.TierDefault, Order: 1, Selector: selector.Equal("app", name), AppliesIngress: true}
	for i := range rules {
		port := uint16(1000 + 7*i + rules)
		p.Ingress = append(p.Ingress, model.Rule{Action: model.Allow, Index: i, Protocol: &tcp,
			Source:      model.Entity{Selector: selector.Equal("role", []string{"friend", "nobody"}[i%2])},
			Destination: model.Entity{Ports: []model.PortRange{{Lo: port, Hi: port + uint16(i%3)}}}})
	}
	p.Ingress = append(p.Ingress, model.Rule{Action: model.Allow, Index: rules, Protocol: &tcp,
		Source:      model.Entity{Selector: selector.Equal("role", "friend")},
		Destination: model.Entity{Ports: []model.PortRange{{Lo: 80, Hi: 80}}}})
	return model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: name}, Policy: p}
}

// flip publishes the policy of a or b as that of a, by the one store that it is in production, too.
func (w *torture) flip(t *testing.T, n int) {
	gen, err := w.dp.kernel.gens.Next()
	if err != nil {
		t.Fatal(err)
	}
	ep, ok := w.dp.kernel.endpoints.Get(loopback)
	if !ok {
		t.Fatal("the endpoint of the loopback interface is gone")
	}
	ep.Ingress = bpfmaps.PolicyWord(w.slots[n%2], gen)
	if err := w.dp.kernel.endpoints.Set(ep); err != nil {
		t.Fatal(err)
	}
}

// send runs to_pod with packets of both flows in turn until told to stop.
func (w *torture) send(stop <-chan struct{}) error {
	program, err := w.dp.Programs().Get(bpf.MargayProgToPod)
	if err != nil {
		return err
	}
	frame := func(src string) *ebpf.RunOptions {
		return &ebpf.RunOptions{Context: &skbContext{IngressIfindex: 2}, Data: testutil.FromTo(src, "10.0.0.10",
			testutil.TCP{SrcPort: 40000, DstPort: 80, Flags: testutil.SYN}).Bytes()}
	}
	friend, stranger := frame("10.0.0.1"), frame("10.0.0.2")
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		ret, err := program.Run(friend)
		if err != nil {
			return err
		}
		w.allowed++
		if int32(ret) != -1 {
			w.lost++
		}
		if ret, err = program.Run(stranger); err != nil {
			return err
		}
		w.denied++
		if int32(ret) == -1 {
			w.passed++
		}
	}
}

// skbContext is the part of struct __sk_buff a test-run takes.
type skbContext struct {
	_              [9]uint32
	IngressIfindex uint32
	_              [152]byte
}
