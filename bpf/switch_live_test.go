package bpf_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/labtest"
	"github.com/margay-project/margay/internal/testutil"
	"github.com/margay-project/margay/internal/traffic"
	"github.com/margay-project/margay/pkg/lab"
	"github.com/margay-project/margay/pkg/lab/echo"
)

// comingIn is a node whose programs come into force while its kernel puts a datagram together.
type comingIn struct {
	*world
	node     *lab.Node
	from, to *lab.Pod
	server   *echo.Server
	sender   bpf.Endpoint
	numbers  uint32 // of datagrams so far
}

func newComingIn(t *testing.T) *comingIn {
	t.Helper()
	testutil.RequireCommand(t, "nft")
	s := &comingIn{world: newWorld(t, bpf.Config{})}
	s.node = labtest.Node(t, labtest.New(t), "node")
	s.from, s.to = labtest.Pod(t, s.node, "from"), labtest.Pod(t, s.node, "to")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if out, err := s.node.Run(ctx, "table inet t { chain c { type filter hook forward priority 0; ct state invalid counter; }; }",
		"nft", "-f", "-"); err != nil {
		t.Fatal(err, out)
	}
	server, err := echo.ListenUDP(s.to.Host, 53)
	if err != nil {
		t.Fatal(err)
	}
	s.server = server
	s.sender = bpf.Endpoint{Ifindex: uint32(s.from.IfIndex()), Addr4: s.from.Addr4().As4(), Addr6: s.from.Addr6().As16()}
	receiver := bpf.Endpoint{Ifindex: uint32(s.to.IfIndex()), Flags: bpf.EPReady, Addr4: s.to.Addr4().As4(), Addr6: s.to.Addr6().As16()}
	s.publish(t, &receiver, word(slotAllow, 1), word(slotAllow, 1))
	attachTo(t, s.node, s.to.IfIndex(), s.Programs[bpf.MargayProgToPod], ebpf.AttachTCXEgress)
	for _, family := range []link.NetfilterProtocolFamily{link.NetfilterProtoIPv4, link.NetfilterProtoIPv6} {
		s.attach(t, func() (link.Link, error) {
			return link.AttachNetfilter(link.NetfilterOptions{Program: s.Programs[bpf.MargayProgJudge], ProtocolFamily: family,
				Hook: link.NetfilterInetForward, Priority: 10})
		})
	}
	return s
}

