package bpf_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// patched is a frame with bytes overwritten.
func patched(frame []byte, at int, b ...byte) []byte {
	out := bytes.Clone(frame)
	copy(out[at:], b)
	return out
}

// ext is n extension headers of 8 bytes.
func ext(header uint8, n int) []testutil.Extension {
	var all []testutil.Extension
	for range n {
		all = append(all, testutil.Extension{Header: header})
	}
	return all
}

func TestWhatAFrameMustBeLike(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	syn4, syn6 := tcp(v4.a, v4.out, 1000, 80, syn), tcp(v6.a, v6.out, 1000, 80, syn)
	udp4, udp6 := udp(v4.a, v4.out, 1000, 53), udp(v6.a, v6.out, 1000, 53)
	with := func(p testutil.Packet, change func(p *testutil.Packet)) []byte {
		change(&p)
		return p.Bytes()
	}
	words := func(n int) []byte { return bytes.Repeat([]byte{1}, 4*n) }
	withOptions := func(options ...byte) []byte {
		return with(syn4, func(p *testutil.Packet) { p.Options = options })
	}
	tests := []struct {
		name   string
		frame  []byte
		reason bpf.DropReason
	}{
		{"tcp v4", syn4.Bytes(), 0},
		{"tcp v6", syn6.Bytes(), 0},
		{"udp v4", udp4.Bytes(), 0},
		{"udp v6", udp6.Bytes(), 0},
		{"trailing Ethernet padding v4", append(udp4.Bytes(), make([]byte, 40)...), 0},
		{"trailing Ethernet padding v6", append(udp6.Bytes(), make([]byte, 40)...), 0},
		{"IPv4 options, one word", with(syn4, func(p *testutil.Packet) { p.Options = words(1) }), 0},
		{"IPv4 options, ten words", with(syn4, func(p *testutil.Packet) { p.Options = words(10) }), 0},
		{"IPv4 options that end before their last byte", withOptions(7, 3, 4, 0, 131, 3, 4), 0},
		{"IPv4 options whose last byte is no operation", withOptions(7, 3, 4, 1), 0},
		{"IPv4 router alert", withOptions(148, 4, 0, 0), 0},
		{"IPv4 loose source route", withOptions(131, 7, 4, 192, 0, 2, 1), bpf.MargayDropReasonDROP_SOURCE_ROUTE},
		{"IPv4 strict source route", withOptions(137, 7, 4, 192, 0, 2, 1), bpf.MargayDropReasonDROP_SOURCE_ROUTE},
		{"IPv4 source route of two bytes", withOptions(1, 1, 1, 1, 1, 1, 131, 2), bpf.MargayDropReasonDROP_SOURCE_ROUTE},
		{"IPv4 source route in the last byte", withOptions(1, 1, 1, 131), bpf.MargayDropReasonDROP_SOURCE_ROUTE},
		{"IPv4 source route as the last of 40 bytes", withOptions(append(bytes.Repeat([]byte{1}, 39), 137)...), bpf.MargayDropReasonDROP_SOURCE_ROUTE},
		{"IPv4 source route behind another option", withOptions(7, 3, 4, 137, 7, 4, 192, 0, 2, 1), bpf.MargayDropReasonDROP_SOURCE_ROUTE},
		{"IPv4 source route behind options that cannot be read", withOptions(7, 1, 131, 7, 4, 192, 0, 2, 1), bpf.MargayDropReasonDROP_BAD_HEADER},
		{"IPv4 source route inside another option", withOptions(7, 7, 4, 131, 3, 4, 0), 0},
		{"IPv4 option longer than the header", withOptions(7, 5, 4, 0), bpf.MargayDropReasonDROP_BAD_HEADER},
		{"IPv4 option without its length", withOptions(1, 1, 1, 7), bpf.MargayDropReasonDROP_BAD_HEADER},
		{"IPv4 option without its length, and nothing behind it", patched(with(syn4, func(p *testutil.Packet) {
			p.Options, p.L4 = []byte{1, 1, 1, 7}, testutil.Raw(47)
		}), 14, 0x46), bpf.MargayDropReasonDROP_BAD_HEADER},
		{"IPv4 header length below 20", patched(syn4.Bytes(), 14, 0x44), bpf.MargayDropReasonDROP_BAD_HEADER},
		{"IPv4 header longer than the packet", patched(udp4.Bytes(), 14, 0x4f), bpf.MargayDropReasonDROP_BAD_HEADER},
		{"IPv4 that says it is IPv6", patched(syn4.Bytes(), 14, 0x65), bpf.MargayDropReasonDROP_BAD_HEADER},
		{"IPv6 that says it is IPv4", patched(syn6.Bytes(), 14, 0x45), bpf.MargayDropReasonDROP_BAD_HEADER},
		{"IPv4 total length beyond the frame", patched(syn4.Bytes(), 16, 0, 41), bpf.MargayDropReasonDROP_TRUNCATED},
		{"IPv4 total length below its header", patched(syn4.Bytes(), 16, 0, 19), bpf.MargayDropReasonDROP_BAD_HEADER},
		{"IPv4 total length zero", patched(syn4.Bytes(), 16, 0, 0), bpf.MargayDropReasonDROP_BAD_HEADER},
		{"IPv4 total length that cuts the TCP header", patched(syn4.Bytes(), 16, 0, 35), bpf.MargayDropReasonDROP_TRUNCATED},
		{"IPv4 total length that cuts the last byte of the TCP header", patched(syn4.Bytes(), 16, 0, 39), bpf.MargayDropReasonDROP_BAD_HEADER},
		{"IPv4 total length that cuts the UDP header", patched(udp4.Bytes(), 16, 0, 27), bpf.MargayDropReasonDROP_TRUNCATED},
		{"IPv6 payload length beyond the frame", patched(syn6.Bytes(), 18, 0, 21), bpf.MargayDropReasonDROP_TRUNCATED},
		{"IPv6 payload length that cuts the TCP header", patched(syn6.Bytes(), 18, 0, 15), bpf.MargayDropReasonDROP_TRUNCATED},
		{"IPv6 payload length zero (jumbogram)", patched(syn6.Bytes(), 18, 0, 0), bpf.MargayDropReasonDROP_TRUNCATED},
		{"IPv6 hop-by-hop", with(syn6, func(p *testutil.Packet) { p.Extensions = ext(0, 1) }), 0},
		{"IPv6 routing", with(syn6, func(p *testutil.Packet) { p.Extensions = ext(43, 1) }), 0},
		{"IPv6 routing with a segment left", with(syn6, func(p *testutil.Packet) {
			p.Extensions = []testutil.Extension{{Header: 43, Body: append([]byte{0, 1, 0, 0, 0, 0}, v6.other.AsSlice()...)}}
		}), bpf.MargayDropReasonDROP_SOURCE_ROUTE},
		{"IPv6 destination options", with(syn6, func(p *testutil.Packet) { p.Extensions = ext(60, 1) }), 0},
		{"IPv6 authentication", with(syn6, func(p *testutil.Packet) { p.Extensions = []testutil.Extension{{Header: 51, Body: make([]byte, 22)}} }), 0},
		{"IPv6 six extension headers", with(syn6, func(p *testutil.Packet) { p.Extensions = ext(60, 6) }), 0},
		{"IPv6 seven extension headers", with(syn6, func(p *testutil.Packet) { p.Extensions = ext(60, 7) }), bpf.MargayDropReasonDROP_EXT_HEADERS},
		{"IPv6 extension header of 2 KB", with(syn6, func(p *testutil.Packet) {
			p.Extensions = []testutil.Extension{{Header: 60, Body: make([]byte, 2046)}}
		}), 0},
		{"IPv6 extension header longer than the packet", patched(with(syn6, func(p *testutil.Packet) { p.Extensions = ext(60, 1) }), 55, 4), bpf.MargayDropReasonDROP_TRUNCATED},
		{"IPv6 ends inside an extension header", patched(with(syn6, func(p *testutil.Packet) { p.Extensions = ext(60, 2) }), 18, 0, 12), bpf.MargayDropReasonDROP_TRUNCATED},
		{"IPv6 atomic fragment", with(syn6, func(p *testutil.Packet) { p.Fragmented = true }), 0},
		{"IPv6 no next header", with(syn6, func(p *testutil.Packet) { p.L4, p.Protocol = testutil.Raw(59), 59 }), 0},
		{"TCP data offset below 5 v4", with(syn4, func(p *testutil.Packet) { p.L4 = testutil.TCP{Flags: syn, DataOffset: 4} }), bpf.MargayDropReasonDROP_BAD_HEADER},
		{"TCP data offset beyond the packet v4", with(syn4, func(p *testutil.Packet) { p.L4 = testutil.TCP{Flags: syn, DataOffset: 15} }), bpf.MargayDropReasonDROP_BAD_HEADER},
		{"TCP data offset below 5 v6", with(syn6, func(p *testutil.Packet) { p.L4 = testutil.TCP{Flags: syn, DataOffset: 4} }), bpf.MargayDropReasonDROP_BAD_HEADER},
		{"TCP data offset beyond the packet v6", with(syn6, func(p *testutil.Packet) { p.L4 = testutil.TCP{Flags: syn, DataOffset: 6} }), bpf.MargayDropReasonDROP_BAD_HEADER},
		{"TCP options", with(syn4, func(p *testutil.Packet) { p.L4 = testutil.TCP{Flags: syn, Options: words(10)} }), 0},
		{"SCTP", with(syn4, func(p *testutil.Packet) { p.L4 = testutil.SCTP{SrcPort: 1, DstPort: 2} }), 0},
		{"SCTP without its checksum", patched(with(syn4, func(p *testutil.Packet) { p.L4 = testutil.SCTP{SrcPort: 1, DstPort: 2} }), 16, 0, 31), bpf.MargayDropReasonDROP_TRUNCATED},
		{"UDP-Lite", with(syn4, func(p *testutil.Packet) { p.L4 = testutil.UDP{SrcPort: 1, DstPort: 2, Lite: true} }), 0},
		{"GRE", with(syn4, func(p *testutil.Packet) { p.L4 = testutil.Raw(47) }), 0},
		{"ESP", with(syn6, func(p *testutil.Packet) { p.L4 = testutil.Raw(50) }), 0},
		{"ICMP of 7 bytes", patched(icmp(v4.a, v4.out, 8, 1).Bytes(), 16, 0, 27), bpf.MargayDropReasonDROP_TRUNCATED},
		{"ICMPv6 of 7 bytes", patched(icmp(v6.a, v6.out, 128, 1).Bytes(), 18, 0, 7), bpf.MargayDropReasonDROP_TRUNCATED},
		{"VLAN tag", with(syn4, func(p *testutil.Packet) { p.VLAN = 100 }), bpf.MargayDropReasonDROP_NOT_IP},
		{"802.3 length", patched(syn4.Bytes(), 12, 0, 40), bpf.MargayDropReasonDROP_NOT_IP},
		{"MPLS", patched(syn4.Bytes(), 12, 0x88, 0x47), bpf.MargayDropReasonDROP_NOT_IP},
		{"PPPoE", patched(syn4.Bytes(), 12, 0x88, 0x64), bpf.MargayDropReasonDROP_NOT_IP},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			w.reset(t)
			r := w.fromPod(t, w.podA, tc.frame)
			r.want(t, tc.reason)
			if tc.reason != 0 {
				w.noFlow(t)
			}
		})
	}
}

