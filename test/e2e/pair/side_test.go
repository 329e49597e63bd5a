package pair

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
	"github.com/margay-project/margay/pkg/nflog"
)

// place is a host that sends and receives: one of the pods of node0, the outside host, or node0 itself.
type place int

const (
	localPods       = 4
	outside   place = localPods
	theNode   place = localPods + 1
	places          = localPods + 2
	nowhere   place = -1
)

func (p place) String() string {
	switch p {
	case outside:
		return "outside"
	case theNode:
		return "node0"
	}
	return fmt.Sprintf("pod p%d", int(p))
}

// side is one of the two networks: node0 with its pods and agent, and one outside host that has all other addresses.
type side struct {
	name    string
	node    *lab.Node
	hosts   [places]*lab.Host
	pods    [localPods]*lab.Pod // of the hosts
	senders [theNode]*traffic.FrameSender
	macs    [places][2]net.HardwareAddr // of the host, and of the node as the host sees it
	taps    []*traffic.Tap
	agent   *testcluster.Process
	board   *board
}

// newSide makes a network whose agent runs with the flags.
func newSide(t *testing.T, name, manifests string, b *board, flags ...string) *side {
	t.Helper()
	l, err := lab.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &side{name: name, board: b}
	if s.node, err = l.AddNode("node0", nodeAddrs...); err != nil {
		t.Fatal(err)
	}
	ext, err := l.AddExternal("ext")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range farAddrs() {
		must(t, ext.AddAddr(a))
	}
	for i := range localPods {
		p, err := s.node.AddPod(podNamespace(i), podName(i), podAddrs(i)...)
		must(t, err)
		s.pods[i] = p
		for _, a := range p.Addrs() {
			must(t, ext.RouteVia(netip.PrefixFrom(a, a.BitLen()), s.node))
		}
		s.hosts[i], s.macs[i] = p.Host, [2]net.HardwareAddr{p.MAC(), lab.HostMAC}
	}
	_, err = s.node.AddPod(markNamespace, "mark")
	must(t, err)
	s.hosts[outside], s.hosts[theNode] = ext.Host, s.node.Host
	for i, h := range []*lab.Host{ext.Host, s.node.Host} {
		link, err := h.Netlink().LinkByName("eth0")
		must(t, err)
		s.macs[outside][i] = link.Attrs().HardwareAddr
	}
	s.meet(t)
	s.silence(t)
	must(t, s.run(s.node.Host, nodeRules(false), nodeRules(true)))
	for i, h := range s.hosts[:theNode] {
		s.senders[i], err = traffic.OpenFrameSender(h, "eth0")
		must(t, err)
		s.watch(t, place(i))
	}
	must(t, s.muteNode())
	s.read(t, invalidGroup, s.board.invalid)
	s.read(t, deliveredGroup, func(packet []byte) { s.board.arrived(theNode, packet) })
	s.agent = testcluster.NewProcess(t, s.node, manifests, flags...)
	return s
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// meet has the node and every host find each other's MAC addresses.
func (s *side) meet(t *testing.T) {
	t.Helper()
	var meeting sync.WaitGroup
	for _, h := range s.hosts[:theNode] {
		for _, a := range nodeAddrs {
			meeting.Go(func() {
				if got := traffic.Ping(h, a, testcluster.Soon); got.Outcome != echo.Connected {
					t.Errorf("%s: %s does not reach its node at %s: %v", s.name, h.Name(), a, got.Err)
				}
			})
		}
	}
	meeting.Wait()
}

// silence keeps the kernels of hosts from answering what is sent to them, but for neighbour discovery.
func (s *side) silence(t *testing.T) {
	t.Helper()
	const drop = "*raw\n-A PREROUTING -j DROP\nCOMMIT\n"
	var discovery strings.Builder
	for kind := 133; kind <= 137; kind++ {
		fmt.Fprintf(&discovery, "-A PREROUTING -p icmpv6 --icmpv6-type %d -j ACCEPT\n", kind)
	}
	for _, h := range s.hosts[:theNode] {
		must(t, s.run(h, drop, strings.Replace(drop, "\n", "\n"+discovery.String(), 1)))
	}
}

// run adds rules of both families.
func (s *side) run(h *lab.Host, rules4, rules6 string) error {
	_, err4 := h.Run(context.Background(), rules4, "iptables-restore", "--noflush", "--wait", "5")
	_, err6 := h.Run(context.Background(), rules6, "ip6tables-restore", "--noflush", "--wait", "5")
	return errors.Join(err4, err6)
}

// watch notes what arrives at a place.
func (s *side) watch(t *testing.T, at place) {
	t.Helper()
	tap, err := traffic.OpenTap(s.hosts[at], "eth0", func(frame []byte, forHost bool) {
		if forHost {
			s.board.arrived(at, frame[14:])
		}
	})
	must(t, err)
	s.taps = append(s.taps, tap)
	t.Cleanup(func() {
		if n := tap.Lost(); n > 0 {
			t.Errorf("%s: %d frames at %s were not seen", s.name, n, at)
		}
		tap.Close() // fails only if the lab has closed it
	})
}

// read passes the copies of a group to each.
func (s *side) read(t *testing.T, group uint16, each func(packet []byte)) {
	t.Helper()
	var r *nflog.Reader
	must(t, s.node.Do(func() (err error) {
		r, err = nflog.Open(nflog.Options{Group: group, CopyRange: 2048, Buffer: 4 << 20})
		return err
	}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx, func(p nflog.Packet) { each(p.Payload) }) }()
	t.Cleanup(func() {
		cancel()
		<-done
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if lost := r.Stats().Lost; lost > 0 {
			t.Errorf("%s: %d copies of group %d were lost", s.name, lost, group)
		}
	})
}

// send sends frames from a place, in order.
func (s *side) send(t *testing.T, from place, frames [][]byte) {
	t.Helper()
	if from != theNode {
		must(t, s.senders[from].Send(frames))
		return
	}
	for _, f := range frames {
		must(t, s.sendFromNode(f[14:]))
	}
}

// frame sets the MAC addresses of a packet from a place.
func (s *side) frame(from place, p testutil.Packet) testutil.Packet {
	if from != theNode {
		p.SrcMAC, p.DstMAC = s.macs[from][0], s.macs[from][1]
	}
	return p
}