// attach attaches a program on the node until the test ends, or detach is called.
func (s *comingIn) attach(t *testing.T, open func() (link.Link, error)) (detach func()) {
	t.Helper()
	var attached link.Link
	if err := s.node.Do(func() (err error) { attached, err = open(); return err }); err != nil {
		t.Fatal(err)
	}
	detach = func() {
		if err := attached.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(detach)
	return detach
}

// send sends packets of the pod.
func (s *comingIn) send(t *testing.T, frames ...[]byte) {
	t.Helper()
	for _, frame := range frames {
		if err := traffic.SendIP(s.from, frame[14:]); err != nil {
			t.Fatal(err)
		}
	}
}

// unseen is how many packets of the pod no program on its interface has seen.
func (s *comingIn) unseen(t *testing.T) uint64 {
	t.Helper()
	return s.drops(t)[bpf.DropKey{Ifindex: s.sender.Ifindex, Reason: uint16(bpf.MargayDropReasonDROP_UNSEEN)}].Packets
}

// deniedHere is how many packets of the pod policy has denied, at whatever hook.
func (s *comingIn) deniedHere(t *testing.T) (n uint64) {
	t.Helper()
	for _, reason := range []bpf.DropReason{bpf.MargayDropReasonDROP_POLICY, bpf.MargayDropReasonDROP_REVOKED} {
		n += s.drops(t)[bpf.DropKey{Ifindex: s.sender.Ifindex, Reason: uint16(reason)}].Packets
	}
	return n
}

// datagram is one of the pod, of which each has another number.
func (s *comingIn) datagram(v6 bool, port uint16, size int) testutil.Packet {
	s.numbers++
	return testutil.Packet{Src: s.from.Addr(v6), Dst: s.to.Addr(v6), ID: s.numbers, L4: testutil.UDP{SrcPort: port, DstPort: 53}, Payload: make([]byte, size)}
}

// attachSender attaches from_pod to the sender's interface.
func (s *comingIn) attachSender(t *testing.T) (detach func()) {
	t.Helper()
	return s.attach(t, func() (link.Link, error) {
		return link.AttachTCX(link.TCXOptions{Interface: s.from.IfIndex(), Program: s.Programs[bpf.MargayProgFromPod], Attach: ebpf.AttachTCXIngress})
	})
}

// wantAllowed demands that flows from a port are on record and that policy of the sender has allowed them.
func (s *comingIn) wantAllowed(t *testing.T, v6 bool, ports ...uint16) {
	t.Helper()
	opened := map[netip.AddrPort]bool{}
	for _, f := range s.flows(t) {
		opened[f.opener()] = f.entry.Egress != 0
	}
	for _, port := range ports {
		if from := netip.AddrPortFrom(s.from.Addr(v6), port); !opened[from] {
			t.Errorf("no allowed flow of %v is on record: %v", from, opened)
		}
	}
}

// TestADatagramMayBeginBeforeTheProgramsWhereAnotherDataplaneJudges: the kernel puts fragments together, and the datagram has the mark of
// the first one, which came before from_pod was attached. Alone, the program at FORWARD drops it.
func TestADatagramMayBeginBeforeTheProgramsWhereAnotherDataplaneJudges(t *testing.T) {
	s := newComingIn(t)
	for _, beside := range []bool{true, false} {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("beside %v, v6 %v", beside, v6), func(t *testing.T) {
				s.forget(t)
				if s.sender.Flags = bpf.EPReady; beside {
					s.sender.Flags |= bpf.EPBeside
				}
				s.publish(t, &s.sender, word(slotAllow, 1), word(slotAllow, 1))
				before := s.server.Received()
				passed := func(what string, n uint64) {
					t.Helper()
					testutil.WaitFor(t, time.Minute, what, func() bool {
						if beside {
							return s.server.Received() == before+n
						}
						return s.unseen(t) == n
					})
				}
				frames := s.datagram(v6, 1000, 1500).Fragments(400)
				s.send(t, frames[0], s.datagram(v6, 1001, 10).Bytes())
				passed("the datagram after the first fragment", 1)
				defer s.attachSender(t)()
				s.send(t, frames[1:]...)
				if !beside { // later fragments of an unknown datagram do not get that far
					return
				}
				passed("the datagram in fragments", 2)
				s.wantAllowed(t, v6, 1000, 1001)
			})
		}
	}
}

