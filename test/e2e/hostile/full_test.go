package hostile

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/conntrack"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

const (
	// mostConnections bounds the table that a test fills: the kernel's memory for it is some 100 MB.
	mostConnections = 300_000
	// dials is how many connections the honest pod opens during the attack, and again after it.
	dials = 50
)

// Two pods that work together open more connections than the kernel's table of the node has room for. Each is complete, so the kernel
// evicts none of them, for 5 days. A third pod still opens connections, none of those that it had is removed, and the agent
// reports the pod.
func TestTwoPodsCannotFillTheTableOfConnections(t *testing.T) {
	testutil.RequireCommand(t, "iptables-restore")
	backend := os.Getenv("MARGAY_IPTABLES_BACKEND")
	if backend == "" {
		backend = "nft" // make test-iptables has the other one
	}
	s := newScene(t, "--dataplane", "iptables", "--iptables-backend", backend)
	s.cannotFillTheTable(t, s.Pod(s.n1, "evil/x"), s.a)
}

// The same in BPF mode, where rules such as kube-proxy's have the kernel track connections. Those between pods of one node do not pass
// its table, so the second pod is on another node. Marks that another program has left in the table mean nothing.
func TestTwoPodsCannotFillTheTableOfConnectionsInBPFMode(t *testing.T) {
	testutil.RequireCommand(t, "iptables-restore")
	testcluster.NeedsBPF(t, "the test above has that")
	s := newScene(t)
	s.prerouting(t, "-A PREROUTING -j CONNMARK --set-mark 0x8fff8000")
	s.cannotFillTheTable(t, s.e, s.c)
}

// cannotFillTheTable has evil/m fill the first node's table with connections to x, while shop/b has connections to a server.
func (s *scene) cannotFillTheTable(t *testing.T, x, server *lab.Pod) {
	t.Helper()
	s.Policy("served", fmt.Sprintf(`{podSelector: {matchLabels: {app: %s}}, policyTypes: [Ingress], ingress: [{ports: [{port: 80}, {port: 80, protocol: UDP}]}]}`, server.Name()[len("shop/"):]))
	s.AwaitPolicies(server, 1, 0)
	var table *conntrack.Conn
	if err := s.n1.Do(func() (err error) { table, err = conntrack.Open(); return err }); err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	_, most, err := table.Usage()
	if err != nil || most == 0 || most > mostConnections {
		t.Skipf("a table of %d connections is not one to be filled: %v", most, err)
	}
	tcp, udp := s.Serve(server.Host, 80)
	live, err := echo.StartStream(s.b.Host, tcp.Addr4(), echo.StreamOptions{Timeout: soon})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := traffic.StartUDPFlow(s.b.Host, udp.Addr4(), traffic.UDPFlowOptions{}); err != nil {
		t.Fatal(err)
	}
	var before map[uint32]conntrack.Tuple
	testutil.WaitFor(t, soon, "the kernel to keep both flows of the honest pod", func() bool {
		before = s.connections(t, table, s.b)
		return len(before) == 2
	})
	for _, p := range []*lab.Pod{s.m, x} {
		muteStack(t, p)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		complete(t, s.m, x, int(most)+int(most)/8)
	}()
	defer func() { <-done }()
	s.reported(t) // before a minute has passed since the last removal
	// The honest pod keeps its connections: where it closed some, the kernel would give up those for its next ones.
	open := func(n int) {
		for range n {
			if _, err := traffic.OpenTCP(s.b.Host, tcp.Addr4(), soon); err != nil {
				t.Errorf("a new connection of the honest pod: %v", err)
				return
			}
		}
	}
	open(dials)
	<-done
	open(dials)
	after := s.connections(t, table, s.b)
	for id, tuple := range before {
		if after[id] != tuple {
			t.Errorf("the live flow %v is no longer on record", tuple)
		}
	}
	received := live.Result().Received
	testutil.WaitFor(t, soon, "the live connection to go on", func() bool { return live.Result().Received > received })
	if r := live.Stop(); r.Connects != 1 {
		t.Errorf("the live connection: %+v", r)
	}
}

