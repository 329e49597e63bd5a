package bpf

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/calc"
	"github.com/margay-project/margay/pkg/dataplane"
	"github.com/margay-project/margay/pkg/model"
	"github.com/margay-project/margay/pkg/selector"
)

func TestWhatTakesARestartCannotBeConfigured(t *testing.T) {
	dp := &BPF{config: dataplane.Defaults()}
	fake := dataplane.NewFake()
	for name, change := range map[string]func(*dataplane.Config){
		"BPFFS":           func(c *dataplane.Config) { c.BPFFS = "/elsewhere" },
		"Instance":        func(c *dataplane.Config) { c.Instance = "other" },
		"InterfacePrefix": func(c *dataplane.Config) { c.InterfacePrefix = "tap" },
		"MapSizes":        func(c *dataplane.Config) { c.MapSizes = map[string]uint32{"ct4": 5} },
		"MarkMask":        func(c *dataplane.Config) { c.MarkMask = 7 },
	} {
		c := dataplane.Defaults()
		c.HostDrop = true
		change(&c)
		for _, d := range []dataplane.Dataplane{dp, fake} {
			if err := d.Configure(c); err == nil || !strings.Contains(err.Error(), ": "+name+" cannot be changed") {
				t.Errorf("%T: another %s: error %v", d, name, err)
			}
		}
	}
	if err := fake.Reopen(); err != nil || dp.next != nil || !reflect.DeepEqual(fake.State().Config, dataplane.Defaults()) {
		t.Error("something is set that was refused")
	}
}

// refusingHost takes no other programs than the first.
type refusingHost struct {
	*FakeHost
	err error
}

func (h *refusingHost) Use(*bpfmaps.Programs, string, []string) error { return h.err }

// TestAConfigurationThatCannotBeLoadedIsGivenUp: what was in force stays, and the dataplane can be used again.
func TestAConfigurationThatCannotBeLoadedIsGivenUp(t *testing.T) {
	n := startNode(t, restartStages[0])
	programs, before := n.Programs(), n.config
	n.BPF.kernel.host = &refusingHost{n.host, errors.New("no memory")}
	c := before
	c.HostDrop = true
	must(t, n.Configure(c))
	if err := n.Reopen(); err == nil || !strings.Contains(err.Error(), "configuration stays what it was: no memory") {
		t.Errorf("error %v", err)
	}
	must(t, n.Reopen())
	if n.Programs() != programs || n.config.HostDrop {
		t.Error("the programs are others, or the configuration is")
	}
	n.graph = calc.New("n")
	n.mustApply(t, restartStages[0].updates()...)
	if !passes(t, n.BPF, "10.0.0.1", 80) || passes(t, n.BPF, "10.0.0.2", 80) {
		t.Error("policy is not what it was")
	}
}

// yard is a node with two pods, on interfaces of the kernel.
type yard struct {
	t          *testing.T
	node, a, b *testutil.Namespace
	dp         *BPF
	config     dataplane.Config
}

const (
	nodeAddr, addrA, addrB = "10.65.0.1", "10.65.0.2", "10.65.1.2"
	// What pods may send the node, as far as policy goes, and what they may not.
	allowedPort, deniedPort = "7000", "7001"
	podPort                 = "9000"
)

// addressedHost is a Linux whose addresses do not change: its watch would read those of the machine, since the test
// alone is in the node's namespace.
type addressedHost struct {
	*Linux
	addrs []netip.Addr
}

func (h *addressedHost) Addrs() []netip.Addr { return h.addrs }

func newYard(t *testing.T) *yard {
	testutil.Privileged(t)
	y := &yard{t: t, node: testutil.NetNS(t), a: testutil.NetNS(t), b: testutil.NetNS(t), config: dataplane.Defaults()}
	y.config.BPFFS, y.config.EventRate = testutil.BPFFS(t), 0
	y.node.Enter(t)
	y.plug(y.a, "calia", nodeAddr, addrA)
	y.plug(y.b, "calib", "10.65.1.1", addrB)
	must(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644))
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	host, err := OpenLinux("cali", log)
	must(t, err)
	addrs := []netip.Addr{netip.MustParseAddr(nodeAddr), netip.MustParseAddr("10.65.1.1")}
	y.dp, err = OpenBPF(y.config, &addressedHost{host, addrs}, log)
	must(t, err)
	t.Cleanup(func() { must(t, y.dp.Close()) })
	y.apply()
	return y
}

