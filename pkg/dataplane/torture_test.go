package dataplane

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
	drops, err := w.dp.Maps().Drops()
	if err != nil {
		t.Fatal(err)
	}
	var denied, other uint64
	for key, n := range drops {
		if key.Ifindex != loopback {
			continue
		}
		if bpf.DropReason(key.Reason) == bpf.MargayDropReasonDROP_POLICY {
			denied += n.Packets
		} else {
			other += n.Packets
			t.Errorf("%d packets dropped: %s", n.Packets, bpf.Text(bpf.DropReason(key.Reason)))
		}
	}
	if denied != w.denied || other != 0 {
		t.Errorf("%d packets of the denied flow were sent, %d packets were denied by policy", w.denied, denied)
	}
	if w.lost != 0 || w.passed != 0 {
		t.Errorf("batches that ended with a packet of the allowed flow dropped: %d, of the denied flow passed: %d", w.lost, w.passed)
	}
	t.Logf("%d flips, %d policy and member changes, %d packets of an allowed flow, %d of a denied one", flips, changes, w.allowed, w.denied)
}

const loopback = 1

type torture struct {
	dp    *BPF
	graph *calc.Graph
	host  *FakeHost
	gens  *bpfmaps.Generations

	allowed, denied, lost, passed uint64 // written by send, read when it is done
}

var (
	tortureA = model.EndpointID{Namespace: "t", Name: "a"}
	tortureB = model.EndpointID{Namespace: "t", Name: "b"}
)

func newTorture(t *testing.T) *torture {
	c := Defaults()
	c.BPFFS, c.Shortcut, c.EventRate = testutil.BPFFS(t), false, 0
	c.MapEntries = map[string]uint32{bpf.MargayMapIp4Host: 4096, bpf.MargayMapIp6Host: 64, bpf.MargayMapCt4Open: 1024,
		bpf.MargayMapCt6Open: 64, bpf.MargayMapCt4Half: 1024, bpf.MargayMapCt6Half: 64}
	w := &torture{graph: calc.New(""), host: NewFakeHost()}
	w.host.Ifaces = map[string]uint32{"calia": 1000, "calib": 1001}
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

func endpoint4(name, iface, addr string, labels map[string]string) model.EndpointUpdate {
	return model.EndpointUpdate{
		ID:       model.EndpointID{Namespace: "t", Name: name},
		Endpoint: &model.Endpoint{Node: "n", Iface: iface, Addrs: []netip.Addr{netip.MustParseAddr(addr)}, Labels: labels},
	}
}

// change gives both endpoints other policies, which agree only in what they say of friend and stranger, and moves
// another endpoint into or out of their sets. Then the victim, which the packets go to, has policy a.
func (w *torture) change(t *testing.T, n int) {
	t.Helper()
	role := []string{"friend", "stranger", "nobody"}[n%3]
	w.graph.Apply([]model.Update{
		torturePolicy("a", 10+n%37), torturePolicy("b", 60+n%23),
		endpoint4("guest", "", fmt.Sprintf("10.0.1.%d", n%5), map[string]string{"role": role}),
	})
	if err := w.dp.Apply(context.Background(), w.graph.Flush()); err != nil {
		t.Fatal(err)
	}
	w.flip(t, 0)
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

// flip publishes the policy of a or b as the victim's, by the one store that a publication is.
func (w *torture) flip(t *testing.T, n int) {
	id := tortureA
	if n%2 == 1 {
		id = tortureB
	}
	entry, ok := w.dp.Kernel(id)
	if !ok {
		t.Fatalf("%s is not in the kernel", id)
	}
	slot, _ := bpfmaps.SplitPolicyWord(entry.Ingress)
	gen, err := w.dp.gens.Next()
	if err != nil {
		t.Fatal(err)
	}
	if _, there := w.dp.endpoints.Get(loopback); there {
		if err := w.dp.endpoints.Flip(loopback, bpfmaps.Ingress, slot, gen); err != nil {
			t.Fatal(err)
		}
		return
	}
	entry.Ifindex, entry.Ingress = loopback, bpfmaps.PolicyWord(slot, gen)
	if err := w.dp.SetKernel(entry); err != nil {
		t.Fatal(err)
	}
}

// send runs to_pod with packets of both flows until told to stop.
func (w *torture) send(stop <-chan struct{}) error {
	const batch = 200
	program, err := w.dp.Programs().Get(bpf.MargayProgToPod)
	if err != nil {
		return err
	}
	run := func(src string) (allowed bool, err error) {
		ret, err := program.Run(&ebpf.RunOptions{Data: testutil.FromTo(src, "10.0.0.10",
			testutil.TCP{SrcPort: 40000, DstPort: 80, Flags: testutil.SYN}).Bytes(), Context: &skbContext{IngressIfindex: 2}, Repeat: batch})
		return int32(ret) == -1, err
	}
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		ok, err := run("10.0.0.1")
		if err != nil {
			return err
		}
		w.allowed += batch
		if !ok {
			w.lost++
		}
		if ok, err = run("10.0.0.2"); err != nil {
			return err
		}
		w.denied += batch
		if ok {
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