// connections returns the entries of a pod's connections that the kernel keeps in a full table, by id.
func (s *scene) connections(t *testing.T, table *conntrack.Conn, of *lab.Pod) map[uint32]conntrack.Tuple {
	t.Helper()
	all := map[uint32]conntrack.Tuple{}
	err := table.Dump(conntrack.Both, conntrack.Filter{}, func(e conntrack.Entry) {
		if e.Original.Src == of.Addr4() && e.Status&conntrack.Assured != 0 && e.TCPState <= conntrack.TCPEstablished {
			all[e.ID] = e.Original
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// reported demands that the agent of the first node names the pod evil/m and its loss, in its problems and its log.
func (s *scene) reported(t *testing.T) {
	t.Helper()
	testutil.WaitFor(t, 4*soon, "the agent to report the pod", func() bool {
		answer, err := s.Agent(0).Ask("problems")
		if err != nil {
			return false
		}
		for _, p := range answer.Problems {
			if strings.Contains(p.Object, "evil/m") && strings.Contains(p.Reason, "of its connections were removed") {
				return true
			}
		}
		return false
	})
	var log []byte
	testutil.WaitFor(t, soon, "the log to name the pod", func() (named bool) {
		var err error
		log, err = os.ReadFile(s.Agent(0).Log)
		return err == nil && strings.Contains(string(log), "evil/m had ")
	})
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "beyond their share") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// muteStack makes the kernel of a pod ignore what is sent to the pod: the pod has no address of its own any more, and the node need not
// ask for it.
func muteStack(t *testing.T, p *lab.Pod) {
	t.Helper()
	eth0, err := p.Netlink().LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	for _, v6 := range []bool{false, true} {
		bits := 32
		if v6 {
			bits = 128
		}
		address := &net.IPNet{IP: p.Addr(v6).AsSlice(), Mask: net.CIDRMask(bits, bits)}
		if err := p.Netlink().AddrDel(eth0, &netlink.Addr{IPNet: address}); err != nil {
			t.Fatal(err)
		}
		neighbour := &netlink.Neigh{LinkIndex: p.IfIndex(), IP: address.IP, HardwareAddr: p.MAC(), State: netlink.NUD_PERMANENT}
		if err := p.Node().Netlink().NeighSet(neighbour); err != nil {
			t.Fatal(err)
		}
	}
}

// complete makes n TCP connections of both families from one pod to the other by the frames of both ends.
func complete(t *testing.T, from, to *lab.Pod, n int) {
	opener, err := traffic.OpenFrameSender(from.Host, "eth0")
	if err != nil {
		t.Error(err)
		return
	}
	responder, err := traffic.OpenFrameSender(to.Host, "eth0")
	if err != nil {
		t.Error(err)
		return
	}
	began := time.Now()
	const some = 512 // what fits the queues on the way
	for first := 0; first < n; first += some {
		v6 := first/some%2 == 1
		var frames [3][][]byte // SYN, SYN-ACK, ACK
		for i := first; i < min(first+some, n); i++ {
			port, at := uint16(1024+i%60_000), uint16(1000+i/60_000)
			out := func(tcp testutil.TCP) []byte {
				tcp.SrcPort, tcp.DstPort = port, at
				return frame(from, testutil.Packet{Src: from.Addr(v6), Dst: to.Addr(v6), L4: tcp})
			}
			frames[0] = append(frames[0], out(testutil.TCP{Flags: testutil.SYN}))
			frames[1] = append(frames[1], frame(to, testutil.Packet{Src: to.Addr(v6), Dst: from.Addr(v6),
				L4: testutil.TCP{SrcPort: at, DstPort: port, Ack: 1, Flags: testutil.SYN | testutil.ACK}}))
			frames[2] = append(frames[2], out(testutil.TCP{Seq: 1, Ack: 1, Flags: testutil.ACK}))
		}
		for step, sender := range []*traffic.FrameSender{opener, responder, opener} {
			if err := sender.Send(frames[step]); err != nil {
				t.Error(err)
				return
			}
		}
	}
	t.Logf("%d connections in %v", n, time.Since(began))
}
