package hostile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testcluster"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/bpfmaps"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// halves are the first and the last fragment of a datagram to port 53.
func halves(from, to *lab.Host, v6 bool, id uint32) [][]byte {
	p := testutil.Packet{Src: from.Addr(v6), Dst: to.Addr(v6), ID: id, L4: testutil.UDP{SrcPort: 1000, DstPort: 53},
		Payload: bytes.Repeat([]byte("x"), 40)}
	fragments := p.Fragments(32)
	for i := range fragments {
		fragments[i] = fragments[i][14:] // from the IP header on
	}
	return fragments
}

// TestAFloodOfFirstFragmentsLosesNoDatagramOfOthers: between the first fragments of others' datagrams and the last ones, a
// pod sends 200,000 first fragments, half of them to one of the others, whose policy denies them. With one table of first
// fragments for all pods every datagram was lost.
func TestAFloodOfFirstFragmentsLosesNoDatagramOfOthers(t *testing.T) {
	testcluster.NeedsBPF(t, "the kernel reassembles, with memory that all pods share")
	s := newScene(t)
	s.Policy("a", `{podSelector: {matchLabels: {app: a}}, policyTypes: [Ingress], ingress: [{from: [{ipBlock: {cidr: `+s.ext.Addr4().String()+`/32}}, {ipBlock: {cidr: `+s.ext.Addr6().String()+`/128}}]}]}`)
	s.AwaitPolicies(s.a, 1, 0)
	const each = 50
	ways := []struct {
		what     string
		from, to *lab.Host
		send     func(packet []byte, to *lab.Host, v6 bool) error
	}{
		{"from a pod to the outside", s.a.Host, s.ext.Host, func(packet []byte, _ *lab.Host, _ bool) error { return traffic.SendIP(s.a, packet) }},
		{"from a pod to another of its node", s.a.Host, s.b.Host, func(packet []byte, _ *lab.Host, _ bool) error { return traffic.SendIP(s.a, packet) }},
		{"from the outside to a pod", s.ext.Host, s.a.Host, func(packet []byte, to *lab.Host, v6 bool) error {
			return traffic.SendRaw(s.ext.Host, packet, to.Addr(v6))
		}},
	}
	var servers []*echo.Server
	for _, w := range ways {
		server, err := echo.ListenUDP(w.to, 53)
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, server)
	}
	families(t, func(t *testing.T, v6 bool) {
		var before []uint64
		send := func(part int) {
			for _, w := range ways {
				for i := range uint32(each) {
					if err := w.send(halves(w.from, w.to, v6, 1000+i)[part], w.to, v6); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		for _, server := range servers {
			before = append(before, server.Received())
		}
		send(0)
		pour(t, s.m, 200_000, func(i int) []byte {
			p := s.from(s.m, []*lab.Pod{s.a, s.c}[i%2], v6, testutil.UDP{SrcPort: 1, DstPort: 53})
			p.ID, p.Payload, p.SrcMAC, p.DstMAC = uint32(i/2), make([]byte, 40), s.m.MAC(), lab.HostMAC
			return p.Fragments(32)[0]
		})
		send(1)
		for i, w := range ways {
			testutil.WaitFor(t, soon, "datagrams "+w.what, func() bool { return servers[i].Received() == before[i]+each })
		}
	})
}

// TestIncompleteDatagramsLoseNoneOfOthers: on nodes whose kernel follows connections, a pod fills the kernel's memory for
// reassembly with datagrams that it never completes, in every way that it knows, one pod after the other.
// Datagrams of others arrive all the same. (Of 100 none did.)
func TestIncompleteDatagramsLoseNoneOfOthers(t *testing.T) {
	testcluster.NeedsBPF(t, "what a pod holds of the kernel's memory for reassembly is not bounded")
	s := newScene(t)
	s.followed()
	server, err := echo.ListenUDP(s.ext.Host, 53)
	if err != nil {
		t.Fatal(err)
	}
	attackers := map[string]*lab.Pod{}
	for _, name := range []string{"evil/one", "evil/two", "evil/three", "evil/four", "evil/five", "evil/six", "evil/seven", "evil/eight"} {
		attackers[name] = s.Pod(s.n1, name)
		s.AwaitPolicies(attackers[name], 0, 0)
	}
	families(t, func(t *testing.T, v6 bool) {
		for _, flood := range []struct {
			what, from string
			make       func(s *piecer, i int) []byte
			pour       func(t *testing.T, from *lab.Pod, n int, make func(i int) []byte)
		}{
			{"at random", "evil/one", (*piecer).random, pour},
			{"first fragments", "evil/two", func(p *piecer, i int) []byte { return p.piece(i, 0, 40) }, pour},
			{"large first fragments", "evil/three", func(p *piecer, i int) []byte { return p.piece(i, 0, 1400) }, pour},
			{"all but the last", "evil/four", func(p *piecer, i int) []byte { return p.piece(i/20, i%20, 1400) }, pour},
			{"with a last one that the kernel drops", "evil/five", (*piecer).feigned, pour},
			{"with a whole one between", "evil/six", (*piecer).interrupted, pour},
			{"with a first one that the kernel drops", "evil/seven", (*piecer).headless, pour},
			{"with a checksum to be filled in behind the end", "evil/eight", (*piecer).unfinished, pourOffloaded},
		} {
			t.Run(flood.what, func(t *testing.T) {
				p := &piecer{from: attackers[flood.from], to: s.c, v6: v6, r: rand.New(rand.NewPCG(1, 2))}
				flood.pour(t, p.from, 40_000, func(i int) []byte { return flood.make(p, i) })
				const each = 100
				before := server.Received()
				for _, from := range []*lab.Pod{s.a, s.b} {
					to := server.Addr4()
					if v6 {
						to = server.Addr6()
					}
					conn, err := traffic.OpenUDP(from.Host, to)
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close()
					for range each / 2 {
						if _, err := conn.Write(make([]byte, 4000)); err != nil {
							t.Fatal(err)
						}
						time.Sleep(2 * time.Millisecond)
					}
				}
				deadline := time.Now().Add(soon)
				for server.Received() < before+each && time.Now().Before(deadline) {
					time.Sleep(10 * time.Millisecond)
				}
				held, charged := s.reassembly(t, false)
				t.Logf("%d of %d datagrams arrived; the kernel holds %d bytes of IPv4, %d are charged", server.Received()-before, each, held, charged)
				if held > charged {
					t.Errorf("the kernel holds %d bytes, and only %d are charged", held, charged)
				}
				if server.Received() != before+each {
					t.Errorf("%d of %d datagrams arrived", server.Received()-before, each)
				}
			})
		}
	})
}

// piecer makes fragments of datagrams that its pod does not complete.
type piecer struct {
	from, to *lab.Pod
	v6       bool
	r        *rand.Rand
	id       int
	queue    [][]byte
}

func (s *piecer) packet(id, offset int, payload []byte, more bool) testutil.Packet {
	binary.BigEndian.PutUint16(payload[2:], 53)
	return testutil.Packet{Src: s.from.Addr(s.v6), Dst: s.to.Addr(s.v6), SrcMAC: s.from.MAC(), DstMAC: lab.HostMAC,
		ID: uint32(id), Protocol: 17, Payload: payload, Fragmented: true, FragmentOffset: uint16(offset), MoreFragments: more}
}

// piece is fragment number n of a datagram without end.
func (s *piecer) piece(id, n, size int) []byte {
	return s.packet(id, n*size, make([]byte, size), true).Bytes()
}

// feigned are datagrams of two fragments, of which the node's kernel drops the last one before it reassembles: its checksum
// is wrong, or it is for another MAC address.
func (s *piecer) feigned(i int) []byte {
	if i%2 == 0 {
		return s.piece(i/2, 0, 1400)
	}
	p := s.packet(i/2, 1400, make([]byte, 8), false)
	if i/2%2 == 0 || s.v6 {
		p.DstMAC = net.HardwareAddr{2, 9, 9, 9, 9, 9}
		return p.Bytes()
	}
	b := p.Bytes()
	b[14+10] ^= 1
	return b
}

// interrupted are datagrams of two fragments with a packet between them that is no fragment, and has over IPv6 a fragment header with the
// number of the datagram: the kernel then drops the first fragment.
func (s *piecer) interrupted(i int) []byte {
	switch i % 3 {
	case 0:
		return s.piece(i/3, 0, 8)
	case 1:
		return s.packet(i/3, 0, make([]byte, 1400), false).Bytes()
	}
	return s.packet(i/3, 8, make([]byte, 1400), false).Bytes()
}

// unfinished are datagrams of two fragments, of which the last one has a checksum to be filled in behind the end of its packet: the node's
// kernel drops it.
func (s *piecer) unfinished(i int) []byte {
	if i%2 == 0 {
		return append(make([]byte, offloadHeader), s.piece(i/2, 0, 1400)...)
	}
	last := s.packet(i/2, 1400, make([]byte, 8), false).Bytes()
	header := []byte{needsChecksum, 0, 0, 0, 0, 0}
	header = binary.NativeEndian.AppendUint16(header, uint16(len(last)))
	header = binary.NativeEndian.AppendUint16(header, 20)
	return slices.Concat(header, last, make([]byte, 40))
}

// headless are datagrams of two fragments, of which the first one ends behind its destination options: the kernel does not keep it.
func (s *piecer) headless(i int) []byte {
	p := s.packet(i/2, 0, []byte{253, 0, 1, 4, 0, 0, 0, 0}, true)
	if i%2 == 1 {
		p = s.packet(i/2, 8, make([]byte, 1400), false)
	}
	p.Protocol = 60
	return p.Bytes()
}

// random are fragments of datagrams of three or more, most of them in order and complete. Now and then one is left out,
// repeated, exchanged with the next one, too long or damaged, or a datagram has the number of an earlier one.
func (s *piecer) random(int) []byte {
	if len(s.queue) == 0 {
		s.id++
		id := s.id
		if s.r.IntN(100) == 0 {
			id -= s.r.IntN(10)
		}
		size, n := 8*(1+s.r.IntN(60)), 3+s.r.IntN(5)
		for k := range n {
			p := s.packet(id, k*size, make([]byte, size), k < n-1)
			switch s.r.IntN(400) {
			case 0:
				p.DstMAC = net.HardwareAddr{2, 9, 9, 9, 9, 9}
			case 1:
				p.Payload = make([]byte, size+8)
			case 2:
				p.Payload = append(p.Payload, 1)
			case 3:
				p.MoreFragments = !p.MoreFragments
			case 4:
				s.queue = append(s.queue, p.Bytes())
			case 5:
				continue
			}
			s.queue = append(s.queue, p.Bytes())
			if last := len(s.queue) - 1; last > 0 && s.r.IntN(400) == 0 {
				s.queue[last], s.queue[last-1] = s.queue[last-1], s.queue[last]
			}
		}
		return s.random(0)
	}
	frame := s.queue[0]
	s.queue = s.queue[1:]
	return frame
}

// reassembly is what the first node's kernel holds to reassemble, in bytes, and what is charged to pods for it. Of IPv6 it has no number for
// what conntrack holds.
func (s *scene) reassembly(t *testing.T, v6 bool) (held, charged uint64) {
	t.Helper()
	m, err := bpfmaps.OpenPinned(bpfmaps.Options{BPFFS: s.Agent(0).BPFFS})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	file, name, first := "sockstat", "FRAG", uint32(0)
	if v6 {
		file, name, first = "sockstat6", "FRAG6", bpf.Shares+1
	}
	var text []byte
	if err := s.n1.Do(func() (err error) { text, err = os.ReadFile("/proc/thread-self/net/" + file); return err }); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, name+":") {
			if _, err := fmt.Sscanf(line, name+": inuse %d memory %d", new(uint64), &held); err != nil {
				t.Fatal(err)
			}
		}
	}
	for share := first; share < first+bpf.Shares; share++ {
		var a bpf.MargayFragAccount
		if err := m.Map(bpf.MargayMapFragMemory).Lookup(share, &a); err != nil {
			t.Fatal(err)
		}
		for _, p := range a.Of {
			charged += uint64(p.Own) + uint64(p.Common)
		}
	}
	return held, charged
}

// TestLargeDatagramsAreNeverRefused: a pod that sends datagrams of 60,000 bytes as fast as it can completes them all, so
// nothing is charged to it and none of its fragments is refused.
func TestLargeDatagramsAreNeverRefused(t *testing.T) {
	testcluster.NeedsBPF(t, "the kernel reassembles, and nothing is charged")
	s := newScene(t)
	s.followed()
	server, err := echo.ListenUDP(s.ext.Host, 53)
	if err != nil {
		t.Fatal(err)
	}
	families(t, func(t *testing.T, v6 bool) {
		to := server.Addr4()
		if v6 {
			to = server.Addr6()
		}
		conn, err := traffic.OpenUDP(s.a.Host, to)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for range 1000 {
			if _, err := conn.Write(make([]byte, 60000)); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.Agent(0).Drops(s.a)["frag_limit"]; n != 0 {
			t.Errorf("%d fragments were refused", n)
		}
		held, charged := s.reassembly(t, false)
		t.Logf("%d datagrams arrived; %d bytes are held and %d charged", server.Received(), held, charged)
	})
}
