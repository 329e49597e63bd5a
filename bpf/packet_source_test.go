package bpf_test

import (
	"net/netip"
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// TestOnlyOwnAddressesLeaveAPod is about anti-spoofing.
func TestOnlyOwnAddressesLeaveAPod(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	for _, f := range families {
		zero := netip.IPv6Unspecified()
		if f.a.Is4() {
			zero = netip.IPv4Unspecified()
		}
		tests := []struct {
			name   string
			flags  uint32
			src    netip.Addr
			reason bpf.DropReason
		}{
			{"own address", 0, f.a, 0},
			{"second address, not known to be one", 0, f.a2, bpf.MargayDropReasonDROP_SPOOFED},
			{"second address", bpf.EPMoreAddrs, f.a2, 0},
			{"first address of an endpoint with several", bpf.EPMoreAddrs, f.a, 0},
			{"the other pod's", 0, f.b, bpf.MargayDropReasonDROP_SPOOFED},
			{"the other pod's, of an endpoint with several", bpf.EPMoreAddrs, f.b, bpf.MargayDropReasonDROP_SPOOFED},
			{"somebody's outside", bpf.EPMoreAddrs, f.out, bpf.MargayDropReasonDROP_SPOOFED},
			{"the node's", bpf.EPMoreAddrs, f.node, bpf.MargayDropReasonDROP_SPOOFED},
			{"a Service's", bpf.EPMoreAddrs, f.service, bpf.MargayDropReasonDROP_SPOOFED},
			{"an unknown one", bpf.EPMoreAddrs, f.other, bpf.MargayDropReasonDROP_SPOOFED},
			{"unspecified", bpf.EPMoreAddrs, zero, bpf.MargayDropReasonDROP_SPOOFED},
			{"link-local", bpf.EPMoreAddrs, f.linkLocal, bpf.MargayDropReasonDROP_SPOOFED},
		}
		for _, tc := range tests {
			t.Run(tc.name+"/"+f.name, func(t *testing.T) {
				w.reset(t)
				w.a.Flags |= tc.flags
				w.publish(t, w.a, w.a.Ingress, w.a.Egress)
				w.fromPod(t, w.podA, udp(tc.src, f.out, 1000, 53).Bytes()).want(t, tc.reason)
				if tc.reason != 0 {
					w.noFlow(t)
				}
			})
		}
	}
}

// TestAnEndpointWithoutAnAddressOfTheFamilySendsNothing: zeros in the endpoint are no address.
func TestAnEndpointWithoutAnAddressOfTheFamilySendsNothing(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.a.Addr4, w.a.Addr6 = [4]byte{}, [16]byte{}
	w.publish(t, w.a, w.a.Ingress, w.a.Egress)
	for _, src := range []netip.Addr{v4.a, netip.IPv4Unspecified()} {
		w.fromPod(t, w.podA, udp(src, v4.out, 1, 2).Bytes()).want(t, bpf.MargayDropReasonDROP_SPOOFED)
	}
	for _, src := range []netip.Addr{v6.a, netip.IPv6Unspecified(), netip.MustParseAddr("::1")} {
		w.fromPod(t, w.podA, udp(src, v6.out, 1, 2).Bytes()).want(t, bpf.MargayDropReasonDROP_SPOOFED)
	}
}

// TestDiscoveryPassesOnTheLink: discovery to the link passes from whatever source, also where nothing else does; other
// types, other destinations and fragments are judged.
func TestDiscoveryPassesOnTheLink(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	local, solicited := netip.MustParseAddr("fe80::aa"), netip.MustParseAddr("ff02::1:ff00:1")
	unknown, denied := bpf.MargayDropReasonDROP_NO_ENDPOINT, bpf.MargayDropReasonDROP_POLICY
	tests := []struct {
		name     string
		dst      netip.Addr
		kind     uint8
		ready    bpf.DropReason // from a pod whose policy denies everything
		notReady bpf.DropReason // from an interface that is no endpoint
	}{
		{"listener query", solicited, 130, 0, 0},
		{"listener report", solicited, 131, 0, 0},
		{"listener done", solicited, 132, 0, 0},
		{"router solicitation", netip.MustParseAddr("ff02::2"), 133, 0, 0},
		{"neighbour solicitation, multicast", solicited, 135, 0, 0},
		{"neighbour solicitation, unicast", local, 135, 0, 0},
		{"neighbour advertisement", local, 136, 0, 0},
		{"last of the link-local prefix", netip.MustParseAddr("febf::1"), 135, 0, 0},
		{"behind the link-local prefix", netip.MustParseAddr("fec0::1"), 135, denied, unknown},
		{"neighbour solicitation to a pod", v6.b, 135, denied, unknown},
		{"neighbour advertisement to the world", v6.out, 136, denied, unknown},
		{"site multicast", netip.MustParseAddr("ff05::2"), 133, denied, unknown},
		{"interface multicast", netip.MustParseAddr("ff01::2"), 133, denied, unknown},
		{"router advertisement", netip.MustParseAddr("ff02::1"), 134, denied, unknown},
		{"redirect", local, 137, denied, unknown},
		{"listener report, version 2", netip.MustParseAddr("ff02::16"), 143, 0, 0},
		{"echo on the link", local, 128, denied, unknown},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			w.reset(t)
			w.publish(t, w.a, word(slotDeny, 2), word(slotDeny, 2))
			frame := icmp(v6.a, tc.dst, tc.kind, 0).Bytes()
			w.fromPod(t, w.podA, frame).want(t, tc.ready)
			w.put(t, bpf.MargayMapNeighbours, uint32(1), bpf.MargayNeighbour{}) // none counts against its rate
			w.fromPod(t, 1, frame).want(t, tc.notReady)
			w.toPod(t, 1, outside, frame).want(t, tc.notReady)
			if tc.ready == 0 {
				w.fromPod(t, w.podA, icmp(netip.IPv6Unspecified(), tc.dst, tc.kind, 0).Bytes()).want(t, 0)
			}
			w.noFlow(t)
		})
	}
	t.Run("fragmented", func(t *testing.T) {
		w.reset(t)
		w.publish(t, w.a, word(slotDeny, 2), word(slotDeny, 2))
		p := icmp(v6.a, local, 135, 0)
		p.MoreFragments = true
		w.fromPod(t, w.podA, p.Bytes()).want(t, denied)
	})
	t.Run("in UDP's clothes", func(t *testing.T) {
		w.reset(t)
		w.publish(t, w.a, word(slotDeny, 2), word(slotDeny, 2))
		w.fromPod(t, w.podA, udp(v6.a, local, 135<<8, 135<<8).Bytes()).want(t, denied)
	})
}

