package e2e

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/margay-project/margay/bench/kernel"
	"github.com/margay-project/margay/bench/report"
	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
)

const (
	floodFlows = 10_000
	floodSYNs  = 3_000_000
	floodUDP   = 1_000_000
	floodPort  = 80
)

// Quality P12 as the benchmarks have it, by test-run: half of the established flows go on during the flood, the others
// idle.
func TestFloodOfProgramsLosesNoFlow(t *testing.T) {
	testcluster.NeedsBPF(t, "it floods the BPF programs, without an agent")
	testutil.Privileged(t)
	results, err := kernel.Flood(kernel.Options{Work: t.TempDir(), Flood: floodSYNs, Flows: floodFlows, Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	if len(results) == 0 || report.Failed(results) > 0 {
		t.Errorf("%+v", results)
	}
}

// flood is a pod that answers by itself to nothing, and an outside host that plays both all its peers and an attacker:
// frames from any address, by way of the node.
type flood struct {
	t       *testing.T
	agent   *testcluster.Process
	pod     *lab.Pod
	pinned  *pinned
	in, out *traffic.FrameSender
	toNode  net.HardwareAddr
	from    net.HardwareAddr
}

func newFlood(t *testing.T) *flood {
	t.Helper()
	c := newCluster(t, oneNode, "--mid-flow", "strict", "--timeout-udp", "1h") // the flood takes minutes on a busy machine
	f := &flood{t: t, agent: c.Agent(0), pod: c.Pod(c.Node(0), "server")}
	c.Policy("server", `{podSelector: {matchLabels: {app: server}}, ingress: [{
  from: [{ipBlock: {cidr: 198.18.0.0/15}}], ports: [{port: 80}, {port: 80, protocol: UDP}]}]}`)
	c.AwaitPolicies(f.pod, 1, 0)
	f.silence()
	f.pinned = openPinned(t, c.Agent(0))
	out := c.External("out")
	f.from, f.toNode = mac(t, out.Host), mac(t, c.Node(0).Host)
	var err error
	if f.in, err = traffic.OpenFrameSender(out.Host, "eth0"); err != nil {
		t.Fatal(err)
	}
	if f.out, err = traffic.OpenFrameSender(f.pod.Host, "eth0"); err != nil {
		t.Fatal(err)
	}
	return f
}

func mac(t *testing.T, h *lab.Host) net.HardwareAddr {
	t.Helper()
	eth0, err := h.Netlink().LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	return eth0.Attrs().HardwareAddr
}

// silence keeps the pod's kernel from answering what is sent to the pod: it has no address, and the node does not have
// to ask for it.
func (f *flood) silence() {
	f.t.Helper()
	eth0, err := f.pod.Netlink().LinkByName("eth0")
	if err != nil {
		f.t.Fatal(err)
	}
	own := &netlink.Addr{IPNet: &net.IPNet{IP: f.pod.Addr4().AsSlice(), Mask: net.CIDRMask(32, 32)}}
	if err := f.pod.Netlink().AddrDel(eth0, own); err != nil {
		f.t.Fatal(err)
	}
	if err := f.pod.Node().Netlink().NeighSet(&netlink.Neigh{
		LinkIndex: f.pod.IfIndex(), IP: own.IP, HardwareAddr: f.pod.MAC(), State: netlink.NUD_PERMANENT,
	}); err != nil {
		f.t.Fatal(err)
	}
}

// peer is the i-th established flow's other end.
func peer(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 18, byte(i >> 8), byte(i)}), uint16(20000+i%1000))
}

// frame is a packet of the i-th flow, to the pod or from it. flags of 0 mean UDP.
func (f *flood) frame(i int, fromPod bool, flags uint8) []byte {
	p := testutil.Packet{SrcMAC: f.from, DstMAC: f.toNode, Src: peer(i).Addr(), Dst: f.pod.Addr4()}
	source, destination := peer(i).Port(), uint16(floodPort)
	if fromPod {
		p.SrcMAC, p.DstMAC, p.Src, p.Dst = f.pod.MAC(), lab.HostMAC, p.Dst, p.Src
		source, destination = destination, source
	}
	p.L4 = testutil.TCP{SrcPort: source, DstPort: destination, Flags: flags}
	if flags == 0 {
		p.L4 = testutil.UDP{SrcPort: source, DstPort: destination}
	}
	return p.Bytes()
}

