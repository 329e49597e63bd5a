package bpf_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

var podMAC = []byte{2, 0, 0, 0, 0, 0xa}

// arp is a request of the pod with that MAC, as the owner of from.
func arp(sender []byte, from netip.Addr) []byte {
	frame := append([]byte{255, 255, 255, 255, 255, 255}, podMAC...)
	frame = append(frame, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
	frame = append(append(frame, sender...), from.AsSlice()...)
	return append(frame, 0, 0, 0, 0, 0, 0, 169, 254, 1, 1)
}

func solicit(from netip.Addr) []byte {
	return testutil.Packet{Src: from, Dst: v6.linkLocal, L4: testutil.ICMP{Type: 135}, Payload: make([]byte, 16)}.Bytes()
}

// gateway is the node's link-local address on a veth: that of its MAC.
func (m *machine) gateway(t *testing.T, name string) netip.Addr {
	t.Helper()
	h, err := netlink.NewHandleAt(netns.NsHandle(m.ns.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	l, err := h.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	mac := l.Attrs().HardwareAddr
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
}

// TestPodsSpeakForTheirOwnAddresses, by ARP and by neighbour discovery; to the pod everything passes.
func TestPodsSpeakForTheirOwnAddresses(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	no := bpf.MargayDropReasonDROP_NEIGHBOUR
	ask := func(frame []byte, want bpf.DropReason) {
		t.Helper()
		w.fromPod(t, w.podA, frame).want(t, want)
		w.toPod(t, w.podA, outside, frame).want(t, 0)
	}
	ask(arp(podMAC, v4.a), 0)
	ask(arp(podMAC, netip.IPv4Unspecified()), 0)
	ask(arp(podMAC, v4.b), no)
	ask(arp(podMAC, v4.other), no)
	ask(arp([]byte{2, 0, 0, 0, 0, 0xb}, v4.a), no)
	w.fromPod(t, w.podA, arp(podMAC, v4.a)[:40]).want(t, bpf.MargayDropReasonDROP_TRUNCATED)

	ask(solicit(v6.a), 0)
	ask(solicit(netip.IPv6Unspecified()), 0)
	ask(solicit(netip.MustParseAddr("fe80::ff:fe00:a")), 0) // the MAC's
	ask(solicit(v6.b), no)
	ask(solicit(v6.other), no)
	ask(solicit(w.gateway(t, "caliA")), no)
	ask(solicit(netip.MustParseAddr("fe80::1234")), 0) // one more
	ask(solicit(netip.MustParseAddr("fe80::1235")), no)
	ask(solicit(netip.MustParseAddr("fe80::1234")), 0)
	ask(solicit(netip.MustParseAddr("fe80:0:0:1::1234")), no)
}

// TestPodsOfOnePlaceDoNotShareARate: interfaces whose numbers have the same low 16 bits have one place in arrays.
func TestPodsOfOnePlaceDoNotShareARate(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	far := w.vethAt(t, "caliFar", w.podA+1<<16)
	other := *w.b
	other.Ifindex, other.Mac = far, [6]byte{}
	w.put(t, bpf.MargayMapEndpoints, bpf.Endpoints+7, other)
	w.put(t, bpf.MargayMapEndpointPlaces, far, bpf.Endpoints+7)
	w.fromPod(t, far, solicit(netip.MustParseAddr("fe80::1234"))).want(t, 0)
	w.fromPod(t, w.podA, solicit(netip.MustParseAddr("fe80::1235"))).want(t, 0)
	limited := false
	for range 1000 {
		limited = limited || w.fromPod(t, far, arp(podMAC, v4.b)).action != next
	}
	if !limited {
		t.Fatal("the far pod has no rate")
	}
	w.fromPod(t, w.podA, arp(podMAC, v4.a)).want(t, 0)
}

// TestNeighbourMessagesHaveARate, a lower one while nothing is known of the pod.
func TestNeighbourMessagesHaveARate(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	for _, ready := range []bool{true, false} {
		burst := 200
		if !ready {
			burst = 4
			w.a.Flags = 0
			w.publish(t, w.a, 0, 0)
		}
		w.put(t, bpf.MargayMapNeighbours, w.podA, bpf.MargayNeighbour{})
		passed, begin, interval := 0, time.Now(), 10*time.Millisecond
		if !ready {
			interval = time.Second
		}
		for range 5 * burst {
			if r := w.fromPod(t, w.podA, arp(podMAC, v4.a)); r.action == next {
				passed++
			} else if r.reason() != bpf.MargayDropReasonDROP_NEIGHBOUR_RATE {
				t.Fatalf("dropped as %s", bpf.Label(r.reason()))
			}
		}
		if most := burst + int(time.Since(begin)/interval) + 1; passed < burst || passed > most {
			t.Errorf("ready %v: %d of %d pass, want %d to %d", ready, passed, 5*burst, burst, most)
		}
		if ready {
			continue
		}
		w.a.Flags = bpf.EPReady
		w.publish(t, w.a, word(slotAllow, 1), word(slotAllow, 1))
		w.fromPod(t, w.podA, arp(podMAC, v4.a)).want(t, 0) // it does not wait for what it sent before

		w.a.Flags = 0
		w.publish(t, w.a, 0, 0)
		w.put(t, bpf.MargayMapNeighbours, w.podA, bpf.MargayNeighbour{})
		for range 20 { // they leave no entry
			w.fromPod(t, w.podA, solicit(netip.IPv6Unspecified())).want(t, 0)
		}
		w.fromPod(t, w.podA, solicit(v6.a)).want(t, 0)
	}
}