// TestNothingPassesAnInterfaceThatIsNotReady is D-18.
func TestNothingPassesAnInterfaceThatIsNotReady(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.eachFamily(t, "", func(t *testing.T, f family) {
		out, in := udp(f.a, f.out, 1000, 53).Bytes(), udp(f.out, f.a, 53, 1000).Bytes()
		w.a.Flags = 0
		w.publish(t, w.a, w.a.Ingress, w.a.Egress)
		closed := bpf.MargayDropReasonDROP_NO_ENDPOINT
		for _, veth := range []uint32{w.podA, 1} {
			w.fromPod(t, veth, out).want(t, closed)
			w.toPod(t, veth, outside, in).want(t, closed)
			w.toPod(t, veth, 0, in).want(t, closed)
		}
		w.noFlow(t)
		// Also not what belongs to a flow that was there.
		w.a.Flags = bpf.EPReady
		w.publish(t, w.a, w.a.Ingress, w.a.Egress)
		w.fromPod(t, w.podA, out).want(t, 0)
		w.a.Flags = 0
		w.publish(t, w.a, w.a.Ingress, w.a.Egress)
		w.fromPod(t, w.podA, out).want(t, closed)
		w.toPod(t, w.podA, outside, in).want(t, closed)
	})
}

// TestAnInterfaceWhosePlaceIsTakenIsFound: two interfaces may share a place in the array.
func TestAnInterfaceWhosePlaceIsTakenIsFound(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	place := w.a.Ifindex
	taken := *w.b
	taken.Ifindex = place + 65536
	w.put(t, bpf.MargayMapEndpoints, place, taken)
	frame := udp(v4.a, v4.out, 1000, 53).Bytes()
	w.fromPod(t, w.podA, frame).want(t, bpf.MargayDropReasonDROP_NO_ENDPOINT)
	w.put(t, bpf.MargayMapEndpoints, bpf.Endpoints+7, *w.a)
	w.fromPod(t, w.podA, frame).want(t, bpf.MargayDropReasonDROP_NO_ENDPOINT)
	w.put(t, bpf.MargayMapEndpointPlaces, place, bpf.Endpoints+7)
	w.fromPod(t, w.podA, frame).want(t, 0)
	w.put(t, bpf.MargayMapEndpoints, bpf.Endpoints+7, taken) // the entry leads to the endpoint of another interface now
	w.fromPod(t, w.podA, frame).want(t, bpf.MargayDropReasonDROP_NO_ENDPOINT)
}