// send sends one packet of every flow and waits until the pod has seen those to it.
func (f *flood) send(fromPod bool, flags uint8) {
	f.t.Helper()
	const some = 100 // what fits the queues on the way
	seen, err := traffic.OpenCapture(f.pod.Host, "eth0")
	if err != nil {
		f.t.Fatal(err)
	}
	defer seen.Close()
	for from := 0; from < floodFlows; from += some {
		var frames [][]byte
		for i := from; i < min(from+some, floodFlows); i++ {
			frames = append(frames, f.frame(i, fromPod, flags))
		}
		before, sender := seen.Total(), f.in
		if fromPod {
			sender = f.out
		}
		if err := sender.Send(frames); err != nil {
			f.t.Fatal(err)
		}
		testutil.WaitFor(f.t, soon, fmt.Sprintf("%d packets from flow %d on", len(frames), from), func() bool {
			return seen.Total() >= before+uint64(len(frames))
		})
	}
}

// judged is how many packets were judged as first ones of flows.
func (f *flood) judged() (n uint64) {
	f.t.Helper()
	stats, err := f.pinned.maps.RuleStats.Below(1 << 12)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, c := range stats {
		n += c.Packets
	}
	return n
}

// open counts the established flows of the protocol that are known as open.
func (f *flood) open(protocol uint8) (n int) {
	f.t.Helper()
	known := map[netip.AddrPort]bool{}
	for flow, err := range f.pinned.maps.Flows.All() {
		if err != nil {
			f.t.Fatal(err)
		}
		if flow.Open && flow.Proto == protocol {
			known[flow.A], known[flow.B] = true, true
		}
	}
	for i := range floodFlows {
		if known[peer(i)] {
			n++
		}
	}
	return n
}

// pour sends packets of as many new flows, and goes on until so many were judged: a queue on the way may be too short.
func (f *flood) pour(packets int, flags uint8) {
	f.t.Helper()
	before := f.judged()
	frames := make([][]byte, 2048)
	for i := range frames {
		frames[i] = f.frame(0, false, flags)
	}
	for n := 0; ; {
		for _, frame := range frames {
			spoof(frame, n)
			n++
		}
		if err := f.in.Send(frames); err != nil {
			f.t.Fatal(err)
		}
		if n >= packets && n%(1<<16) == 0 && f.judged()-before >= uint64(packets) {
			return
		}
		if n > 2*packets {
			f.t.Fatalf("of %d packets sent only %d were judged", n, f.judged()-before)
		}
	}
}

// spoof makes a frame's source the n-th of 198.19.0.0/16 and its ports. Routers look at the header's checksum only.
func spoof(frame []byte, n int) {
	const header, checksum, address, port = 14, 14 + 10, 14 + 12, 14 + 20
	binary.BigEndian.PutUint32(frame[address:], 0xc6130000|uint32(n)>>14&0xffff)
	binary.BigEndian.PutUint16(frame[port:], uint16(1024+n%(1<<14)))
	binary.BigEndian.PutUint16(frame[checksum:], 0)
	sum := uint32(0)
	for at := header; at < port; at += 2 {
		sum += uint32(binary.BigEndian.Uint16(frame[at:]))
	}
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(frame[checksum:], ^uint16(sum+sum>>16))
}

// 10,000 flows are established by what both sides send; then millions of SYNs and datagrams of an allowed range, no two
// alike, come in over the wire. Afterwards every flow is still known and its packets pass without another judgement.
func TestFloodOverTheWireLosesNoFlow(t *testing.T) {
	const tcp, udp = testutil.ProtoTCP, testutil.ProtoUDP
	f := newFlood(t)
	for _, step := range []struct {
		fromPod bool
		flags   uint8
	}{{false, testutil.SYN}, {true, testutil.SYN | testutil.ACK}, {false, testutil.ACK}, {false, 0}, {true, 0}, {false, 0}} {
		f.send(step.fromPod, step.flags)
	}
	if a, b := f.open(tcp), f.open(udp); a != floodFlows || b != floodFlows {
		t.Fatalf("before the flood %d TCP and %d UDP flows are open", a, b)
	}
	start := time.Now()
	f.pour(floodSYNs, testutil.SYN)
	f.pour(floodUDP, 0)
	t.Logf("%d SYNs and %d datagrams in %v", floodSYNs, floodUDP, time.Since(start))
	if a, b := f.open(tcp), f.open(udp); a != floodFlows || b != floodFlows {
		t.Errorf("after the flood %d TCP and %d UDP flows are open", a, b)
	}
	before, dropped := f.judged(), f.drops()
	for _, fromPod := range []bool{false, true} {
		f.send(fromPod, testutil.ACK)
		f.send(fromPod, 0)
	}
	if n := f.judged() - before; n > 0 {
		t.Errorf("%d packets of established flows were judged again", n)
	}
	if n := f.drops() - dropped; n > 0 {
		t.Errorf("%d packets of established flows were dropped", n)
	}
}

func (f *flood) drops() (n uint64) {
	f.t.Helper()
	drops, err := f.pinned.maps.Drops.All()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, c := range drops {
		n += c.Packets
	}
	return n
}