// TestCutFramesNeverPass: whatever is missing at the end, nothing is let through that was not judged, and nothing fails.
// The same holds when the IP header says exactly the length that is there, until the headers policy reads are whole.
func TestCutFramesNeverPass(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	type cut struct {
		name  string
		frame []byte
		whole int // bytes of which policy reads
	}
	var all []cut
	for _, f := range families {
		unreachable, ip := uint8(3), 34
		if f.icmp == 58 {
			unreachable, ip = 1, 54
		}
		quote := testutil.Quoting(udp(f.out, f.a, 53, 1000))
		sctp := testutil.Packet{Src: f.a, Dst: f.out, L4: testutil.SCTP{SrcPort: 1, DstPort: 2}}
		failure := testutil.Packet{Src: f.a, Dst: f.out, L4: testutil.ICMP{Type: unreachable, Quote: quote}}
		all = append(all, cut{"tcp " + f.name, tcp(f.a, f.out, 1000, 80, syn).Bytes(), ip + 20},
			cut{"udp " + f.name, udp(f.a, f.out, 1000, 53).Bytes(), ip + 8},
			cut{"sctp " + f.name, sctp.Bytes(), ip + 16},
			cut{"echo " + f.name, icmp(f.a, f.out, f.echo, 7).Bytes(), ip + 8},
			cut{"error " + f.name, failure.Bytes(), ip + 8 + len(quote)})
	}
	options := tcp(v4.a, v4.out, 1000, 80, syn)
	options.Options = []byte{7, 7, 4, 0, 0, 0, 0, 1}
	chain := tcp(v6.a, v6.out, 1000, 80, syn)
	chain.Extensions = append(ext(0, 1), ext(60, 2)...)
	all = append(all, cut{"tcp with options v4", options.Bytes(), 34 + 8 + 20}, cut{"tcp with extension headers v6", chain.Bytes(), 54 + 24 + 20})
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			for n := 14; n < len(c.frame); n++ {
				w.forget(t)
				short := c.frame[:n]
				if r, ok := w.cut(t, short); ok && (r.action != drop || len(r.drops) != 1) {
					t.Errorf("%d of %d bytes: action %d, drops %v", n, len(c.frame), r.action, r.drops)
				}
				if r, ok := w.cut(t, told(short)); ok && (r.action != drop) != (n >= c.whole) {
					t.Errorf("%d of %d bytes, as the header says: action %d, drops %v", n, len(c.frame), r.action, r.drops)
				}
			}
		})
	}
}