// TestMarks: bits are added, never taken away. A frame that passes from the pod is marked as seen, ARP too.
func TestMarks(t *testing.T) {
	w := newWorld(t, bpf.Config{NoShortcut: shortcut})
	w.publish(t, w.b, word(slotDeny, 2), word(slotAllow, 1))
	nd := icmp(v6.linkLocal, netip.MustParseAddr("ff02::1"), 135, 0).Bytes()
	from, to := bpf.MargayProgFromPod, bpf.MargayProgToPod
	tests := []struct {
		name    string
		program string
		frame   []byte
		mark    uint32
		want    uint32
		action  int
	}{
		{"allowed", from, udp(v4.a, v4.out, 1, 2).Bytes(), 0, markSeen, next},
		{"somebody else's bits stay", from, udp(v4.a, v4.out, 1, 2).Bytes(), markForeign, markForeign | markSeen, next},
		{"to a Service", from, udp(v4.a, v4.service, 1, 2).Bytes(), markForeign, markForeign | markSeen | markJudge, next},
		{"to the node", from, tcp(v6.a, v6.node, 1, 2, syn).Bytes(), 0, markSeen | markJudge, next},
		{"discovery", from, nd, 0, markSeen, next},
		{"ARP", from, arp(podMAC, v4.a), 0, markSeen, next},
		{"dropped", from, udp(v4.out, v4.a, 1, 2).Bytes(), markForeign, markForeign, drop},
		{"dropped for the peer", from, udp(v4.a, v4.b, 1, 2).Bytes(), markForeign, markForeign, drop},
		{"to the pod", to, udp(v4.out, v4.a, 1, 2).Bytes(), markForeign, markForeign, next},
		{"to the pod, seen before", to, udp(v4.out, v4.a, 1, 2).Bytes(), markSeen, markSeen, next},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			w.forget(t)
			r := w.run(t, tc.program, skb{Ifindex: w.podA, Mark: tc.mark, IngressIfindex: outside}, tc.frame)
			if r.mark != tc.want || r.action != tc.action {
				t.Errorf("mark %#x, action %d; want %#x, %d", r.mark, r.action, tc.want, tc.action)
			}
		})
	}
}