// plug connects a pod to the node, which is its gateway.
func (y *yard) plug(pod *testutil.Namespace, iface, gateway, addr string) {
	y.t.Helper()
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: iface}, PeerName: "eth0", PeerNamespace: netlink.NsFd(pod.Fd())}
	must(y.t, netlink.LinkAdd(veth))
	addressed(y.t, iface, gateway)
	pod.Do(y.t, func() {
		addressed(y.t, "eth0", addr)
		must(y.t, netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(gateway)}))
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func addressed(t *testing.T, link, addr string) {
	t.Helper()
	l, err := netlink.LinkByName(link)
	must(t, err)
	must(t, netlink.AddrAdd(l, &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(addr).To4(), Mask: net.CIDRMask(24, 32)}}))
	must(t, netlink.LinkSetUp(l))
}

// apply gives the dataplane everything that is desired, as after a Reopen.
func (y *yard) apply() {
	y.t.Helper()
	udp := model.ProtoUDP
	to := func(text string) (list []model.PortRange) {
		p := netip.MustParseAddrPort("0.0.0.0:" + text).Port()
		return []model.PortRange{{Lo: p, Hi: p}}
	}
	graph := calc.New("n")
	graph.Apply([]model.Update{
		endpoint4("a", "calia", addrA, map[string]string{"app": "a"}),
		endpoint4("b", "calib", addrB, map[string]string{"app": "a"}),
		model.PolicyUpdate{Key: model.PolicyKey{Kind: model.KindGlobalNetworkPolicy, Name: "p"}, Policy: &model.Policy{
			Tier: model.TierDefault, Order: 1, Selector: selector.Equal("app", "a"), AppliesIngress: true, AppliesEgress: true,
			Ingress: []model.Rule{{Action: model.Allow, Protocol: &udp, Destination: model.Entity{Ports: to(podPort)}}},
			Egress:  []model.Rule{{Action: model.Allow, Protocol: &udp, Destination: model.Entity{Ports: slices.Concat(to(allowedPort), to(podPort))}}},
		}},
		model.InSync{},
	})
	must(y.t, y.dp.Apply(context.Background(), graph.Flush()))
}

// configure changes the configuration as an agent does.
func (y *yard) configure(change func(*dataplane.Config)) {
	y.t.Helper()
	change(&y.config)
	must(y.t, y.dp.Configure(y.config))
	must(y.t, y.dp.Reopen())
	y.apply()
}

// echo answers at addr until the test ends, and counts.
func (y *yard) echo(in *testutil.Namespace, addr string) *atomic.Int64 {
	y.t.Helper()
	var got atomic.Int64
	in.Do(y.t, func() {
		conn, err := net.ListenPacket("udp4", addr)
		must(y.t, err)
		y.t.Cleanup(func() { conn.Close() })
		go func() {
			buf := make([]byte, 64)
			for {
				n, from, err := conn.ReadFrom(buf)
				if err != nil {
					return
				}
				got.Add(1)
				_, _ = conn.WriteTo(buf[:n], from) // the test counts what does not arrive
			}
		}()
	})
	return &got
}

func (y *yard) dial(from *testutil.Namespace, to string) net.Conn {
	y.t.Helper()
	var conn net.Conn
	from.Do(y.t, func() {
		var err error
		conn, err = net.Dial("udp4", to)
		must(y.t, err)
	})
	y.t.Cleanup(func() { conn.Close() })
	return conn
}

// answered reports whether a first packet over a connection is answered. An answer that is wanted may take its time.
func answered(t *testing.T, conn net.Conn, want bool) bool {
	t.Helper()
	patience := 200 * time.Millisecond
	if want {
		patience = 20 * time.Second
	}
	_, err := conn.Write([]byte("hello"))
	must(t, err)
	must(t, conn.SetReadDeadline(time.Now().Add(patience)))
	_, err = conn.Read(make([]byte, 64))
	return err == nil
}

// stream is packets over one connection without a pause.
type stream struct {
	conn       net.Conn
	sent, back atomic.Int64
	stop       chan struct{}
	sender     sync.WaitGroup
	receiver   sync.WaitGroup
}

func newStream(t *testing.T, conn net.Conn) *stream {
	t.Helper()
	must(t, conn.SetReadDeadline(time.Time{}))
	s := &stream{conn: conn, stop: make(chan struct{})}
	s.sender.Go(func() {
		tick := time.NewTicker(200 * time.Microsecond)
		defer tick.Stop()
		for {
			select {
			case <-s.stop:
				return
			case <-tick.C:
				if _, err := conn.Write([]byte("hello")); err == nil {
					s.sent.Add(1)
				}
			}
		}
	})
	s.receiver.Go(func() {
		buf := make([]byte, 64)
		for {
			if _, err := conn.Read(buf); err != nil {
				return
			}
			s.back.Add(1)
		}
	})
	return s
}