// cut sends what is left of a frame; false: the kernel itself does not take it.
func (w *world) cut(t *testing.T, short []byte) (result, bool) {
	t.Helper()
	r, err := w.try(t, bpf.MargayProgFromPod, skb{Ifindex: w.podA}, short)
	if err != nil && len(short) >= 54 {
		t.Fatalf("%d bytes: %v", len(short), err)
	}
	return r, err == nil
}

// told is the frame with its true length in the IP header.
func told(short []byte) []byte {
	switch {
	case len(short) >= 18 && short[14]>>4 == 4:
		return patched(short, 16, 0, byte(len(short)-14))
	case len(short) >= 54:
		return patched(short, 18, 0, byte(len(short)-54))
	}
	return short
}

// TestGeneralParserAgreesWithFastPath: a packet that only the general parser takes gets the verdict, and makes the flow,
// of the same packet without what keeps it from the fast path.
func TestGeneralParserAgreesWithFastPath(t *testing.T) {
	w := newWorld(t, bpf.Config{})
	w.policy(t, 10, rule(bpf.RuleAllow, 6, setOut, 80, 443), rule(bpf.RuleAllow, 17, setOut, 53), rule(bpf.RuleAllow, 17, setB))
	w.publish(t, w.a, word(10, 3), word(10, 3))
	rapid.Check(t, func(r *rapid.T) {
		f := rapid.SampledFrom(families).Draw(r, "family")
		p := testutil.Packet{Src: rapid.SampledFrom([]netip.Addr{f.a, f.a, f.a, f.b}).Draw(r, "source"),
			Dst: rapid.SampledFrom([]netip.Addr{f.out, f.b, f.other, f.service}).Draw(r, "destination")}
		sport := rapid.Uint16().Draw(r, "sport")
		dport := rapid.SampledFrom([]uint16{53, 80, 443, 8080}).Draw(r, "dport")
		if rapid.Bool().Draw(r, "tcp") {
			p.L4 = testutil.TCP{SrcPort: sport, DstPort: dport, Flags: rapid.SampledFrom([]uint8{syn, synack, ack, fin, rst, 0, 0xff}).Draw(r, "flags"),
				DataOffset: rapid.SampledFrom([]uint8{0, 0, 0, 4, 6, 15}).Draw(r, "offset")}
		} else {
			p.L4 = testutil.UDP{SrcPort: sport, DstPort: dport}
		}
		p.Payload = make([]byte, rapid.IntRange(0, 40).Draw(r, "payload"))
		slow := p
		if f.icmp == 1 {
			slow.Options = bytes.Repeat([]byte{1}, 4*rapid.IntRange(1, 10).Draw(r, "words"))
		} else {
			slow.Extensions = ext(rapid.SampledFrom([]uint8{0, 43, 60}).Draw(r, "header"), rapid.IntRange(1, 6).Draw(r, "headers"))
		}
		if got, want := w.traceOf(t, slow.Bytes()), w.traceOf(t, p.Bytes()); got != want {
			r.Errorf("general parser: %s\nfast path:      %s", got, want)
		}
	})
}

// traceOf is what a frame from pod A leaves behind: what became of it, and its flow.
func (w *world) traceOf(t *testing.T, frame []byte) string {
	t.Helper()
	w.forget(t)
	r := w.fromPod(t, w.podA, frame)
	trace := fmt.Sprintf("action %d, mark %x, reason %q", r.action, r.mark, bpf.Label(r.reason()))
	for _, f := range w.flows(t) {
		f.entry.Seen = 0
		trace += fmt.Sprintf(", flow %+v", f)
	}
	return trace
}