// TestADatagramMayHaveBegunWhileAnotherDataplaneJudged: it is judged when the kernel has put it together, by the policy of then. Whole packets that no
// program has seen are dropped, as at any time.
func TestADatagramMayHaveBegunWhileAnotherDataplaneJudged(t *testing.T) {
	s := newComingIn(t)
	for _, allowed := range []bool{true, false} {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprintf("allowed %v, v6 %v", allowed, v6), func(t *testing.T) {
				s.forget(t)
				s.sender.Flags = bpf.EPReady | bpf.EPBeside
				s.publish(t, &s.sender, word(slotAllow, 1), word(slotAllow, 1))
				before, port := s.server.Received(), uint16(1000+s.numbers)
				known, unknown := s.datagram(v6, port, 1500).Fragments(400), s.datagram(v6, port+1, 1500).Fragments(400)
				// The kernel knows the flow of one of them, and so does the program.
				s.send(t, known[0], unknown[0], s.datagram(v6, port, 10).Bytes())
				testutil.WaitFor(t, time.Minute, "the datagram after the first fragments", func() bool { return s.server.Received() == before+1 })

				egress := word(slotAllow, 2)
				if !allowed {
					egress = word(slotDeny, 2)
				}
				s.sender.Flags = bpf.EPReady | bpf.EPBesideBefore
				s.publish(t, &s.sender, word(slotAllow, 1), egress)
				s.send(t, s.datagram(v6, port, 10).Bytes())
				testutil.WaitFor(t, time.Minute, "one without a program to be dropped", func() bool { return s.unseen(t) == 1 })

				defer s.attachSender(t)()
				s.send(t, append(known[1:], unknown[1:]...)...)
				if allowed {
					testutil.WaitFor(t, time.Minute, "both in fragments", func() bool { return s.server.Received() == before+3 })
					s.wantAllowed(t, v6, port, port+1)
					return
				}
				testutil.WaitFor(t, time.Minute, "both to be dropped", func() bool { return s.deniedHere(t) == 2 })
				if n := s.server.Received() - before; n != 1 {
					t.Errorf("%d datagrams have arrived, want one", n)
				}
			})
		}
	}
}

// TestADeniedDatagramThatBeganWhileAnotherDataplaneJudgedIsJudged: its first fragment passes, since the other one is to judge the datagram. That is gone
// when the kernel has put it together.
func TestADeniedDatagramThatBeganWhileAnotherDataplaneJudgedIsJudged(t *testing.T) {
	s := newComingIn(t)
	defer s.attachSender(t)()
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v6 %v", v6), func(t *testing.T) {
			s.forget(t)
			s.sender.Flags = bpf.EPReady | bpf.EPBeside | bpf.EPBesideBefore
			s.publish(t, &s.sender, word(slotAllow, 1), word(slotDeny, 1))
			before, frames := s.server.Received(), s.datagram(v6, 1000, 1500).Fragments(400)
			s.send(t, frames[0], s.datagram(v6, 1001, 10).Bytes())
			testutil.WaitFor(t, time.Minute, "the datagram after the first fragment", func() bool { return s.server.Received() == before+1 })
			s.sender.Flags &^= bpf.EPBeside
			s.publish(t, &s.sender, word(slotAllow, 1), word(slotDeny, 1))
			s.send(t, frames[1:]...)
			testutil.WaitFor(t, time.Minute, "the one in fragments to be dropped", func() bool { return s.deniedHere(t) == 1 })
			if n := s.server.Received() - before; n != 1 {
				t.Errorf("%d datagrams have arrived, want one", n)
			}
		})
	}
}

// TestAPacketThatNoProgramHasSeenIsOfItsPod: from_pod would have checked that.
func TestAPacketThatNoProgramHasSeenIsOfItsPod(t *testing.T) {
	s := newComingIn(t)
	for src, v6 := range map[string]bool{"198.51.100.7": false, "2001:db8:7::7": true} {
		s.forget(t)
		s.sender.Flags = bpf.EPReady | bpf.EPBeside
		s.publish(t, &s.sender, word(slotAllow, 1), word(slotAllow, 1))
		before, forged := s.server.Received(), s.datagram(v6, 1000, 10)
		forged.Src = netip.MustParseAddr(src)
		s.send(t, forged.Bytes(), s.datagram(v6, 1001, 10).Bytes())
		testutil.WaitFor(t, time.Minute, "the pod's own datagram after the forged one", func() bool { return s.server.Received() > before })
		spoofed := bpf.DropKey{Ifindex: s.sender.Ifindex, Reason: uint16(bpf.MargayDropReasonDROP_SPOOFED)}
		if n := s.drops(t)[spoofed].Packets; n != 1 || s.server.Received() != before+1 {
			t.Errorf("from %s: %d dropped as spoofed, %d datagrams have arrived; want one of each", src, n, s.server.Received()-before)
		}
	}
}