// end stops sending, and waits for answers that are under way if there are to be any.
func (s *stream) end(t *testing.T, answered bool) {
	t.Helper()
	close(s.stop)
	s.sender.Wait()
	for over := time.Now().Add(20 * time.Second); answered && s.back.Load() < s.sent.Load() && time.Now().Before(over); {
		time.Sleep(time.Millisecond)
	}
	must(t, s.conn.SetReadDeadline(time.Now()))
	s.receiver.Wait()
}

// TestConfiguredUnderTraffic changes what becomes of packets to the node, and the timeouts, again and again while flows
// go on: those that policy allows and that were there before lose no packet, what policy denies gets through never, and
// new flows to the node find each change in force.
func TestConfiguredUnderTraffic(t *testing.T) {
	y := newYard(t)
	y.echo(y.node, nodeAddr+":"+allowedPort)
	denied := y.echo(y.node, nodeAddr+":"+deniedPort)
	y.echo(y.b, addrB+":"+podPort)
	inbound, across := y.dial(y.node, addrB+":"+podPort), y.dial(y.a, addrB+":"+podPort)
	if !answered(t, inbound, true) || !answered(t, across, true) {
		t.Fatal("the flows do not get through before anything is changed")
	}
	allowed := []*stream{newStream(t, inbound), newStream(t, across)}
	forbidden := newStream(t, y.dial(y.a, nodeAddr+":"+deniedPort))
	started := time.Now()
	const changes = 8
	for i := range changes {
		y.configure(func(c *dataplane.Config) {
			c.HostDrop = i%2 == 0
			c.Timeouts.UDP = time.Duration(60+i) * time.Second
			c.NoShortcut, c.StrictMidFlow, c.TunnelPorts = i%3 != 0, i%2 == 1, []uint16{uint16(4789 + i)}
		})
		if got := answered(t, y.dial(y.a, nodeAddr+":"+allowedPort), !y.config.HostDrop); got == y.config.HostDrop {
			t.Errorf("change %d, drop to the node: %v: a new flow to the node is answered: %v", i, y.config.HostDrop, got)
		}
	}
	took := time.Since(started)
	for i, s := range allowed {
		s.end(t, true)
		if sent, back := s.sent.Load(), s.back.Load(); sent != back || sent < 100 {
			t.Errorf("flow %s: %d packets sent, %d came back", []string{"from the node", "from pod to pod"}[i], sent, back)
		}
	}
	forbidden.end(t, false)
	if sent := forbidden.sent.Load(); denied.Load() != 0 || sent < 100 {
		t.Errorf("of %d packets that policy denies %d got through", sent, denied.Load())
	}
	t.Logf("%d changes in %v; %d and %d packets allowed, %d denied", changes, took, allowed[0].sent.Load(),
		allowed[1].sent.Load(), forbidden.sent.Load())
}

// TestTimeoutsAreConfigured: flows that were there before are kept, and end by the new timeout.
func TestTimeoutsAreConfigured(t *testing.T) {
	y := newYard(t)
	y.echo(y.node, nodeAddr+":"+allowedPort)
	if !answered(t, y.dial(y.a, nodeAddr+":"+allowedPort), true) {
		t.Fatal("the flow does not get through")
	}
	over := time.Now().Add(2100 * time.Millisecond)
	testutil.WaitFor(t, time.Minute, "the flow to be idle for two seconds", func() bool { return time.Now().After(over) })
	if n := y.sweep(); n == 0 {
		t.Fatal("the flow ended before its time")
	}
	y.configure(func(c *dataplane.Config) { c.EventRate = 1 })
	if n := y.sweep(); n == 0 {
		t.Error("a change of something else has ended the flow")
	}
	y.configure(func(c *dataplane.Config) { c.Timeouts.UDP = time.Second })
	if n := y.sweep(); n != 0 {
		t.Errorf("%d flows have not ended by the new timeout", n)
	}
}

// sweep removes expired flows from all tables and returns how many flows are left.
func (y *yard) sweep() int {
	y.t.Helper()
	y.dp.sweeps.began = time.Time{} // another round at once
	for again := true; again; again = y.dp.sweeps.running {
		_, err := y.dp.Sweep()
		must(y.t, err)
	}
	n := 0
	for _, err := range y.dp.Maps().Flows.All() {
		must(y.t, err)
		n++
	}
	return n
}
