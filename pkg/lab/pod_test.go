package lab_test

import (
	"context"
	"net/netip"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/margay-project/margay/internal/labtest"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
	"github.com/margay-project/margay/pkg/lab/ns"
)

func TestPodIsWiredAsCalicoDoes(t *testing.T) {
	n := labtest.Node(t, labtest.New(t), "a")
	p := labtest.Pod(t, n, "web")
	if want := "cali551b05c3e54"; p.Iface() != want { // printf shop.web | sha1sum
		t.Errorf("interface %s, want %s", p.Iface(), want)
	}
	link := labtest.Must[netlink.Link](t)(n.Netlink().LinkByName(p.Iface()))
	if got := link.Attrs().HardwareAddr.String(); got != "ee:ee:ee:ee:ee:ee" {
		t.Errorf("host side has address %s", got)
	}
	if link.Attrs().Index != p.IfIndex() {
		t.Errorf("IfIndex is %d, want %d", p.IfIndex(), link.Attrs().Index)
	}
	if addrs := labtest.Must[[]netlink.Addr](t)(n.Netlink().AddrList(link, netlink.FAMILY_V4)); len(addrs) != 0 {
		t.Errorf("host side has IPv4 addresses %v, want none", addrs)
	}
	ctx := context.Background()
	for _, tc := range []struct {
		host *lab.Host
		args string
		want string
	}{
		{n.Host, "-4 route show " + p.Addr4().String(), `^10\.65\.1\.2 dev cali551b05c3e54 scope link`},
		{n.Host, "-6 route show " + p.Addr6().String(), `^fd65:0:0:1::2 dev cali551b05c3e54 `},
		{p.Host, "-4 route show default", `^default via 169\.254\.1\.1 dev eth0`},
		{p.Host, "-6 route show default", `^default via fe80::ecee:eeff:feee:eeee dev eth0`},
	} {
		out := labtest.Must[string](t)(tc.host.Run(ctx, "", "ip", strings.Fields(tc.args)...))
		if !regexp.MustCompile(tc.want).MatchString(out) {
			t.Errorf("ip %s in %s: %q, want %s", tc.args, tc.host.Name(), out, tc.want)
		}
	}
}

// Also the first packet of a new pod arrives: one echo request each way, over both families, before anything could be
// sent a second time.
func TestPodIsDeletedAndMadeAgain(t *testing.T) {
	n := labtest.Node(t, labtest.New(t), "a")
	peer := labtest.Pod(t, n, "peer")
	addrs := []netip.Addr{netip.MustParseAddr("10.65.1.77"), netip.MustParseAddr("fd65:0:0:1::77")}
	var before *lab.Pod
	for i := range 15 {
		name := "web"
		if i%2 == 1 {
			name = "other" // the same addresses on another interface
		}
		p := labtest.Pod(t, n, name, addrs...)
		if before != nil && (p.IfIndex() == before.IfIndex() || p.Namespace() == before.Namespace()) {
			t.Errorf("interface %d in %s is that of the pod before", p.IfIndex(), p.Namespace())
		}
		for _, a := range addrs {
			labtest.WantOutcome(t, "ping from the new pod", traffic.Ping(p.Host, peer.Addr(a.Is6()), labtest.First), echo.Connected)
			labtest.WantOutcome(t, "ping to the new pod", traffic.Ping(peer.Host, a, labtest.First), echo.Connected)
		}
		labtest.ListenTCP(t, p.Host, 80)
		if _, err := n.AddPod("shop", name); err == nil {
			t.Error("a pod was added twice")
		}
		if _, err := n.AddPod("shop", "thief", addrs...); err == nil {
			t.Error("an address was given out twice")
		}
		if n.Pod("shop", "thief") != nil || n.Pod("shop", name) != p {
			t.Error("the node's pods are wrong after a failure")
		}
		if err := n.DelPod(p); err != nil {
			t.Fatal(err)
		}
		if err := n.DelPod(p); err == nil {
			t.Error("a pod was deleted twice")
		}
		before = p
	}
	links := labtest.Must[[]netlink.Link](t)(n.Netlink().LinkList())
	var calis []string
	for _, l := range links {
		if strings.HasPrefix(l.Attrs().Name, "cali") {
			calis = append(calis, l.Attrs().Name)
		}
	}
	if len(calis) != 1 || calis[0] != peer.Iface() {
		t.Errorf("interfaces %v are left, want only %s", calis, peer.Iface())
	}
}

func TestPodOfOneFamily(t *testing.T) {
	n := labtest.Node(t, labtest.New(t), "a")
	dual := labtest.Pod(t, n, "dual")
	for _, a := range []netip.Addr{netip.MustParseAddr("10.65.1.9"), netip.MustParseAddr("fd65:0:0:1::9")} {
		p := labtest.Pod(t, n, a.String(), a)
		labtest.WantOutcome(t, "ping from a pod of one family", traffic.Ping(p.Host, dual.Addr(a.Is6()), labtest.Soon), echo.Connected)
		labtest.WantOutcome(t, "ping in the family it lacks", traffic.Ping(p.Host, dual.Addr(!a.Is6()), labtest.Never), echo.Unreachable)
	}
}