// TestTheMarkOfOurResetsOpensNothing: rules of others may set the bit in any packet. It counts for a bare reset of a flow
// that was revoked, which is all that is ever made.
func TestTheMarkOfOurResetsOpensNothing(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	marked := func(program string, p testutil.Packet) result {
		return w.run(t, program, skb{Ifindex: w.podA, Mark: markOwn | markForeign, IngressIfindex: outside}, p.Bytes())
	}
	w.eachFamily(t, "", func(t *testing.T, f family) {
		bare := tcp(f.out, f.a, 80, 1000, rst|ack)
		w.publish(t, w.a, word(slotDeny, 2), word(slotDeny, 2))
		for name, p := range map[string]testutil.Packet{
			"datagram": udp(f.out, f.a, 80, 1000), "SYN": tcp(f.out, f.a, 80, 1000, syn), "RST": bare, "echo": icmp(f.out, f.a, f.echo, 1),
		} {
			if r := marked(bpf.MargayProgToPod, p); r.action != drop {
				t.Errorf("%s to an isolated pod passes by its mark", name)
			}
		}
		if r := marked(bpf.MargayProgFromPod, udp(f.out, f.a, 1, 2)); r.reason() != bpf.MargayDropReasonDROP_SPOOFED {
			t.Error("a forged source passes by its mark")
		}
		// Of a flow that was revoked.
		w.publish(t, w.a, word(slotAllow, 3), word(slotDeny, 3))
		w.toPod(t, w.podA, outside, tcp(f.out, f.a, 80, 1000, syn).Bytes()).want(t, 0)
		if r := marked(bpf.MargayProgToPod, bare); r.action != next || r.mark != markOwn|markForeign {
			t.Errorf("a reset of a flow that is allowed passes as any packet: action %d, mark %#x", r.action, r.mark)
		}
		w.toPod(t, w.podA, outside, tcp(f.out, f.a, 80, 1000, syn).Bytes()).want(t, 0)
		w.publish(t, w.a, word(slotDeny, 4), word(slotDeny, 4))
		w.toPod(t, w.podA, outside, tcp(f.out, f.a, 80, 1000, ack).Bytes())
		for _, program := range []string{bpf.MargayProgToPod, bpf.MargayProgFromPod} {
			p := bare
			if program == bpf.MargayProgFromPod {
				p = tcp(f.a, f.out, 1000, 80, rst|ack)
			}
			if r := marked(program, p); r.action != next || r.mark != markOwn|markSeen|markForeign {
				t.Errorf("%s: our reset: action %d, mark %#x", program, r.action, r.mark)
			}
			p.Payload = []byte("secret")
			if r := marked(program, p); r.action != drop {
				t.Errorf("%s: a reset with a payload passes by its mark", program)
			}
		}
		if r := marked(bpf.MargayProgToPod, tcp(f.out, f.a, 80, 1000, ack)); r.reason() != bpf.MargayDropReasonDROP_REVOKED {
			t.Error("a packet of a revoked flow passes by its mark")
		}
	})
}

// TestTunnelsOfPodsAreDropped: of both families, by protocol and by port; not TCP, nor what goes to the pod.
func TestTunnelsOfPodsAreDropped(t *testing.T) {
	w := newWorld(t, bpf.Config{AllowEncap: banned, TunnelPorts: [8]uint16{4789, 8472}})
	open := newWorld(t, bpf.Config{TunnelPorts: [8]uint16{4789, 8472}})
	for _, f := range families {
		for name, p := range map[string]testutil.Packet{
			"VXLAN": udp(f.a, f.out, 1000, 4789), "flannel": udp(f.a, f.out, 1000, 8472),
			"IPv4": {Src: f.a, Dst: f.out, L4: testutil.Raw(4), Payload: make([]byte, 40)},
			"IPv6": {Src: f.a, Dst: f.out, L4: testutil.Raw(41), Payload: make([]byte, 40)},
			"GRE":  {Src: f.a, Dst: f.out, L4: testutil.Raw(47), Payload: make([]byte, 40)},
		} {
			t.Run(f.name+"/"+name, func(t *testing.T) {
				w.reset(t)
				w.fromPod(t, w.podA, p.Bytes()).want(t, bpf.MargayDropReasonDROP_ENCAP)
				w.noFlow(t)
				p.Src, p.Dst = p.Dst, p.Src
				w.toPod(t, w.podA, outside, p.Bytes()).want(t, 0)
				p.Src, p.Dst = p.Dst, p.Src
				open.reset(t)
				open.fromPod(t, open.podA, p.Bytes()).want(t, 0)
			})
		}
		w.reset(t)
		w.fromPod(t, w.podA, tcp(f.a, f.out, 1000, 4789, syn).Bytes()).want(t, 0)
		w.fromPod(t, w.podA, udp(f.a, f.out, 4789, 6081).Bytes()).want(t, 0)
	}
}
