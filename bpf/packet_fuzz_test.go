package bpf_test

import (
	"testing"

	"github.com/margay-project/margay/bpf"
	"github.com/margay-project/margay/internal/testutil"
)

// FuzzPacket sends arbitrary frames through both hooks of a pod whose policy denies everything but UDP port 53 outside.
// Nothing fails, nothing is counted twice, and nothing passes but what is allowed.
func FuzzPacket(f *testing.F) {
	w := newWorld(f, bpf.Config{})
	w.policy(f, 10, rule(bpf.RuleAllow, 17, setOut, 53))
	w.publish(f, w.a, word(slotDeny, 2), word(10, 2))
	for _, frame := range fuzzSeeds() {
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < 14 || len(frame) > 2000 {
			return
		}
		w.forget(t)
		out, err := w.try(t, bpf.MargayProgFromPod, skb{Ifindex: w.podA}, frame)
		if err != nil {
			return // the kernel does not take it as a frame
		}
		passable(t, "from the pod", frame, out, true)
		w.forget(t)
		in := w.run(t, bpf.MargayProgToPod, skb{Ifindex: w.podA, IngressIfindex: outside}, frame)
		passable(t, "to the pod", frame, in, false)
	})
}

// passable checks that a frame was dropped for one reason, or is of those that may pass.
func passable(t *testing.T, where string, frame []byte, r result, out bool) {
	t.Helper()
	if r.action == drop {
		if len(r.drops) != 1 {
			t.Errorf("%s: dropped, counted %v", where, r.drops)
		}
		return
	}
	if r.action != next || len(r.drops) != 0 {
		t.Errorf("%s: action %d, drops %v", where, r.action, r.drops)
	}
	ethertype := uint16(frame[12])<<8 | uint16(frame[13])
	if ethertype == testutil.EtherARP || onLink(frame) || r.mark&markJudge != 0 {
		return
	}
	if !out {
		if serviceAnswer(frame) {
			return
		}
		t.Errorf("%s: %x passed", where, frame)
		return
	}
	if !asksOutside(frame) {
		t.Errorf("%s: %x passed", where, frame)
	}
}

// transport finds protocol and offset of the transport header behind any extension headers.
func transport(frame []byte) (protocol byte, at int) {
	if frame[14]>>4 == 4 {
		return frame[23], 14 + int(frame[14]&15)*4
	}
	protocol, at = frame[20], 54
	for {
		switch protocol {
		case 0, 43, 60:
			protocol, at = frame[at], at+(int(frame[at+1])+1)*8
		case 51:
			protocol, at = frame[at], at+(int(frame[at+1])+2)*4
		case 44:
			protocol, at = frame[at], at+8
		default:
			return protocol, at
		}
	}
}

// onLink tells discovery to a link-local or link-multicast address.
func onLink(frame []byte) bool {
	if frame[12] != 0x86 || !(frame[38] == 0xff && frame[39] == 2 || frame[38] == 0xfe && frame[39]&0xc0 == 0x80) {
		return false
	}
	protocol, at := transport(frame)
	return protocol == 58 && (frame[at] >= 130 && frame[at] <= 133 || frame[at] == 135 || frame[at] == 136 || frame[at] == 143)
}

// asksOutside tells what the pod's policy allows: UDP from it to port 53 outside.
func asksOutside(frame []byte) bool {
	f, src, dst := v4, 26, 30
	if frame[14]>>4 == 6 {
		f, src, dst = v6, 22, 38
	}
	n := len(f.a.AsSlice())
	if string(frame[src:src+n]) != string(f.a.AsSlice()) || string(frame[dst:dst+n]) != string(f.out.AsSlice()) {
		return false
	}
	protocol, at := transport(frame)
	return protocol == 17 && frame[at+2] == 0 && frame[at+3] == 53
}

// serviceAnswer tells TCP that opens nothing, from a Service's address.
func serviceAnswer(frame []byte) bool {
	f, src := v4, 26
	if frame[14]>>4 == 6 {
		f, src = v6, 22
	}
	if string(frame[src:src+len(f.service.AsSlice())]) != string(f.service.AsSlice()) {
		return false
	}
	protocol, at := transport(frame)
	return protocol == 6 && frame[at+13]&(syn|ack) != syn
}

func fuzzSeeds() [][]byte {
	seeds := [][]byte{testutil.Packet{Src: v4.a, Dst: v4.b, EtherType: testutil.EtherARP}.Bytes()}
	for _, f := range families {
		all := []testutil.Packet{
			tcp(f.a, f.out, 1000, 80, syn), tcp(f.a, f.out, 1000, 80, ack), tcp(f.service, f.a, 80, 1000, ack),
			udp(f.a, f.out, 1000, 53), udp(f.a, f.out, 1000, 54), udp(f.out, f.a, 53, 1000), udp(f.a, f.node, 1, 2),
			icmp(f.a, f.out, f.echo, 7), icmp(f.out, f.a, f.reply, 7), icmp(f.a, f.linkLocal, 135, 0),
			unreachable(f.out, f.a, testutil.Quoting(udp(f.a, f.out, 1000, 53))),
			{Src: f.a, Dst: f.out, L4: testutil.SCTP{SrcPort: 1, DstPort: 2}},
			{Src: f.a, Dst: f.out, L4: testutil.Raw(47)},
		}
		for _, p := range all {
			seeds = append(seeds, p.Bytes())
		}
		p := udp(f.a, f.out, 1000, 53)
		p.Options, p.Extensions = []byte{1, 1, 1, 1}, append(ext(0, 1), ext(60, 1)...)
		if f.a.Is4() {
			p.Extensions = nil
		}
		seeds = append(seeds, p.Bytes())
		seeds = append(seeds, fragments(p, 1)...)
	}
	return seeds
}