func TestCommandsRunInsideTheHost(t *testing.T) {
	testutil.RequireCommand(t, "ip")
	n := labtest.Node(t, labtest.New(t), "a")
	p := labtest.Pod(t, n, "web")
	out := labtest.Must[string](t)(p.Run(context.Background(), "", "ip", "-o", "link", "show"))
	if !strings.Contains(out, "eth0@") || strings.Contains(out, "cali") {
		t.Errorf("links seen from the pod: %s", out)
	}
	if _, err := p.Run(context.Background(), "", "ip", "link", "show", "nothing"); err == nil ||
		!strings.Contains(err.Error(), "nothing") {
		t.Errorf("a failing command gives %v", err)
	}
}

func TestCloseEndsProbesAndRemovesEverything(t *testing.T) {
	l := labtest.New(t)
	a, b := labtest.Node(t, l, "a"), labtest.Node(t, l, "b")
	client, serving := labtest.Pod(t, a, "client"), labtest.Pod(t, b, "server")
	tcp, udp := labtest.ListenTCP(t, serving.Host, 80), labtest.ListenUDP(t, serving.Host, 53)
	labtest.Must[*echo.Stream](t)(echo.StartStream(client.Host, tcp.Addr4(), echo.StreamOptions{}))
	labtest.Must[*traffic.UDPFlow](t)(traffic.StartUDPFlow(client.Host, udp.Addr4(), traffic.UDPFlowOptions{}))
	labtest.Must[*traffic.Prober](t)(traffic.StartProber(client.Host, traffic.ProberOptions{}, traffic.Target{Addr: tcp.Addr4(), Allowed: true}))
	labtest.Must[*traffic.Capture](t)(traffic.OpenCapture(b.Host, serving.Iface()))
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	if _, err := echo.ListenTCP(client.Host, 80); err == nil {
		t.Error("a closed pod listens")
	}
	if _, err := a.AddPod("shop", "late"); err == nil {
		t.Error("a closed lab has a new pod")
	}
	if _, err := l.AddNode("late"); err == nil {
		t.Error("a closed lab has a new node")
	}
	left := labtest.Must[[]string](t)(filepath.Glob(filepath.Join(ns.Dir, "mgy-"+l.ID()+"-*")))
	if len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestFailureHalfWayLeavesNothing(t *testing.T) {
	l := labtest.New(t)
	n := labtest.Node(t, l, "a")
	before := labtest.Must[[]string](t)(ns.List())
	web := labtest.Pod(t, n, "web")
	if _, err := l.AddNode("a"); err == nil {
		t.Error("two nodes of one name")
	}
	if _, err := l.AddExternal("out", netip.MustParseAddr("10.66.0.1")); err == nil {
		t.Error("an outside host with a node's address")
	}
	if _, err := n.AddPod("shop", "thief", web.Addr4()); err == nil {
		t.Error("two pods of one address")
	}
	if err := n.DelPod(web); err != nil {
		t.Fatal(err)
	}
	own := func(names []string) (c int) {
		for _, name := range names {
			if strings.HasPrefix(name, ns.OwnPrefix()) {
				c++
			}
		}
		return c
	}
	if after := labtest.Must[[]string](t)(ns.List()); own(after) != own(before) {
		t.Errorf("namespaces before: %v, after: %v", before, after)
	}
}

func TestRemoveLeftoversTakesOnlyThoseOfDeadProcesses(t *testing.T) {
	testutil.Privileged(t)
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	dead := "mgy-" + strconv.Itoa(gone.Process.Pid) + "xtest-"
	alive := ns.OwnPrefix() + "alive"
	other := "mgy-someone-" + ns.NewID()
	for _, name := range []string{dead + "1", dead + "node", alive, other} {
		space := labtest.Must[*ns.NS](t)(ns.Create(name))
		t.Cleanup(func() { space.Close() })
	}
	removed := labtest.Must[[]string](t)(lab.RemoveLeftovers(dead))
	if got, want := strings.Join(removed, " "), dead+"1 "+dead+"node"; got != want {
		t.Errorf("removed %q, want %q", got, want)
	}
	for _, prefix := range []string{alive, other} {
		if removed := labtest.Must[[]string](t)(lab.RemoveLeftovers(prefix)); len(removed) != 0 {
			t.Errorf("removed %v", removed)
		}
	}
	if _, err := lab.RemoveLeftovers("eth"); err == nil {
		t.Error("a foreign prefix was accepted")
	}
}
